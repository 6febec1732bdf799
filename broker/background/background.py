"""Everything that runs beside the requests, with one owner that stops it: threads, tasks and periodic work.

(a) `run_in_thread`: for calls that release the GIL (fsync, deleting files, cold reads). Threads are created on first
    use.
(b) `spawn`: a task. An exception that it raises is always logged; cancellation is silent.
(c) `every`: periodic work, timed by the running loop. The next run is due one interval after the last one ended, so
    slow work never piles up. A failed run is logged and does not end the series. A loop whose time can jump may leave
    out the runs that would do nothing (testing/virtual_time).
(d) `turns`: long work on the loop, one step per turn (stepwise.py); the task that needs it is one of (b).

`stop()` ends (c), cancels (b) and waits for it, then waits for running threads. `run_all_in_threads` and
`run_groups_in_threads` serve for many syncs at once, also after that.

Every thread is started by `loop.run_in_executor`: an event loop that simulates threads has all of them.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import structlog

from odradek.broker.background.tasks import Threads
from odradek.broker.background.turns import Turns

P = ParamSpec("P")
T = TypeVar("T")

IdleUntil = Callable[[], float]
"""Returns until when runs of periodic work would do nothing if nothing else happens before, in ms of the broker's
clock (not of the wall clock); 0 if the next one may do something."""

log = structlog.get_logger("broker.background")


THREADS_AT_THE_END = 8


async def run_all_in_threads(functions: Sequence[Callable[[], None]]) -> None:
    """Calls all functions, a few at a time, and waits for them. When a broker stops, many logs wait for the disk, which
    is faster with several requests at once than with one after the other. Raises the first exception, after all calls.
    """
    if not functions:
        return
    loop = asyncio.get_running_loop()
    waiting = iter(functions)
    failures: list[BaseException] = []
    with ThreadPoolExecutor(THREADS_AT_THE_END, thread_name_prefix="odradek-sync") as executor:
        await asyncio.gather(
            *(
                loop.run_in_executor(executor, _call_each, waiting, failures)
                for _ in range(min(THREADS_AT_THE_END, len(functions)))
            )
        )
    if failures:
        raise failures[0]


def _call_each(waiting: Iterator[Callable[[], None]], failures: list[BaseException]) -> None:
    """Calls the functions that no other thread has taken."""
    for function in waiting:
        try:
            function()
        except BaseException as error:
            failures.append(error)


async def run_groups_in_threads(groups: Generator[Sequence[Callable[[], None]], None, T]) -> T:
    """Calls the functions of each group as `run_all_in_threads`. Between two groups the generator runs on the loop.
    Returns its value."""
    while True:
        try:
            functions = next(groups)
        except StopIteration as end:
            value: T = end.value
            return value
        await run_all_in_threads(functions)


async def each_in_thread(
    threads: Threads,
    functions: Iterable[Callable[[], object]],
    failed: Callable[[OSError], object],
    then: Callable[[], object],
) -> None:
    """Calls one function after the other in a thread, `failed` with the error of one that fails, and `then` in the end:
    for callers without coroutines, which are compiled.
    """
    for function in functions:
        try:
            await threads.run_in_thread(function)
        except OSError as error:
            failed(error)
    then()


def always_works() -> float:
    """The `idle_until_ms` of work that any run may have to do."""
    return 0


class Periodic:
    """One series of runs, and the call that the loop schedules for the next one. `cancel()` ends it; a run under way
    continues to its end unless it is a coroutine.
    """

    __slots__ = ("_background", "_cancelled", "_function", "_handle", "_task", "idle_until_ms", "interval_s", "name")

    def __init__(
        self,
        background: Background,
        interval_ms: float,
        function: Callable[[], Any],
        name: str,
        idle_until_ms: IdleUntil,
    ) -> None:
        self.name = name
        self.interval_s = interval_ms / 1000
        self.idle_until_ms = idle_until_ms
        self._background = background
        self._function = function
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._arm()

    def cancel(self) -> None:
        self._cancelled = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._task is not None:
            self._task.cancel()

    def _arm(self) -> None:
        if not self._cancelled:
            self._handle = asyncio.get_running_loop().call_later(self.interval_s, self)

    def __call__(self) -> None:
        """Runs once; called by the loop."""
        self._handle = None
        try:
            result = self._function()
        except Exception:
            log.exception("periodic work failed", work=self.name)
            result = None
        if inspect.iscoroutine(result):
            self._task = self._background.spawn(result, self.name)
            self._task.add_done_callback(self._ended)
        else:
            self._arm()

    def _ended(self, _task: asyncio.Task[Any]) -> None:
        self._task = None
        self._arm()


class Background:
    def __init__(self, *, threads: int = 4) -> None:
        self._thread_count = threads
        self._executor: ThreadPoolExecutor | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._periodics: list[Periodic] = []
        self._stopped = False
        self.turns = Turns()

    def run_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Runs function(*args, **kwargs) in a thread. The awaitable gives its result or exception."""
        if self._stopped:
            raise RuntimeError("the background has been stopped")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._thread_count, thread_name_prefix="odradek")
        loop = asyncio.get_running_loop()
        if kwargs:
            return loop.run_in_executor(self._executor, lambda: function(*args, **kwargs))
        return loop.run_in_executor(self._executor, function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        if self._stopped:
            coroutine.close()
            raise RuntimeError("the background has been stopped")
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)
        return task

    def every(
        self,
        interval_ms: float,
        function: Callable[[], Any],
        name: str,
        idle_until_ms: IdleUntil = always_works,
    ) -> Periodic:
        """Calls function() (plain, or returning a coroutine) every interval_ms, first after one interval."""
        if interval_ms <= 0:
            raise ValueError(f"the interval of {name!r} must be positive")
        periodic = Periodic(self, interval_ms, function, name, idle_until_ms)
        self._periodics.append(periodic)
        return periodic

    async def stop(self) -> None:
        """Stops everything. Returns when no task and no thread of the background is left. May be called again."""
        self._stopped = True
        for periodic in self._periodics:
            periodic.cancel()
        self._periodics.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)

    def abandon(self) -> None:
        """Lets the threads end, and waits for nothing: the event loop has ended."""
        self._stopped = True
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        exception = task.exception()
        if exception is not None:
            log.error("background task failed", task=task.get_name(), exc_info=exception)
