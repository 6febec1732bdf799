"""A client that produces 100 bytes, 60 KB and 900 KB in turn, ten times a second, and measures each round trip.

    python -m benchmarks.healthy_user PORT TOPIC [AUTHORITY]

With the file of an authority's certificate it connects by TLS and logs in by SCRAM (secured.py). It reports as
healthy_client.py says, and connects only once.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import sys

from benchmarks import wire
from benchmarks.healthy_client import PRODUCE, PRODUCE_VERSION, OneConnection, expect_success, produce_of, serve
from odradek.broker.security.sasl.client import ClientCredentials, tokens
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from odradek.testing.security import DEFAULT_MECHANISM, DEFAULT_PASSWORD, DEFAULT_USER

INTERVAL_S = 0.1
SIZES = (100, 60_000, 900_000)
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 1
NONCE_BYTES = 18


class User(OneConnection):
    """Each round trip produces the next size."""

    def __init__(self, port: int, topic: str, authority: str = "") -> None:
        self._authority = authority
        self._requests = itertools.cycle([produce_of(topic, size) for size in SIZES])
        super().__init__(port)

    def reconnect(self) -> None:
        super().reconnect()
        if self._authority:
            context = ssl.create_default_context(cafile=self._authority)
            self._connection = context.wrap_socket(self._connection, server_hostname="localhost")
            log_in(self._connection)

    def close(self) -> None:
        self._connection.close()

    def round_trip(self) -> None:
        self._connection.sendall(next(self._requests))
        expect_success(wire.decoded(wire.receive(self._connection), PRODUCE, PRODUCE_VERSION))


def log_in(connection: socket.socket) -> None:
    """Logs in as the user of the secured brokers. Raises Refused."""
    handshake = SaslHandshakeRequest(mechanism=DEFAULT_MECHANISM)
    expect_success(wire.call_on(connection, handshake, SaslHandshakeResponse, HANDSHAKE_VERSION))
    credentials = ClientCredentials(DEFAULT_MECHANISM, DEFAULT_USER, DEFAULT_PASSWORD)
    login = tokens(credentials, os.urandom(NONCE_BYTES).hex().encode())
    token = next(login)
    while True:
        request = SaslAuthenticateRequest(auth_bytes=token)
        answer = wire.call_on(connection, request, SaslAuthenticateResponse, AUTHENTICATE_VERSION)
        expect_success(answer)
        try:
            token = login.send(answer.auth_bytes)
        except StopIteration:
            return


if __name__ == "__main__":
    serve(User(int(sys.argv[1]), *sys.argv[2:]), INTERVAL_S)
