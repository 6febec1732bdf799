"""An asyncio event loop with virtual time: every run with the same inputs makes the same calls in the same order.

Time stands still while callbacks run. When none is ready, it jumps to the next timer. What is ready and due, and in
which order, is kept by the schedule that brokers with virtual time have, too (odradek/testing/virtual_time).

*Nodes.* Every callback belongs to the node that the context variable NODE names where the callback was scheduled, as
asyncio carries contexts along: a task of a node starts only tasks, timers and callbacks of the same node. Callbacks
without a node belong to the simulation itself.

    kill(node)      none of the node's callbacks ever runs again. Its tasks are kept, suspended where they are, until
                    `close`: were they collected, their `finally` blocks would run at a moment that depends on memory
    pause(node)     as SIGSTOP: what falls due is held, in order
    resume(node)    what was held runs now

*Threads.* `run_in_executor` starts no thread. The function runs in a later callback, and its result arrives later
still; `thread_delays` returns both delays in seconds. A node that is killed between them has done the work and never
hears of it.

*Network.* `create_server` and `create_connection` are those of the `network` (network.py).

A callback that raises ends up in `failures`, unless it raises `ProcessEnded`: then its node was killed in the midst of
it. A simulation that does not come to rest raises `Livelock`: too many
callbacks ran while time stood still. `run_until_complete` raises `Deadlock` if nothing is left to run.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

from odradek.testing.virtual_time.schedule import Schedule

if TYPE_CHECKING:
    from tests.simulation.network import Network

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MOST_CALLS_AT_ONE_MOMENT = 200_000
"""A real loop would be blocked for about a second."""
TASKS_BEFORE_PRUNING = 64


class Livelock(Exception):
    """Callbacks schedule callbacks without end while time stands still."""


class Deadlock(Exception):
    """The awaited future is not done, and neither callbacks nor timers are left."""


class Node:
    """One process from its start to its end; a restarted process is another Node with the same name."""

    __slots__ = ("held", "is_alive", "is_paused", "name", "number", "tasks", "tasks_after_pruning")

    def __init__(self, name: str, number: int = 1) -> None:
        self.name = name
        self.number = number
        """Counts the incarnations of this name."""
        self.is_alive = True
        self.is_paused = False
        self.held: deque[asyncio.Handle] = deque()
        """What fell due while the node was paused."""
        self.tasks: list[asyncio.Task[Any]] = []
        """All tasks that are not done, and some that are."""
        self.tasks_after_pruning = TASKS_BEFORE_PRUNING

    def __repr__(self) -> str:
        return f"{self.name}/{self.number}"


NODE: ContextVar[Node | None] = ContextVar("node", default=None)


class ProcessEnded(BaseException):
    """The process of the running callback ends here. Nothing of it may catch this."""


class ThreadDelays(Protocol):
    def __call__(self, function: Callable[..., Any]) -> tuple[float, float]:
        """Returns the seconds before the function runs in its thread, and those until its result arrives."""


def no_delays(function: Callable[..., Any]) -> tuple[float, float]:
    """Threads that take no time."""
    return 0.0, 0.0


class SimulatedLoop(Schedule, asyncio.AbstractEventLoop):
    """See the head of this file. `calls` counts the callbacks that have run."""

    now_us = 0
    network: Network
    """Set by the network itself."""

    def __init__(self, thread_delays: ThreadDelays = no_delays) -> None:
        super().__init__()
        self.calls = 0
        self.failures: list[dict[str, Any]] = []
        self.thread_delays = thread_delays
        self.hangs_s = 0.0
        """So much later comes the result of the function that runs in a thread now."""
        self._is_running = False
        self._is_closed = False
        self.simulation = Node("simulation")
        """The node of callbacks without a node."""
        self._nodes: dict[Node, None] = {}
        """All nodes that have started tasks. It keeps what killed nodes have left behind."""
        self._tasks_created = 0

    # --- running ------------------------------------------------------------------------------------------------

    call_soon_threadsafe = Schedule.call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        call = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)
        self.put(self.now_us + round(delay * 1e6), call)
        return call

    def run_until_complete(self, future: Generator[Any, None, T] | Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Runs until the future is done and returns its result."""
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        with _Running(self):
            while not task.done():
                if not self._run_once(None):
                    raise Deadlock(f"nothing is left to run, and {task!r} is not done")
        return task.result()

    def run_for(self, seconds: float) -> None:
        """Runs everything that falls due in the next `seconds`; then so much time has passed."""
        until_us = self.now_us + round(seconds * 1e6)
        with _Running(self):
            while self._run_once(until_us):
                pass
        self.now_us = until_us

    def _run_once(self, until_us: int | None) -> bool:
        """Runs all that is ready, or moves to the next timer. Returns False if none is due before or at `until_us`."""
        ready = self.ready
        if not ready and not self._next_moment(until_us):
            return False
        left = MOST_CALLS_AT_ONE_MOMENT
        while ready:
            call = ready.popleft()
            if call._cancelled:
                continue
            context: Context = call._context  # type: ignore[attr-defined]
            node = context.get(NODE) or self.simulation
            if not node.is_alive:
                continue
            if node.is_paused:
                node.held.append(call)
                continue
            left -= 1
            if left == 0:
                raise Livelock(f"{MOST_CALLS_AT_ONE_MOMENT} calls at {self.time()} s; the last: {call!r}")
            try:
                context.run(call._callback, *call._args)  # type: ignore[attr-defined]
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"Exception in {call!r}", "exception": error})
        self.calls += MOST_CALLS_AT_ONE_MOMENT - left
        return True

    def _next_moment(self, until_us: int | None) -> bool:
        """Moves time to the next timer and makes all timers of this moment ready."""
        due_us = self.next_us()
        if due_us is None or (until_us is not None and due_us > until_us):
            return False
        self.now_us = max(due_us, self.now_us)
        self.reach(self.now_us)
        return True

    def is_running(self) -> bool:
        """See asyncio."""
        return self._is_running

    def is_closed(self) -> bool:
        """See asyncio."""
        return self._is_closed

    def close(self) -> None:
        """Ends all tasks that are left: their `finally` blocks run, and whatever they schedule is ignored."""
        self._is_closed = True
        self.ready = deque(maxlen=0)
        for node in self._nodes:
            for task in node.tasks:
                if not task.done():
                    _end(task)
        self._nodes.clear()

    # --- nodes --------------------------------------------------------------------------------------------------

    def kill(self, node: Node) -> None:
        """See the head of this file."""
        node.is_alive = False
        node.held.clear()

    def pause(self, node: Node) -> None:
        """See the head of this file."""
        node.is_paused = True

    def resume(self, node: Node) -> None:
        """See the head of this file."""
        node.is_paused = False
        self.ready.extend(node.held)
        node.held.clear()

    def run_as(self, node: Node, function: Callable[..., T], *args: Any) -> T:
        """Calls a function as this node: everything that it schedules belongs to the node."""
        context = copy_context()
        context.run(NODE.set, node)
        return context.run(function, *args)

    # --- tasks, futures, threads --------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        """See asyncio."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        """See asyncio."""
        if name is None:  # asyncio numbers the tasks of the whole process
            self._tasks_created += 1
            name = f"task {self._tasks_created}"
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        node = (NODE.get() if context is None else context.get(NODE, None)) or self.simulation
        self._nodes[node] = None
        node.tasks.append(task)
        if len(node.tasks) > node.tasks_after_pruning:
            node.tasks = [each for each in node.tasks if not each.done()]
            node.tasks_after_pruning = 2 * len(node.tasks) + TASKS_BEFORE_PRUNING
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """See the head of this file. The executor is not used."""
        future: asyncio.Future[T] = self.create_future()
        before, after = self.thread_delays(func)
        self.call_later(before, self._run_in_thread, future, func, args, after)
        return future

    def _run_in_thread(
        self, future: asyncio.Future[Any], function: Callable[..., Any], args: tuple[Any, ...], after: float
    ) -> None:
        self.hangs_s = 0.0
        try:
            result = function(*args)
        except Exception as error:
            self.call_later(after + self.hangs_s, _settle, future, None, error)
        else:
            self.call_later(after + self.hangs_s, _settle, future, result, None)

    # --- network ------------------------------------------------------------------------------------------------

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        """See network.py."""
        return await self.network.create_server(*args, **kwargs)

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        """See network.py."""
        return await self.network.create_connection(*args, **kwargs)

    # --- what asyncio itself asks for ---------------------------------------------------------------------------

    def set_debug(self, enabled: bool) -> None:
        """The simulation has no debug mode."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Notes the failure of a callback, or of a task that nobody awaits."""
        if not self._is_closed and not isinstance(context.get("exception"), ProcessEnded):
            self.failures.append(context | {"time": self.time()})

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See asyncio."""
        self.call_exception_handler(context)

    async def shutdown_asyncgens(self) -> None:
        """Asynchronous generators are finalised as soon as they are dropped."""

    async def shutdown_default_executor(self) -> None:
        """There is none."""


def simulated_loop(thread_delays: ThreadDelays = no_delays) -> SimulatedLoop:
    """Creates a loop. asyncio's methods for sockets, pipes, signals and processes are left out."""
    return SimulatedLoop(thread_delays)  # type: ignore[abstract]


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    """Returns the coroutine's result."""
    loop = simulated_loop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.close()


def in_virtual_time(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Makes a test of a coroutine."""

    @wraps(test)
    def run() -> None:
        run_in_virtual_time(test())

    return run


class _Running:
    """Makes a loop the running one of this thread."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        loop = self._loop
        if loop._is_closed or loop._is_running:
            raise RuntimeError("the loop is running already, or closed")
        loop._is_running = True
        self._before = events._get_running_loop()
        self._hooks = sys.get_asyncgen_hooks()
        events._set_running_loop(loop)
        sys.set_asyncgen_hooks(finalizer=self._finalise)

    def __exit__(self, *_: object) -> None:
        sys.set_asyncgen_hooks(*self._hooks)
        events._set_running_loop(self._before)
        self._loop._is_running = False

    def _finalise(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._loop.create_task(generator.aclose())


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not future.done():
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)


def _end(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    assert coroutine is not None
    try:
        coroutine.close()
    except (RuntimeError, ProcessEnded):  # a `finally` block awaits something, or meets a trap on the disk
        pass
