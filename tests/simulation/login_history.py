"""What happens to those who log in, and to those who should not get in: operations of the history."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.history import Operation


@dataclass(slots=True, kw_only=True, eq=False)
class LoggedIn(Operation):
    """A client logs in with the right password."""

    user: str
    is_renewal: bool = False

    def describe(self) -> str:
        """See Operation."""
        return f"{'renews the login of' if self.is_renewal else 'logs in as'} {self.user}"


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt(Operation):
    """An intruder tries what it may not do. OK: it was not refused. FAILED: it was, or its connection ended.
    UNKNOWN: there was no answer where a refusal is one."""

    what: str

    def describe(self) -> str:
        """See Operation."""
        return f"tries to {self.what}"


class Unproven(Attempt):
    """It has not proved who it is."""


class Overslept(Attempt):
    """Its session has ended."""
