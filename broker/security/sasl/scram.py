"""SCRAM: the credentials that the broker keeps of a user, and the messages by which client and server prove to each
other that they know the user's password, without sending it.

    (A) A credential has neither the password nor what proves it: a salt, two keys, the number of iterations. As text,
        as Kafka stores it: salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=N
    (B) A mechanism has a least number of iterations, and Kafka's most. A stored credential may have more.
    (C) A salt is text of 130 random bits in base 36, as Kafka's tools make them.
    (D) client-first      n,[a=AUTHZID],n=USER,r=NONCE[,EXTENSION=VALUE]...
        server-first      r=NONCE,s=SALT,i=ITERATIONS
        client-final      c=CHANNEL,r=NONCE[,EXTENSION=VALUE]...,p=PROOF
        server-final      v=SIGNATURE
    (E) There is no channel binding: the client's header is `n`, and the channel of its last message repeats it.
    (F) In a name, a comma is =2C and an equals sign =3D. Names are ASCII, as in Kafka. The authzid must be empty or the
        name.
    (G) Extensions are ignored, as in Kafka, except `tokenauth=true`: there are no delegation tokens. The mandatory
        extension `m` is refused.
    (H) An unknown user gets a salt, as others do, and fails at the last message, as with a wrong password; the salt of
        a name remains the same while the broker runs. (Kafka refuses an unknown user at the first message.) It is made
        up for every user, so that known ones take the same time.
    (I) A message has at most LONGEST_MESSAGE bytes: it is matched at once, and much of the first one is kept until the
        last one comes.

Every broker imports this file: what only a login needs is imported and compiled at the first one.

Source: RFC 5802, RFC 7677; Kafka's `ScramFormatter`, `ScramCredentialUtils`, `ScramSaslServer`, `ScramMessages`.
"""

from __future__ import annotations

import base64
import binascii
import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import NamedTuple

from odradek.broker.security.sasl.mechanism import LoginRefused

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
SALT_BITS = 130
NONCE_BYTES = 24
LONGEST_MESSAGE = 8192
"""Room for the longest name of a user, written twice with each character escaped, and for a nonce."""
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"

_NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = rb"[\x01-\x2b\x2d-\x7f]+"
_NONCE = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS = rb"(?:,[A-Za-z]+=" + _VALUE + rb")*"
_BASE64 = rb"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_FIELDS = ("salt", "stored_key", "server_key", "iterations")


class ScramMechanism(NamedTuple):
    """SCRAM with a hash function. `number` is that in requests (KIP-554)."""

    name: str
    number: int
    hash_name: str
    key_bytes: int

    def hmac(self, key: bytes, data: bytes) -> bytes:
        import hmac

        return hmac.digest(key, data, self.hash_name)

    def are_equal(self, one: bytes, other: bytes) -> bool:
        """Takes the same time whatever differs."""
        import hmac

        return hmac.compare_digest(one, other)

    def hash(self, data: bytes) -> bytes:
        import hashlib

        return hashlib.new(self.hash_name, data).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Takes about a millisecond per 4,096 iterations."""
        import hashlib

        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """The credential of a user whose password, salted, is this."""
        stored_key = self.hash(self.hmac(salted_password, b"Client Key"))
        return ScramCredential(salt, stored_key, self.hmac(salted_password, b"Server Key"), iterations)


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
MECHANISMS = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
BY_NUMBER = {each.number: each for each in MECHANISMS.values()}


class ScramCredential(NamedTuple):
    """What the broker knows of a user (A)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    def text(self) -> str:
        """The form in which it is stored (A)."""
        keys = (_base64(self.salt), _base64(self.stored_key), _base64(self.server_key), str(self.iterations))
        return ",".join(f"{name}={value}" for name, value in zip(_FIELDS, keys, strict=True))


def parse_credential(text: str) -> ScramCredential:
    """Reads the form in which it is stored (A). Raises ValueError, which shows nothing of it."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    if len(fields) != len(_FIELDS) or not all(name in fields for name in _FIELDS):
        raise ValueError(f"a credential of SCRAM has the fields {', '.join(_FIELDS)}")
    try:
        salt, stored_key, server_key = (base64.b64decode(fields[name], validate=True) for name in _FIELDS[:3])
    except (binascii.Error, ValueError):
        raise ValueError("a key of a credential of SCRAM is not base64") from None
    iterations = fields["iterations"]
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) <= 9):
        raise ValueError("the iterations of a credential of SCRAM are not a number")
    return ScramCredential(salt, stored_key, server_key, int(iterations))


def new_nonce(source: random.Random) -> bytes:
    """Returns the server's part of a nonce."""
    return base64.b64encode(source.randbytes(NONCE_BYTES))


def new_salt(source: random.Random) -> bytes:
    """Returns a random salt (C)."""
    return salt_of(source.getrandbits(SALT_BITS))


def salt_of(number: int) -> bytes:
    """Returns the salt made of a number of SALT_BITS (C)."""
    digits = []
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits)).encode()


