"""Connects again and again over TLS, in a process of its own.

    python -m benchmarks.handshakes PORT SSL|SASL_SSL AUTHORITY.pem SECONDS

Each of THREADS connects, sends an ApiVersions, logs in by SCRAM-SHA-512 if the protocol is SASL_SSL, and closes the
connection; no session is resumed. After a second of warm-up it prints "measuring", and at the end one JSON object: the
connections, and the seconds that they took.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import sys
import threading
import time

from benchmarks import wire
from odradek.broker.security.sasl.client import ClientCredentials, tokens
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from odradek.testing.security import DEFAULT_MECHANISM, DEFAULT_PASSWORD, DEFAULT_USER

THREADS = 4
WARM_UP_S = 1.0
LOGIN = ClientCredentials(DEFAULT_MECHANISM, DEFAULT_USER, DEFAULT_PASSWORD)
HELLO = wire.framed(ApiVersionsRequest(), 0)
HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2


class Connecting:
    """Threads that connect until they are stopped."""

    def __init__(self, port: int, protocol: str, authority: str) -> None:
        self._port = port
        self._has_login = protocol == "SASL_SSL"
        self._context = ssl.create_default_context(cafile=authority)
        self._done = [0] * THREADS
        self._failures: list[BaseException] = []
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(THREADS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def count(self) -> int:
        """Returns how many connections there have been. Raises what one of them failed with."""
        if self._failures:
            self.stop()
            raise self._failures[0]
        return sum(self._done)

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        try:
            while not self._is_over.is_set():
                self._connect()
                self._done[number] += 1
        except BaseException as failure:
            self._failures.append(failure)

    def _connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self._port), 30)
        with self._context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            connection.sendall(HELLO)
            wire.receive(connection)
            if self._has_login:
                log_in(connection)


def log_in(connection: ssl.SSLSocket) -> None:
    """Raises RuntimeError if the login is refused."""
    handshake = SaslHandshakeRequest(mechanism=LOGIN.mechanism)
    wire.call_on(connection, handshake, SaslHandshakeResponse, HANDSHAKE_VERSION)
    login = tokens(LOGIN, os.urandom(16).hex().encode())
    token = next(login)
    try:
        while True:
            request = SaslAuthenticateRequest(auth_bytes=token)
            answer = wire.call_on(connection, request, SaslAuthenticateResponse, AUTHENTICATE_VERSION)
            if answer.error_code:
                raise RuntimeError(f"the login is refused: {answer.error_message}")
            token = login.send(bytes(answer.auth_bytes))
    except StopIteration:
        return


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handshakes")
    parser.add_argument("port", type=int)
    parser.add_argument("protocol", choices=("SSL", "SASL_SSL"))
    parser.add_argument("authority")
    parser.add_argument("seconds", type=float)
    arguments = parser.parse_args()
    connecting = Connecting(arguments.port, arguments.protocol, arguments.authority)
    connecting.start()
    time.sleep(WARM_UP_S)
    before, began = connecting.count(), time.perf_counter()
    print("measuring", flush=True)
    time.sleep(arguments.seconds)
    count, seconds = connecting.count() - before, time.perf_counter() - began
    connecting.stop()
    print(json.dumps({"connections": count, "seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
