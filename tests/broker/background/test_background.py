import asyncio
import threading
from collections.abc import Callable, Generator
from functools import partial

import pytest
import structlog.testing

from odradek.broker.background.background import Background, run_all_in_threads, run_groups_in_threads
from tests.patience import PATIENCE_S


async def test_a_function_runs_in_a_thread_and_its_result_is_returned() -> None:
    background = Background()
    assert await background.run_in_thread(threading.current_thread) is not threading.current_thread()
    await background.stop()


async def test_an_exception_of_a_thread_reaches_the_waiter() -> None:
    background = Background()
    with pytest.raises(ZeroDivisionError):
        await background.run_in_thread(lambda: 1 // 0)
    await background.stop()


async def test_stop_cancels_tasks_and_waits_for_their_end() -> None:
    background = Background()
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    background.spawn(forever(), "forever")
    await asyncio.sleep(0)
    await background.stop()
    assert ended == [True]


async def test_a_failing_task_is_logged_with_its_name() -> None:
    background = Background()

    async def fail() -> None:
        raise ValueError("no")

    with structlog.testing.capture_logs() as logs:
        task = background.spawn(fail(), "failing")
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert [(entry["event"], entry["task"]) for entry in logs] == [("background task failed", "failing")]
    await background.stop()


async def test_periodic_work_continues_after_a_failure_and_ends_with_stop() -> None:
    background = Background()
    runs: list[int] = []
    third = asyncio.Event()

    def work() -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise ValueError("once")
        if len(runs) == 3:
            third.set()

    with structlog.testing.capture_logs() as logs:
        background.every(1, work, "work")
        await third.wait()
    assert len(logs) == 1
    await background.stop()
    so_far = len(runs)
    await asyncio.sleep(0.01)
    assert len(runs) == so_far


async def test_periodic_coroutines_never_overlap() -> None:
    background = Background()
    running = 0
    most = 0
    runs = 0
    enough = asyncio.Event()

    async def work() -> None:
        nonlocal running, most, runs
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        runs += 1
        if runs == 3:
            enough.set()

    background.every(1, work, "work")
    await enough.wait()
    await background.stop()
    assert most == 1


async def test_a_stopped_background_accepts_no_more_work() -> None:
    background = Background()
    await background.stop()
    await background.stop()
    with pytest.raises(RuntimeError):
        background.run_in_thread(int)

    async def nothing() -> None:
        pass

    with pytest.raises(RuntimeError):
        background.spawn(nothing(), "late")


async def test_at_shutdown_several_threads_wait_for_the_disk_concurrently() -> None:
    together = threading.Barrier(4, timeout=PATIENCE_S)

    def wait_for_others() -> None:
        together.wait()

    await run_all_in_threads([wait_for_others] * 8)
    assert not together.broken


async def test_a_failure_at_shutdown_is_raised() -> None:
    done: list[int] = []

    def fail() -> None:
        raise OSError("the disk does not answer")

    with pytest.raises(OSError, match="does not answer"):
        await run_all_in_threads([fail, partial(done.append, 1)])
    assert done == [1]


async def test_between_two_groups_of_calls_the_generator_runs_on_the_loop() -> None:
    calls: list[str] = []

    def groups() -> Generator[list[Callable[[], None]], None, int]:
        yield [partial(calls.append, "a"), partial(calls.append, "b")]
        assert sorted(calls) == ["a", "b"]
        assert threading.current_thread() is threading.main_thread()
        yield []
        yield [partial(calls.append, "c")]
        return len(calls)

    assert await run_groups_in_threads(groups()) == 3
