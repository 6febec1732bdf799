"""The client's side of PLAIN, SCRAM and OAUTHBEARER. Brokers use the first two between them.

    (A) A login is a generator: it yields each token for the server, and is sent the answer to it. It ends with the
        answer to the last one.
    (B) With SCRAM the server proves, too, that it knows the password: a login to another server fails with
        NotTheServer. The answer to the first message takes about a millisecond per 4,096 iterations; no server may ask
        for more than MOST_ITERATIONS.
    (C) With OAUTHBEARER the password is a token. A server that refuses it says why, and ends the login when the client
        has answered.

Source: RFC 4616, RFC 5802, RFC 7628; Kafka's `ScramSaslClient`.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Generator
from typing import NamedTuple

from odradek.broker.security.sasl.plain import PLAIN
from odradek.broker.security.sasl.scram import LEAST_ITERATIONS, MECHANISMS, MOST_ITERATIONS, ScramMechanism

OAUTHBEARER = "OAUTHBEARER"
Tokens = Generator[bytes, bytes, None]
_FIRST = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=([a-zA-Z0-9/+]+=*),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)


class NotTheServer(Exception):
    """The server's message is not one of the mechanism, or does not prove that it knows the password (B)."""


class ClientCredentials(NamedTuple):
    """Who logs in, and how."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"ClientCredentials({self.mechanism}, {self.username})"


def tokens(credentials: ClientCredentials, nonce: bytes) -> Tokens:
    """Returns one login (A). `nonce` is random and used once. Raises NotTheServer."""
    if credentials.mechanism == PLAIN:
        return _plain(credentials)
    if credentials.mechanism == OAUTHBEARER:
        return _bearer(credentials)
    return _scram(MECHANISMS[credentials.mechanism], credentials, nonce)


def _plain(credentials: ClientCredentials) -> Tokens:
    yield b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode()


def _bearer(credentials: ClientCredentials) -> Tokens:
    refused = yield b"n,,\x01auth=Bearer " + credentials.password.encode() + b"\x01\x01"
    if refused:
        yield b"\x01"


def _scram(mechanism: ScramMechanism, credentials: ClientCredentials, nonce: bytes) -> Tokens:
    name = credentials.username.replace("=", "=3D").replace(",", "=2C")
    bare = b"n=" + name.encode() + b",r=" + nonce
    challenge = yield b"n,," + bare
    message = _FIRST.fullmatch(challenge)
    if message is None or not message[1].startswith(nonce) or message[1] == nonce:
        raise NotTheServer("the server's first message is not one of SCRAM")
    iterations = int(message[3])
    if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
        raise NotTheServer(f"the server asks for {iterations} iterations, not {LEAST_ITERATIONS} to {MOST_ITERATIONS}")
    salted = mechanism.salted_password(credentials.password, _decoded(message[2]), iterations)
    without_proof = b"c=biws,r=" + message[1]
    signed = b",".join((bare, challenge, without_proof))
    client_key = mechanism.hmac(salted, b"Client Key")
    signature = mechanism.hmac(mechanism.hash(client_key), signed)
    proof = bytes(ours ^ theirs for ours, theirs in zip(client_key, signature, strict=True))
    last = yield without_proof + b",p=" + base64.b64encode(proof)
    expected = b"v=" + base64.b64encode(mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed))
    if not hmac.compare_digest(last.partition(b",")[0], expected):
        raise NotTheServer("the server did not prove that it knows the password")


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise NotTheServer("the server's salt is not base64") from None