CredentialOf = Callable[[str], ScramCredential | None]
"""The credential of a user for the mechanism, None for an unknown user."""
StoredCredentials = Mapping[str, Mapping[str, ScramCredential]]
"""The credentials by user and mechanism."""


class Unknown:
    """Makes up credentials of unknown users (H). `secret` is random bytes that nobody else knows."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def credential(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """A credential that nobody's password fits."""
        made_up = SCRAM_SHA_512.hmac(self._secret, f"{mechanism.name}\0{name}".encode())
        salt = salt_of(int.from_bytes(made_up[:32]) >> (256 - SALT_BITS))
        key = mechanism.hmac(self._secret, made_up)
        return ScramCredential(salt, key, key, LEAST_ITERATIONS)


class _Begun(NamedTuple):
    """What the last message is checked against."""

    name: str
    header: bytes
    nonce: bytes
    messages: bytes
    credential: ScramCredential


class ScramServer:
    """One login by SCRAM. `nonce` is the server's part of the nonce: random, and used once."""

    def __init__(self, mechanism: ScramMechanism, credential_of: CredentialOf, unknown: Unknown, nonce: bytes) -> None:
        self.username: str | None = None
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._unknown = unknown
        self._nonce = nonce
        self._begun: _Begun | None = None

    def evaluate(self, token: bytes) -> bytes:
        """Returns the answer to the client's first or last message. Raises LoginRefused."""
        if len(token) > LONGEST_MESSAGE:
            raise LoginRefused(f"the message has more than {LONGEST_MESSAGE} bytes")
        if self._begun is None:
            return self._first(token)
        begun, self._begun = self._begun, None
        return self._final(token, begun)

    def _first(self, token: bytes) -> bytes:
        message = _first_form().fullmatch(token)
        if message is None:
            raise LoginRefused("the first message is not one of SCRAM")
        name = _unescaped(message["name"])
        if message["authzid"] is not None and _unescaped(message["authzid"]) != name:
            raise LoginRefused("another authorization id than the user", OTHER_IDENTITY)
        if b"tokenauth=true" in message["extensions"].lower().split(b","):
            raise LoginRefused("the client has a delegation token, which Odradek does not support")
        made_up = self._unknown.credential(self._mechanism, name)
        credential = self._credential_of(name) or made_up
        if credential.iterations < LEAST_ITERATIONS:
            raise LoginRefused(f"the stored credential has less than {LEAST_ITERATIONS} iterations")
        nonce = message["nonce"] + self._nonce
        answer = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(credential.salt), credential.iterations)
        self._begun = _Begun(name, message["header"], nonce, message["bare"] + b"," + answer, credential)
        return answer

    def _final(self, token: bytes, begun: _Begun) -> bytes:
        message = _final_form().fullmatch(token)
        if message is None:
            raise LoginRefused("the last message is not one of SCRAM")
        if message["channel"] != base64.b64encode(begun.header):
            raise LoginRefused("the channel of the last message is not that of the first")
        if message["nonce"] != begun.nonce:
            raise LoginRefused("the nonce of the last message is not that of the first")
        mechanism, credential = self._mechanism, begun.credential
        signed = begun.messages + b"," + message["bare"]
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = base64.b64decode(message["proof"])
        if len(proof) != mechanism.key_bytes or base64.b64encode(proof) != message["proof"]:
            raise LoginRefused("the proof has a wrong form")
        client_key = bytes(ours ^ theirs for ours, theirs in zip(signature, proof, strict=True))
        if not mechanism.are_equal(mechanism.hash(client_key), credential.stored_key):
            raise LoginRefused("no such user, or a wrong password")
        self.username = begun.name
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, signed))


class ScramLogins:
    """All logins by one mechanism. `source` draws the nonces."""

    def __init__(
        self, mechanism: ScramMechanism, stored: StoredCredentials, unknown: Unknown, source: random.Random
    ) -> None:
        self._mechanism = mechanism
        self._stored = stored
        self._unknown = unknown
        self._source = source

    def new_server(self) -> ScramServer:
        return ScramServer(self._mechanism, self._credential_of, self._unknown, new_nonce(self._source))

    def _credential_of(self, user: str) -> ScramCredential | None:
        of_user = self._stored.get(user)
        return None if of_user is None else of_user.get(self._mechanism.name)


def _unescaped(name: bytes) -> str:
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")


@cache
def _first_form() -> re.Pattern[bytes]:
    return re.compile(
        rb"(?P<header>n,(?:a=(?P<authzid>" + _NAME + rb"))?,)"
        rb"(?P<bare>n=(?P<name>" + _NAME + rb"),r=(?P<nonce>" + _NONCE + rb")(?P<extensions>" + _EXTENSIONS + rb"))"
    )


@cache
def _final_form() -> re.Pattern[bytes]:
    return re.compile(
        rb"(?P<bare>c=(?P<channel>" + _BASE64 + rb"),r=(?P<nonce>" + _NONCE + rb")" + _EXTENSIONS + rb"),"
        rb"p=(?P<proof>" + _BASE64 + rb")"
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
