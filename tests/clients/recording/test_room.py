"""Frames that are held share a room of limited size."""

from __future__ import annotations

import asyncio

from odradek.clients.recording.room import Room
from tests.patience import until


async def test_frames_wait_in_their_order_until_there_is_room() -> None:
    room, inside, order = Room(10), asyncio.Event(), []

    async def hold(name: str, size: int) -> None:
        async with room.hold(size):
            order.append(name)
            await inside.wait()

    tasks = [asyncio.create_task(hold(name, size)) for name, size in (("a", 6), ("b", 6), ("c", 2))]
    await until(lambda: room.is_short)
    assert order == ["a"], "c would fit, but b came first"
    inside.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]
    assert not room.is_short


async def test_a_frame_above_the_limit_gets_the_whole_room() -> None:
    room = Room(10)
    async with room.hold(50):
        waiting = asyncio.create_task(asyncio.wait_for(anext_hold(room), 30))
        await until(lambda: room.is_short)
    await waiting


async def anext_hold(room: Room) -> None:
    async with room.hold(1):
        pass


async def test_one_that_gives_up_leaves_its_place() -> None:
    room = Room(10)
    async with room.hold(10):
        given_up = asyncio.create_task(anext_hold(room))
        await until(lambda: room.is_short)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert not room.is_short
    async with room.hold(10):
        pass
