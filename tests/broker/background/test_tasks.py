"""Coroutines that begin at once and are not canceled with their caller."""

from __future__ import annotations

import asyncio

import pytest

from odradek.broker.background.tasks import uncanceled


async def result(value: int, turns: int = 0) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return value


async def failure(turns: int = 0) -> None:
    await result(0, turns)
    raise LookupError("fails")


async def test_a_coroutine_that_does_not_wait_takes_no_turn_and_no_task() -> None:
    turns: list[int] = []
    tasks = asyncio.all_tasks()
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert await uncanceled(result(3)) == 3
    with pytest.raises(LookupError):
        await uncanceled(failure())
    assert turns == []
    assert asyncio.all_tasks() == tasks


@pytest.mark.parametrize("turns", [1, 5])
async def test_one_that_waits_ends_later(turns: int) -> None:
    assert await uncanceled(result(3, turns)) == 3
    with pytest.raises(LookupError):
        await uncanceled(failure(turns))


async def test_it_waits_for_futures_and_locks_as_a_task_does() -> None:
    lock, future = asyncio.Lock(), asyncio.get_running_loop().create_future()

    async def waits() -> int:
        async with lock:
            first: int = await future
            return first + await asyncio.wait_for(result(1, 2), 60)

    async with lock:
        waiting = asyncio.ensure_future(uncanceled(waits()))
        await asyncio.sleep(0)
        future.set_result(2)
    assert await waiting == 3


async def test_it_goes_on_when_its_caller_is_canceled() -> None:
    go_on, done = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        await go_on.wait()
        await result(0, 3)
        done.set()

    caller = asyncio.ensure_future(uncanceled(waits()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go_on.set()
    await done.wait()


async def test_it_handles_exceptions_of_what_it_waits_for() -> None:
    future = asyncio.get_running_loop().create_future()

    async def handles() -> str:
        try:
            await future
        except LookupError as error:
            await asyncio.sleep(0)
            return str(error)
        return ""

    asyncio.get_running_loop().call_soon(future.set_exception, LookupError("fails"))
    assert await uncanceled(handles()) == "fails"
