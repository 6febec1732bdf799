"""A client that connects anew for each request, and measures how long that takes.

    python -m benchmarks.newcomer PORT [AUTHORITY.pem]

A round trip is: connect, shake hands if an authority is given, send an ApiVersions, receive the response, close. It is
reported as by healthy_client.py, ten times a second.
"""

from __future__ import annotations

import socket
import ssl
import sys

from benchmarks import wire
from benchmarks.crowds import request
from benchmarks.healthy_client import TIMEOUT_S, serve

INTERVAL_S = 0.1
"""So that one slow round trip does not delay all that follow."""


class Newcomer:
    def __init__(self, port: int, tls: ssl.SSLContext | None) -> None:
        self._port = port
        self._tls = tls
        self._request = request()

    def reconnect(self) -> None:
        """No effect: every round trip opens a new connection."""

    def round_trip(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return self._ask(plain)
            with self._tls.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
                return self._ask(connection)

    def _ask(self, connection: socket.socket) -> None:
        connection.sendall(self._request)
        wire.receive(connection)


def main() -> None:
    port, *authority = sys.argv[1:]
    tls = ssl.create_default_context(cafile=authority[0]) if authority else None
    serve(Newcomer(int(port), tls), INTERVAL_S)


if __name__ == "__main__":
    main()
