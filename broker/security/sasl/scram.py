"""SCRAM's mechanisms, and the credentials that the broker keeps of a user: neither the password nor what proves it.

    (A) A credential has a salt, the two keys and the number of iterations. As text, as Kafka stores it:
        salt=BASE64,stored_key=BASE64,server_key=BASE64,iterations=N
    (B) A mechanism has a least number of iterations, and Kafka's most. A stored credential may have more.
    (C) A salt is text of 130 random bits in base 36, as Kafka's tools make them.

The libraries of hash functions are imported when they are used: every broker imports this file.

Source: RFC 5802, RFC 7677; Kafka's `ScramFormatter` and `ScramCredentialUtils`.
"""

from __future__ import annotations

import base64
import binascii
import random
from typing import NamedTuple

LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 16384
SALT_BITS = 130
NONCE_BYTES = 24
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


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
