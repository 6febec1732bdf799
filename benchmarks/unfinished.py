"""Clients that begin frames, do not finish them, and connect again as soon as the broker ends them."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import time
from collections.abc import Callable

from benchmarks import wire
from odradek.protocol.messages.sasl import SaslAuthenticateRequest

POLL_MS = 50
LOGIN_BYTES, LOGIN_MISSING_BYTES = 500_000, 5_000
FRAME_BYTES = 99_000_000
OTHER_ADDRESS = "127.0.0.2"
"""Not that of the healthy client."""


def unfinished_login() -> bytes:
    """A SaslAuthenticate that lacks its end."""
    frame = wire.framed(SaslAuthenticateRequest(auth_bytes=bytes(LOGIN_BYTES)), 1)
    return struct.pack(">i", LOGIN_BYTES) + frame[4 : 4 + LOGIN_BYTES - LOGIN_MISSING_BYTES]


def unfinished_produce() -> bytes:
    """A Produce that lacks its last byte. What its API is makes it pass as one."""
    return struct.pack(">ihhih", FRAME_BYTES, 0, 7, 1, -1) + bytes(FRAME_BYTES - 11)


class _Unfinished:
    """One client; `connect` again when it has ended."""

    __slots__ = ("left", "socket")

    def __init__(self, port: int, beginning: bytes, address: str) -> None:
        self.socket = socket.socket()
        self.socket.bind((address, 0))
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.socket.connect(("127.0.0.1", port))
        self.left = memoryview(beginning)

    def send(self) -> int:
        """Sends what the socket takes. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            sent = self.socket.send(self.left)
            self.left = self.left[sent:]
            return sent
        return 0

    @property
    def events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self.left else 0)


def hold(connections: int, address: str = OTHER_ADDRESS) -> Callable[[int, bytes, float], int]:
    """Returns a strike by so many clients, which end with its time."""

    def strike(port: int, beginning: bytes, until: float) -> int:
        clients: dict[int, _Unfinished] = {}
        poll = select.poll()

        def connect() -> None:
            client = _Unfinished(port, beginning, address)
            clients[client.socket.fileno()] = client
            poll.register(client.socket, client.events)

        for _ in range(connections):
            connect()
        sent = 0
        while time.monotonic() < until:
            for descriptor, events in poll.poll(POLL_MS):
                client = clients[descriptor]
                try:
                    if events & ~select.POLLOUT:
                        raise ConnectionError
                    sent += client.send()
                    poll.modify(descriptor, client.events)
                except OSError:
                    poll.unregister(descriptor)
                    del clients[descriptor]
                    client.socket.close()
                    connect()
        for client in clients.values():
            client.socket.close()
        return sent

    return strike
