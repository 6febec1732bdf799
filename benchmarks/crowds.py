"""Attacks by connecting: crowds of connections from another address than the healthy client's, which come and go.

Each of them is the work of one process that does only this. The client beside it (newcomer.py) connects anew for every
request, from an address of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Callable, Iterator

from benchmarks import wire
from odradek.protocol.messages.api_versions import ApiVersionsRequest

ATTACKER = "127.0.0.2"
CONNECT_TIMEOUT_S = 1
IP_BIND_ADDRESS_NO_PORT = 24
"""Of Linux: the port is chosen by the connection, so those of closed connections can be used again after a second."""
GARBAGE = b"\x00\xff garbage instead of a hello \xff" * 8
AT_ONCE = 400
"""Connections that one attack holds: below odradek.max.handshakes.per.ip."""

Strike = Callable[[int, bytes, float], int]


def client_hello() -> bytes:
    """Returns what a client with TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()


def garbage() -> bytes:
    return GARBAGE


def request() -> bytes:
    """Returns a small request that any broker answers."""
    return wire.framed(ApiVersionsRequest(), 0)


def connect_and_close(port: int, greeting: bytes, until: float) -> int:
    """Connects, sends the greeting and closes, again and again. Returns the number of bytes sent."""
    return sum(_each(port, greeting, until, lambda connection: connection.close()))


def connect_and_reset(port: int, greeting: bytes, until: float) -> int:
    """The same, but closes with a reset, so that no port is used up."""

    def reset(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        connection.close()

    return sum(_each(port, greeting, until, reset))


def connect_in_crowds(port: int, greeting: bytes, until: float) -> int:
    """Connects AT_ONCE times, sends the greeting on each, and then closes all, again and again."""
    held: list[socket.socket] = []

    def hold(connection: socket.socket) -> None:
        held.append(connection)
        if len(held) >= AT_ONCE:
            let_go()

    def let_go() -> None:
        while held:
            held.pop().close()

    try:
        return sum(_each(port, greeting, until, hold))
    finally:
        let_go()


def _each(port: int, greeting: bytes, until: float, then: Callable[[socket.socket], object]) -> Iterator[int]:
    for _ in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
        connection = socket.socket()
        try:
            connection.settimeout(CONNECT_TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((ATTACKER, 0))
            connection.connect(("127.0.0.1", port))
            if greeting:
                connection.sendall(greeting)
        except OSError:  # the queue is full, or the broker has closed it
            connection.close()
            continue
        then(connection)
        yield len(greeting)
