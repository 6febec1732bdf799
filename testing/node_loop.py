"""An event loop for one node of a cluster within this process. Everything that the node does runs on it as on a loop of
its own; it runs on top of the loop that was running when it was created. From outside, the node can be stopped and
ended like a process:

    pause     as SIGSTOP: nothing of the node runs. What falls due is held, in order. Its connections are not read, and
              connections to it are accepted but not served, as the system does for a stopped process.
    resume    as SIGCONT: what was held runs, then its connections are read again.
    end       as SIGKILL: nothing of the node ever runs again. What it has handed to the system remains, the rest is
              lost; its connections and listening sockets are closed, as the system closes those of a dead process.

What differs from a process:

    (A) A function that runs in a thread runs to its end. Only its result is held, or lost; `all_gone` waits for
        it. A child process of a node that is paused runs on.
    (B) Responses that the node has handed to a transport before a pause are still sent.
    (C) The coroutines of a node that has ended are closed, so their `finally` blocks run, within `end`. What they try
        to start never runs.
    (D) A call of `pause` or `end` by the node itself takes effect when its current callback returns.

Time, and when the node takes a turn, are the business of the loop below, or of the schedule that is given as `time`.

While a callback of the node runs, this loop is the running one. A future of the node can only be awaited by the node
itself; `run` is the way in for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Any, TypeVar, TypeVarTuple, cast

from odradek.testing.gates import Gate, GatedServer, SubprocessGate
from odradek.testing.network import Network, socket_address
from odradek.testing.virtual_time.schedule import Schedule

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class NodeEnded(Exception):
    """The node has ended before it could return a result."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"node {node_id} has ended")


