"""Notices that the event loop of a broker stands still while a client of this process waits to be accepted: a blocking
client on that loop waits for a broker that cannot answer, and gives up after seconds with an error that says nothing.

(A) One thread watches the loops of all brokers of the process, and ends LINGER_S after the last of them: a thread for
    each of a thousand brokers would cost more than its use. It is a bare one, which nobody joins, and which those who
    count the threads of `threading` do not find. Every LOOK_S it asks each loop for a turn; a loop that has
    not taken it for STILL_S stands still.
(B) A loop that is merely slow is no news. It is when a connection to one of its brokers waits in the accept queue whose
    other end belongs to this process: the kernel lists both (/proc/net/tcp), and a socket in the queue has no inode.
    Clients of other processes wait without harm; they are served when the loop goes on.
(C) It is logged at once, since the loop may never go on, with the line at which the loop stands; and it goes with a
    test that fails, as a note (failures.py).
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import inspect
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import structlog

from odradek.broker.logging.quiet_logs import OF_KIT
from odradek.testing.opening import ANOTHER_LOOP

LOOK_S = 0.25
LINGER_S = 1.0
STILL_S = 1.0
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
LISTEN, OF_NOBODY = "0A", 0
COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
ADVICE = (
    "a blocking client cannot be served by the event loop that it blocks: use BrokerThread, or call it in a thread "
    "(asyncio.to_thread)"
)

NOT_RUN = "no line: nobody runs it"

log = structlog.get_logger(OF_KIT)


class Socket(NamedTuple):
    """A line of the kernel's tables."""

    port: int
    other_port: int
    state: str
    inode: int


class WatchedLoop:
    """The loop of one broker, or of the brokers of a cluster. `ports` returns where they listen."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ports: Callable[[], set[int]], now_s: float) -> None:
        self.ports = ports
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._asked_s = now_s
        self._has_answered = True
        self._is_noted = False
        self._notes: list[str] = []

    def notes(self) -> list[str]:
        """See Witness."""
        return self._notes

    def look(self, now_s: float) -> None:
        """Asks for a turn, or looks who waits if the last one was not taken for long."""
        if self._has_answered:
            self._has_answered, self._is_noted, self._asked_s = False, False, now_s
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._answer)
        elif now_s - self._asked_s >= STILL_S and not self._is_noted:
            with contextlib.suppress(OSError):  # no file can be opened
                self._is_noted = self._keeps_own_client_waiting()
            if self._is_noted:
                self._note(now_s - self._asked_s)

    def _answer(self) -> None:
        self._has_answered = True

    def _keeps_own_client_waiting(self) -> bool:
        """(B)."""
        ports, sockets = self.ports(), _sockets()
        waiting = {each.other_port for each in sockets if each.port in ports and _waits(each)}
        clients = {each.inode for each in sockets if each.port in waiting and each.other_port in ports}
        return bool(clients & _own_inodes())

    def _note(self, seconds: float) -> None:
        """(C)."""
        is_running = self._loop.is_running()
        where, advice = (_line_of(self._thread_id), ADVICE) if is_running else (NOT_RUN, ANOTHER_LOOP)
        self._notes.append(
            f"the event loop of the broker stood still for more than {seconds:.1f} s at {where}, while a client of "
            f"this process waited for a connection: {advice}"
        )
        log.warning("event loop stands still while client connects", seconds=round(seconds, 1), at=where, advice=advice)


class StillLoops:
    """The watched loops of the process, and the thread that watches them (A). A forked process has neither, and a lock
    of its own: the thread may have held the lock at that moment.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[WatchedLoop, None] = {}
        self._last_used_s = 0.0
        self.has_thread = False

    @contextlib.contextmanager
    def watched(self, ports: Callable[[], set[int]]) -> Iterator[WatchedLoop]:
        """Watches the running loop."""
        loop = WatchedLoop(asyncio.get_running_loop(), ports, time.monotonic())
        with self._lock:
            self._watched[loop] = None
            if not self.has_thread:
                self.has_thread = True
                _thread.start_new_thread(self._watch, ())
        try:
            yield loop
        finally:
            with self._lock:
                self._watched.pop(loop, None)
                self._last_used_s = time.monotonic()

    def _watch(self) -> None:
        while self._is_used():
            for loop in tuple(self._watched):
                loop.look(time.monotonic())
            time.sleep(LOOK_S)

    def _is_used(self) -> bool:
        with self._lock:
            self.has_thread = bool(self._watched) or time.monotonic() - self._last_used_s < LINGER_S
            return self.has_thread


def _waits(server_end: Socket) -> bool:
    return server_end.inode == OF_NOBODY and server_end.state != LISTEN


def _sockets() -> list[Socket]:
    """Returns all sockets of TCP; nothing where the kernel does not list them."""
    found = []
    for table in TABLES:
        with contextlib.suppress(FileNotFoundError), open(table, encoding="ascii") as lines:
            next(lines)
            for line in lines:
                _, local, remote, state, *others = line.split()
                found.append(Socket(_port(local), _port(remote), state, int(others[5])))
    return found


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)


def _own_inodes() -> set[int]:
    """Returns the inodes of this process's sockets."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed just now
            target = os.readlink(f"/proc/self/fd/{descriptor}")
            if target.startswith("socket:["):
                found.add(int(target[len("socket:[") : -1]))
    return found


def _line_of(thread_id: int) -> str:
    """Returns FILE:LINE of the coroutine in which the thread of a loop stands: the innermost one."""
    frame = sys._current_frames().get(thread_id)
    while frame is not None and not frame.f_code.co_flags & COROUTINE:
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


STILL_LOOPS = StillLoops()
