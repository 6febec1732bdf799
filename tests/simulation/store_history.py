"""What clients of the metadata store asked for and saw, and what the store itself carried out: see history.py."""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.metadata_store.interface import Entry
from tests.simulation.history import Operation

ROOT = "/simulation"
ENTRIES, TURNS, NAMES = f"{ROOT}/entries", f"{ROOT}/turns", f"{ROOT}/names"
"""The entries of the store's clients: see client/store.py."""
NO_VERSION = -1


@dataclass(slots=True, kw_only=True, eq=False)
class StoreRead(Operation):
    """An entry was read, and a watch set. `silent_since`: the version of an earlier watch of the same session that had
    not been called when the answer came, though the entry has changed since it was set."""

    path: str
    version: int = NO_VERSION
    silent_since: int = NO_VERSION

    def describe(self) -> str:
        """See Operation."""
        return f"read version {self.version} of {self.path}"


@dataclass(slots=True, kw_only=True, eq=False)
class StoreChange(Operation):
    """An entry was to get this text if it had the version before. FAILED: the client was told that it did not."""

    path: str
    text: str
    session_id: int
    version: int = NO_VERSION

    def describe(self) -> str:
        """See Operation."""
        return f"set {self.path} to {self.text!r}, version {self.version}, in session 0x{self.session_id:x}"


@dataclass(slots=True, kw_only=True, eq=False)
class Applied(Operation):
    """The store has set an entry."""

    path: str
    text: str
    version: int

    def describe(self) -> str:
        """See Operation."""
        return f"sets {self.path} to {self.text!r}, version {self.version}"


@dataclass(slots=True, kw_only=True, eq=False)
class Owned(Operation):
    """The store has created an ephemeral entry, which a client wanted in one session, in this one."""

    path: str
    wanted_id: int
    session_id: int

    def describe(self) -> str:
        """See Operation."""
        return f"creates {self.path} in session 0x{self.session_id:x}, of a call in session 0x{self.wanted_id:x}"


@dataclass(slots=True, kw_only=True, eq=False)
class Named(Operation):
    """The store has given a new entry a number, when so many were created beside it before."""

    path: str
    number: int
    created_before: int

    def describe(self) -> str:
        """See Operation."""
        return f"creates {self.path} after {self.created_before} others"


@dataclass(slots=True, kw_only=True, eq=False)
class TooLong(Operation):
    """A change above the limit. `refused`: as it must be, before it was sent."""

    size: int
    refused: bool = False

    def describe(self) -> str:
        """See Operation."""
        return f"change {self.size} bytes at once"


@dataclass(slots=True, kw_only=True, eq=False)
class Unheard(Operation):
    """For long the controller has known other brokers than are registered, although it was connected to the store."""

    known: tuple[int, ...]
    registered: tuple[int, ...]
    seconds: float

    def describe(self) -> str:
        """See Operation."""
        return f"knows the brokers {self.known} for {self.seconds:.0f} s, while {self.registered} are registered"


class ClientEntries:
    """Reads from the entries of the store's clients what the store has done for them."""

    def __init__(self) -> None:
        self._created = 0

    def observed(self, path: str, entry: Entry, *, is_new: bool) -> Operation | None:
        """What this change of an entry says."""
        text = (entry.data or b"").decode()
        if path.startswith(f"{TURNS}/") and is_new:
            return Owned(process="store", path=path, wanted_id=int(text), session_id=entry.owner)
        if path.startswith(f"{NAMES}/") and is_new:
            self._created += 1
            number = int(path.rpartition("-")[2])
            return Named(process="store", path=path, number=number, created_before=self._created - 1)
        if path.startswith(f"{ENTRIES}/") and not is_new:
            return Applied(process="store", path=path, text=text, version=entry.version)
        return None