class _Timer(asyncio.TimerHandle):
    """`timer` is the one of the loop's time. Unlike its base, it is equal to itself only."""

    __slots__ = ("timer",)

    timer: asyncio.TimerHandle

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class NodeLoop(asyncio.AbstractEventLoop):
    """See the head of this file. `network` decides which connections are read; it knows the node as `node_id`. `time`:
    where it has its time, timers and turns from, by default the loop below.
    """

    def __init__(self, node_id: int, network: Network, time: Schedule | None = None) -> None:
        self.node_id = node_id
        self.network = network
        self.is_paused = False
        self.has_ended = False
        self.gates: dict[Gate, None] = {}
        self.servers: dict[GatedServer, None] = {}
        self._below = asyncio.get_running_loop()
        self._time: Schedule | asyncio.AbstractEventLoop = time or self._below
        self._context = copy_context()
        self._ready: deque[asyncio.Handle] = deque()
        self._is_scheduled = False
        self._is_catching_up = False
        """Whether something that was held during a pause is still to run."""
        self._held_events = 0
        """How many calls of `notify` wait among the callbacks."""
        self._callers: dict[asyncio.Future[Any], None] = {}
        """Futures of the loop below that wait for this node."""
        self._timers: dict[_Timer, None] = {}
        self.readers: dict[Any, asyncio.Handle] = {}
        self.writers: dict[Any, asyncio.Handle] = {}
        self.processes: dict[SubprocessGate, None] = {}
        self._last_closed: asyncio.Future[None] | None = None
        self.pending: dict[asyncio.Future[Any], bool] = {}
        """What the node awaits of the loop below, and whether that ends without the node or the passage of time."""
        self._undelivered: dict[Callable[[], None], None] = {}
        """What delivers the results of the loop below that the node has not heard of yet."""

    # --- for those who control the node -------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        """Whether what happens to the node must wait its turn: it is paused, or not done with what was held."""
        return self.is_paused or self._is_catching_up

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine as the node, for a caller on the loop below. Raises NodeEnded if the node ends meanwhile."""
        if self.has_ended:
            coroutine.close()
            raise NodeEnded(self.node_id)
        inside = self.create_task(coroutine)
        outside: asyncio.Future[T] = self._below.create_future()
        inside.add_done_callback(lambda done: _settle(outside, done))
        self._callers[outside] = None
        try:
            return await outside
        except asyncio.CancelledError:
            inside.cancel()
            raise
        finally:
            del self._callers[outside]

    def call(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Calls a function at once, as the node."""
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return function(*args)
        finally:
            events._set_running_loop(before)

    def pause(self) -> None:
        """See the head of this file."""
        self.is_paused = True
        self.network.paused(self.node_id)
        for descriptor in self.readers:
            self._below.remove_reader(descriptor)
        for descriptor in self.writers:
            self._below.remove_writer(descriptor)
        for gate in self.gates:
            gate.refresh()

    def resume(self) -> None:
        """See the head of this file."""
        if not self.is_paused:
            return
        self.is_paused = False
        self.network.resumed(self.node_id)
        self._is_catching_up = True
        self.call_soon(self._caught_up)

    def _caught_up(self) -> None:
        if self.is_paused:
            return
        if self._held_events:
            self.call_soon(self._caught_up)
            return
        self._is_catching_up = False
        for descriptor, handle in self.readers.items():
            self._below.add_reader(descriptor, self._run, handle)
        for descriptor, handle in self.writers.items():
            self._below.add_writer(descriptor, self._run, handle)
        for gate in list(self.gates):
            gate.refresh()

    def end(self) -> None:
        """See the head of this file."""
        if self.has_ended:
            return
        self.has_ended = True
        tasks = sorted(asyncio.all_tasks(self), key=asyncio.Task.get_name)
        self._ready.clear()  # it may have had the only references to some of them
        for deliver in list(self._undelivered):
            deliver()
        for timer in self._timers:
            timer.timer.cancel()
        self._timers.clear()
        for descriptor in list(self.readers):
            self.remove_reader(descriptor)
        for descriptor in list(self.writers):
            self.remove_writer(descriptor)
        for server in list(self.servers):
            server.close()
        for gate in list(self.gates):
            gate.abort()
        for process in self.processes:
            process.kill()
        for caller in self._callers:
            if not caller.done():
                caller.set_exception(NodeEnded(self.node_id))
        for task in tasks:
            with contextlib.suppress(Exception):  # (C); the one that runs now cannot be closed (D)
                self.call(_close, cast(Coroutine[Any, Any, Any], task.get_coro()))

    async def all_gone(self) -> None:
        """After `end`: waits for the functions that run in threads (A), and until all connections and listening sockets
        are closed.
        """
        while self.pending:
            await asyncio.wait(list(self.pending))
        if self.gates:
            self._last_closed = self._below.create_future()
            await self._last_closed

    def connection_closed(self, gate: Gate) -> None:
        """A connection of the node has been closed."""
        self.gates.pop(gate, None)
        self.network.closed(gate)
        if self._last_closed is not None and not self.gates:
            self._last_closed.set_result(None)
            self._last_closed = None

    # --- callbacks ----------------------------------------------------------------------------------------------

    def time(self) -> float:
        """See asyncio."""
        return self._time.time()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._below.call_soon_threadsafe(self._add, handle, context=self._context)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        timer = _Timer(when, callback, args, self, context)
        timer.timer = self._time.call_at(when, self._due, timer, context=self._context)
        if self.has_ended:
            timer.timer.cancel()
        else:
            self._timers[timer] = None
        return timer

    def _timer_handle_cancelled(self, timer: _Timer) -> None:
        """Called by asyncio."""
        self._timers.pop(timer, None)
        timer.timer.cancel()

    def _due(self, timer: _Timer) -> None:
        self._timers.pop(timer, None)
        self._add(timer)

    def _add(self, handle: asyncio.Handle) -> None:
        if not self.has_ended:
            self._ready.append(handle)
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._time.call_soon(self._work, context=self._context)

    def _work(self) -> None:
        """Runs what is ready now, as one turn of a loop."""
        self._is_scheduled = False
        ready = self._ready
        before, hooks = events._get_running_loop(), sys.get_asyncgen_hooks()
        events._set_running_loop(self)
        sys.set_asyncgen_hooks(None, self._finalize)
        try:
            for _ in range(len(ready)):
                if self.is_paused or not ready:
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(before)
        if ready and not self.is_paused:
            self._schedule()

    def _finalize(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An asynchronous generator was dropped."""
        if not self.has_ended:
            self.create_task(generator.aclose())

    def _run(self, handle: asyncio.Handle) -> None:
        """Runs a callback of the loop below: a socket takes more."""
        if not self.has_ended and not handle._cancelled:
            self._may_have_sent()
            self.call(handle._run)

    def _may_have_sent(self) -> None:
        """The node, or a thread of it, may have sent a file, which no transport notices."""
        for gate in self.gates:
            gate.has_sent = True

    def notify(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Something has happened to the node: calls back at once, or later if the node is held, or never."""
        if self.has_ended:
            return
        if self.is_held:
            self._held_events += 1
            self.call_soon(self._notify_now, callback, args)
        else:
            self.call(callback, *args)

    def _notify_now(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._held_events -= 1
        callback(*args)

    def soon_below(self, callback: Callable[[], object]) -> None:
        """Calls back on the loop below, whatever the node does."""
        self._below.call_soon(callback, context=self._context)

    # --- futures, tasks, threads --------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """See asyncio."""
        if self.has_ended:
            coro.close()
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """See asyncio."""
        if self.has_ended:
            return cast(asyncio.Future[T], self.create_future())
        return self.below(self._below.run_in_executor(executor, func, *args))

    def below(
        self, awaitable: Awaitable[T], *, undo: Callable[[T], object] | None = None, is_work: bool = True
    ) -> asyncio.Future[T]:
        """Awaits something of the loop below for the node. `undo(result)` is called if nobody waits any more.
        `is_work`: whether it ends without the node or the passage of time.
        """
        inner: asyncio.Future[T] = asyncio.ensure_future(awaitable, loop=self._below)
        outer: asyncio.Future[T] = self.create_future()
        context = copy_context()

        def is_done(inner: asyncio.Future[T]) -> None:
            self.pending.pop(inner, None)
            self._may_have_sent()
            if self.has_ended:
                deliver()
            else:
                self._undelivered[deliver] = None
                self._add(asyncio.Handle(deliver, (), self, context))

        def deliver() -> None:
            self._undelivered.pop(deliver, None)
            if not outer.done() and not self.has_ended:
                _settle(outer, inner)
            elif undo is not None and not _has_failed(inner):
                undo(inner.result())

        def is_given_up(outer: asyncio.Future[T]) -> None:
            if outer.cancelled() and isinstance(inner, asyncio.Task):  # a thread cannot be given up
                inner.cancel()

        self.pending[inner] = is_work
        inner.add_done_callback(is_done)
        outer.add_done_callback(is_given_up)
        return outer

    # --- network ------------------------------------------------------------------------------------------------

    async def create_server(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], *args: Any, **options: Any
    ) -> Any:
        """See asyncio."""
        creating = self._below.create_server(lambda: Gate(self, protocol_factory()), *args, **options)
        server = GatedServer(self, await self.below(creating, undo=lambda created: created.close()))
        self.servers[server] = None
        for listening in server.sockets:
            self.network.listens(self.node_id, socket_address(listening.getsockname()))
        return server

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> tuple[Any, Any]:
        """See asyncio. Waits while the network does not let the node connect to that address."""
        await self.network.way_to(self, (host, port))
        purpose = self.network.purpose.get()
        gate = Gate(self, protocol_factory(), purpose=purpose, is_outgoing=True)
        return await self._connected(gate, self._below.create_connection(lambda: gate, host, port, **options))

    async def getaddrinfo(self, *args: Any, **options: Any) -> Any:
        """See asyncio."""
        return await self.below(self._below.getaddrinfo(*args, **options))

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], sock: socket.socket
    ) -> tuple[Any, Any]:
        """See asyncio."""
        gate = Gate(self, protocol_factory())
        return await self._connected(gate, self._below.connect_accepted_socket(lambda: gate, sock))

    async def _connected(self, gate: Gate, connecting: Coroutine[Any, Any, tuple[Any, Any]]) -> tuple[Any, Any]:
        """Connects the gate. uvloop forgets a connection that is given up right after it was made: its protocol never
        hears that it is lost.
        """
        inner = self._below.create_task(connecting)
        inner.add_done_callback(lambda done: self.connection_closed(gate) if _has_failed(done) else None)
        await self.below(inner, undo=lambda _: gate.abort())
        return gate.transport, gate.protocol

    def add_reader(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, None)
        self.readers[fd] = handle
        if not self.is_held:
            self._below.add_reader(fd, self._run, handle)

    def remove_reader(self, fd: Any) -> bool:
        """See asyncio."""
        was_read = self.readers.pop(fd, None) is not None
        if was_read:  # else it may be another's
            self._below.remove_reader(fd)
        return was_read

    def add_writer(self, fd: Any, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, None)
        self.writers[fd] = handle
        if not self.is_held:
            self._below.add_writer(fd, self._run, handle)

    def remove_writer(self, fd: Any) -> bool:
        """See asyncio."""
        self._below.remove_writer(fd)
        return self.writers.pop(fd, None) is not None

    async def subprocess_exec(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.SubprocessProtocol], *args: Any, **options: Any
    ) -> tuple[Any, Any]:
        """See asyncio."""
        starting = self._below.subprocess_exec(lambda: SubprocessGate(self, protocol_factory()), *args, **options)
        _, gate = await self.below(starting, undo=lambda started: started[1].kill())
        self.processes[gate] = None
        return gate.transport, gate.protocol

    def process_ended(self, gate: SubprocessGate) -> None:
        """A child process has exited and its pipes are closed."""
        self.processes.pop(gate, None)

    # --- what asyncio itself asks for ---------------------------------------------------------------------------

    def is_running(self) -> bool:
        """See asyncio."""
        return not self.has_ended

    def is_closed(self) -> bool:
        """See asyncio."""
        return self.has_ended

    def get_debug(self) -> bool:
        """See asyncio."""
        return self._below.get_debug()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio. What a node leaves behind that has ended is no news."""
        if not self.has_ended:
            self._below.call_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""
        self._below.default_exception_handler(context)


def _close(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Closes a coroutine, and those that it would await: if it has not begun, nobody else closes them."""
    awaited = []
    if inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
        awaited = [value for value in inspect.getcoroutinelocals(coroutine).values() if inspect.iscoroutine(value)]
    coroutine.close()
    for each in awaited:
        each.close()


def _has_failed(done: asyncio.Future[Any]) -> bool:
    """Whether it has no result."""
    return done.cancelled() or done.exception() is not None


def _settle(waiting: asyncio.Future[T], done: asyncio.Future[T]) -> None:
    """Copies the outcome of one future to another."""
    if waiting.done():
        return
    if done.cancelled():
        waiting.cancel()
    elif (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())


def node_loop(node_id: int, network: Network, time: Schedule | None = None) -> NodeLoop:
    """Creates a loop. asyncio's methods for signals, pipes and datagrams are left out."""
    return NodeLoop(node_id, network, time)  # type: ignore[abstract]
