"""What a mechanism of SASL is to the rest of the broker, and how a login by it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol


class LoginRefused(Exception):
    """The client has not proved who it is. The reason is for the log, and shows no secret."""

    def __init__(self, reason: str, shown: str | None = None) -> None:
        """`shown` is the text for the client; None for the one that all failures of the mechanism have."""
        super().__init__(reason)
        self.reason = reason
        self.shown = shown


class SaslServer(Protocol):
    """One login by a mechanism."""

    username: str | None
    """Who the client is, once the login is complete; None before."""

    def evaluate(self, token: bytes) -> bytes:
        """Returns the answer to the client's next token. Raises LoginRefused."""


class Mechanism(NamedTuple):
    """A mechanism as a listener has enabled it."""

    name: str
    new_server: Callable[[], SaslServer]
    session_lifetime_ms: int = 0
    """After this time the client must authenticate again (KIP-368); 0 for no limit."""
