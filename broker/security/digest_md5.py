"""The client's side of SASL's DIGEST-MD5: both sides prove that they know the password, which is not sent.

    (A) The server begins with a challenge. The first `respond` returns the response to it, the second one checks the
        server's own proof (rspauth) and returns None: the login is complete.
    (B) The quality of protection is `auth`: what follows the login is neither signed nor encrypted by it.
    (C) A user name or password whose characters are all in ISO 8859-1 is hashed in that encoding, another one in UTF-8.

MD5 is broken for signatures, and weak here: who reads the exchange can try passwords. Use it over TLS, or in a network
that nobody else can read.

Source: RFC 2831.
"""

from __future__ import annotations

import hashlib
import hmac
import random
import re
from typing import NamedTuple

LONGEST_CHALLENGE = 2048
NONCE_BYTES = 16
COUNT = b"00000001"
"""How often the server's nonce was used: each login begins with a new one."""

_DIRECTIVE = re.compile(r'\s*([^\s=,"]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]*))\s*(?:,|$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class BadChallenge(Exception):
    """The server's message is no challenge of this mechanism, or does not prove that the server knows the password."""


class Credentials(NamedTuple):
    """A user and a password."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials(username={self.username!r})"


class _Asked(NamedTuple):
    """What the first challenge says, and the client's nonce in the response to it."""

    realm: str
    nonce: bytes
    client_nonce: bytes


class DigestMd5Client:
    """One login. `service` and `host` name the server: they are part of what is proved. `source` draws the nonce."""

    def __init__(self, credentials: Credentials, service: str, host: str, source: random.Random) -> None:
        self.username = credentials.username
        self._credentials = credentials
        self._uri = f"{service}/{host}".encode()
        self._source = source
        self._asked: _Asked | None = None

    def respond(self, challenge: bytes) -> bytes | None:
        """Returns the next message to the server; None if the login is complete (A). Raises BadChallenge."""
        directives = _directives(challenge)
        if self._asked is not None:
            self._check_proof(directives, self._asked)
            return None
        self._asked = _Asked(
            directives.get("realm", ""),
            _supported(directives)["nonce"].encode(),
            self._source.randbytes(NONCE_BYTES).hex().encode(),
        )
        return self._response(self._asked)

    def _response(self, asked: _Asked) -> bytes:
        parts = [
            b"charset=utf-8",
            b'username="' + _quoted(self.username) + b'"',
            b'realm="' + _quoted(asked.realm) + b'"',
            b'nonce="' + _quoted(asked.nonce.decode()) + b'"',
            b"nc=" + COUNT,
            b'cnonce="' + asked.client_nonce + b'"',
            b'digest-uri="' + self._uri + b'"',
            b"response=" + self._proof(asked, b"AUTHENTICATE"),
            b"qop=auth",
        ]
        return b",".join(parts)

    def _check_proof(self, directives: dict[str, str], asked: _Asked) -> None:
        proof = directives.get("rspauth", "")
        if not hmac.compare_digest(proof.encode(), self._proof(asked, b"")):
            raise BadChallenge("the server did not prove that it knows the password")

    def _proof(self, asked: _Asked, method: bytes) -> bytes:
        """The client's proof for the method AUTHENTICATE, the server's for none."""
        secret = _md5(b":".join(map(_hashed_text, (self.username, asked.realm, self._credentials.password))))
        begin = secret.digest() + b":" + asked.nonce + b":" + asked.client_nonce
        target = method + b":" + self._uri
        keyed = (_hex(begin), asked.nonce, COUNT, asked.client_nonce, b"auth", _hex(target))
        return _hex(b":".join(keyed))


def _directives(challenge: bytes) -> dict[str, str]:
    """The directives of a message; of several with a name, the first."""
    if not challenge:
        raise BadChallenge("the server has no SASL login")
    if len(challenge) > LONGEST_CHALLENGE:
        raise BadChallenge(f"the server's challenge has {len(challenge)} bytes, more than {LONGEST_CHALLENGE}")
    try:
        text = challenge.decode()
    except UnicodeDecodeError as error:
        raise BadChallenge("the server's challenge is not UTF-8") from error
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None:
            raise BadChallenge(f"the server's challenge cannot be read at character {position}")
        name, quoted, plain = match.groups()
        found.setdefault(name.lower(), plain if quoted is None else _ESCAPE.sub(r"\1", quoted))
        position = match.end()
    return found


def _supported(directives: dict[str, str]) -> dict[str, str]:
    """The directives of a first challenge, if they are of a kind that this client can answer."""
    if not directives.get("nonce"):
        raise BadChallenge("the server's challenge has no nonce")
    algorithm = directives.get("algorithm", "")
    if algorithm != "md5-sess":
        raise BadChallenge(f"the server's algorithm is {algorithm!r}, not md5-sess")
    offered = [each.strip() for each in directives.get("qop", "auth").split(",")]
    if "auth" not in offered:
        raise BadChallenge(f"the server wants the quality of protection {', '.join(offered)}, not auth")
    return directives


def _quoted(text: str) -> bytes:
    return text.replace("\\", "\\\\").replace('"', '\\"').encode()


def _hashed_text(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)


def _hex(data: bytes) -> bytes:
    return _md5(data).hexdigest().encode()
