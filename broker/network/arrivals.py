"""Connections that the system has established, and that the broker has yet to take.

The system hands them out in the order of their arrival, also those whose clients have gone again. An event loop takes
one in a turn, or all at once, and makes a transport for each. So one process that connects and closes could keep all
others waiting behind thousands of its dead.

    (A) Each turn takes some from the queue of the system into a line in which addresses take turns (fair_line.py): more
        of them after a longer turn, so that the queue does not grow meanwhile (TAKEN_PER_MS). From one address
        MOST_WAITING may wait there, at most half of the connections that there may be descriptors for; further ones are
        closed.
    (B) If the client has gone meanwhile, the connection is closed, and that is all. Gone is who has closed its side
        before a TLS handshake; without TLS, who has done so and sent nothing: a request counts even if nobody waits for
        the answer.
    (C) The others begin, up to BEGUN_PER_TURN in a turn of the loop, and BEGUN_PER_ADDRESS for each address that waits.
    (D) One whose descriptor is above the limit for connections is closed at once, unless a client that has not logged
        in makes room for it. If the process has no descriptor left, nothing is taken for PAUSE_S.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import structlog

from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.fair_line import FairLine
from odradek.broker.network.hang_ups import hung_up

TAKEN_PER_MS = 5
LEAST_TAKEN, MOST_TAKEN = 64, 256
"""In a turn, whatever the length of the one before. To take one, and to see that its client has gone, is 0.05 to 0.1 ms
of work."""
BEGUN_PER_TURN = 16
BEGUN_PER_ADDRESS = 2
"""To begin takes ten times as long as to take. A client waits for some turns: the fewer begin in one, the shorter."""
MOST_WAITING = 16_384
PAUSE_S = 0.1
TOO_MANY, TOO_MANY_WAIT = "too many connections", "too many connections from one address wait"
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = structlog.get_logger("broker.network")


class Server(Protocol):
    """The part of the socket server that arrivals use."""

    @property
    def limits(self) -> ConnectionLimits: ...

    def make_room(self) -> bool:
        """Ends a connection whose client has not logged in; False if there is none."""

    def turned_away(self, host: str, event: str, count: int) -> None:
        """So many connections from there were above a limit, and are closed."""


class Listening(NamedTuple):
    """A listening socket, which does not block and is another's, and what makes the protocol of each connection."""

    descriptor: int
    family: int
    new_protocol: Callable[[], asyncio.BaseProtocol]
    has_tls: bool

    @contextmanager
    def socket(self) -> Iterator[socket.socket]:
        """Yields the socket. It must not be kept: it would close a descriptor that has become another's."""
        found = socket.socket(self.family, socket.SOCK_STREAM, socket.IPPROTO_TCP, self.descriptor)
        try:
            yield found
        finally:
            found.detach()


Arrived = tuple[Listening, socket.socket]


class Arrivals:
    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._listening: dict[int, Listening] = {}
        self._line: FairLine[Arrived] = FairLine()
        self._is_due = False
        self._last_taken_s = loop.time()
        self._beginning: set[asyncio.Task[None]] = set()
        self._not_begun: dict[socket.socket, None] = {}
        """Those whose task has not run yet."""
        self.gone = 0
        """How many had gone before they were taken (B)."""

    def listen(self, listening: Listening) -> None:
        """Takes the connections of a socket from now on."""
        self._listening[listening.descriptor] = listening
        with listening.socket() as its_socket:
            its_socket.listen(self._server.limits.listen_backlog)
        self._loop.add_reader(listening.descriptor, self._arrived, listening)

    def stop(self) -> None:
        """Takes no more, and closes those that have not begun. The listening sockets can be closed then."""
        for descriptor in self._listening:
            self._loop.remove_reader(descriptor)
        self._listening.clear()
        while self._line:
            self._line.take()[1].close()

    def abandon(self) -> None:
        """Closes those that have not begun, on an event loop that has ended."""
        self._listening.clear()
        while self._line:
            self._line.take()[1].close()
        while self._not_begun:
            self._not_begun.popitem()[0].close()

    async def all_begun(self) -> None:
        """Returns when none is beginning any more."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _arrived(self, listening: Listening) -> None:
        """Cases A and D. One line in the log costs more than many connections that are closed."""
        turned_away: Counter[tuple[str, str]] = Counter()
        try:
            with listening.socket() as its_socket:
                for _ in range(self._to_take()):
                    peer, address = its_socket.accept()
                    host = str(address[0])
                    excess = self._excess(peer, host)
                    if excess:
                        peer.close()
                        turned_away[host, excess] += 1
                    else:
                        self._line.add(host, (listening, peer))
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            pass
        except OSError as error:
            if error.errno not in EXHAUSTED:
                raise
            self._pause(listening, error)
        for (host, excess), count in turned_away.items():
            self._server.turned_away(host, excess, count)
        if not self._is_due:
            self._turn()

    def _to_take(self) -> int:
        """Returns how many may be taken from the queue of the system now (A)."""
        last_s, self._last_taken_s = self._last_taken_s, self._loop.time()
        return taken_after((self._last_taken_s - last_s) * 1000)

    def _excess(self, peer: socket.socket, host: str) -> str:
        """Returns which limit a connection is above; "" for none."""
        descriptors = self._server.limits.connection_descriptors
        if peer.fileno() >= descriptors and not self._server.make_room():
            return TOO_MANY
        if self._line.waiting_from(host) >= min(MOST_WAITING, descriptors // 2):
            return TOO_MANY_WAIT
        return ""

    def _pause(self, listening: Listening, error: OSError) -> None:
        """Case D."""
        log.error("no connection can be accepted", error=error.strerror)
        self._loop.remove_reader(listening.descriptor)
        self._loop.call_later(PAUSE_S, self._go_on, listening.descriptor)

    def _go_on(self, descriptor: int) -> None:
        listening = self._listening.get(descriptor)
        if listening is not None:
            self._loop.add_reader(descriptor, self._arrived, listening)

    def _turn(self) -> None:
        """Cases B and C: looks at as many as can be taken in a turn."""
        self._is_due = False
        begun = looked_at = 0
        to_begin = min(self._line.addresses * BEGUN_PER_ADDRESS, BEGUN_PER_TURN)
        while self._line and begun < to_begin and looked_at < MOST_TAKEN:
            next_ones = [self._line.take() for _ in range(min(len(self._line), to_begin - begun))]
            looked_at += len(next_ones)
            for listening, peer in self._still_there(next_ones):
                begun += 1
                self._not_begun[peer] = None
                task = self._loop.create_task(self._begin(listening, peer))
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)
        if self._line:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _still_there(self, arrived: list[Arrived]) -> Iterator[Arrived]:
        """Closes those whose clients have gone, and yields the others (B)."""
        closed = set(hung_up(peer.fileno() for _, peer in arrived))
        for listening, peer in arrived:
            if peer.fileno() in closed and (listening.has_tls or _has_sent_nothing(peer)):
                self.gone += 1
                peer.close()
            else:
                yield listening, peer

    async def _begin(self, listening: Listening, peer: socket.socket) -> None:
        del self._not_begun[peer]
        peer.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(listening.new_protocol, peer)
        except OSError:  # it has broken meanwhile
            peer.close()


def taken_after(turn_ms: float) -> int:
    """Returns how many connections may be taken in the turn after one of this length."""
    return int(min(max(turn_ms * TAKEN_PER_MS, LEAST_TAKEN), MOST_TAKEN))


def _has_sent_nothing(peer: socket.socket) -> bool:
    """Whether there is nothing to read before the end."""
    try:
        return not peer.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return True
