"""SASL's PLAIN: the client sends its name and its password.

    (A) A token is authzid NUL authcid NUL password, in UTF-8. The authzid, who the client wants to be, must be empty or
        the same as the authcid.
    (B) An unknown user, a wrong password and a token of another form get the same answer, and take the same time to
        compare. (Kafka has another text for the last.)
    (C) Passwords are kept as digests only.

Source: RFC 4616; Kafka's `PlainSaslServer` and `PlainServerCallbackHandler`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from odradek.broker.security.sasl.mechanism import LoginRefused

PLAIN = "PLAIN"
WRONG = "Authentication failed: Invalid username or password"
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"


class Passwords:
    """The users who may log in, each with a password."""

    __slots__ = ("_digests",)

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {name.encode(): _digest(password.encode()) for name, password in passwords.items()}

    def __repr__(self) -> str:
        return f"Passwords({len(self._digests)} users)"

    def are_right(self, name: bytes, password: bytes) -> bool:
        """Whether there is such a user with this password."""
        expected = self._digests.get(name)
        given = _digest(password)
        return hmac.compare_digest(given, given[::-1] if expected is None else expected) and expected is not None


class PlainServer:
    """One login by PLAIN."""

    __slots__ = ("_passwords", "username")

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self.username: str | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Returns the empty answer that ends a login. Raises LoginRefused."""
        parts = token.split(b"\0")
        if len(parts) != 3 or not parts[1] or not parts[2]:
            raise LoginRefused("the token is not one of PLAIN", WRONG)
        identity, name, password = parts
        if not self._passwords.are_right(name, password):
            raise LoginRefused("no such user, or a wrong password", WRONG)
        if identity not in (b"", name):
            raise LoginRefused("another authorization id than the user", OTHER_IDENTITY)
        self.username = name.decode()
        return b""


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
