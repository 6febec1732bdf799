"""What happens in an hour happens in the same order when a test advances time by an hour as when time passes by
itself, a thousand times as fast.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.testing import InProcessBroker
from odradek.testing.virtual_time import controls
from odradek.testing.virtual_time.members import groups_of
from odradek.testing.virtual_time.virtual_time import VirtualTime
from tests.patience import until
from tests.testing.virtual_time.deadlines import (
    Happened,
    abort,
    create,
    flush,
    has_transactional_ids,
    idle_connections,
    retention,
    session,
)
from tests.testing.virtual_time.timed_api import TimedApi, timed_api
from tests.wire.requests import commit

HOUR_S = 3600
SPEEDS = (1000, 300, 100)
"""A machine that is busy may be late by more than what lies between two events. Then time has to pass more slowly."""
LOOK_S = 2
CHECKED_MS = 20_000
SETTINGS: dict[str, object] = {
    "log.flush.interval.ms": 120_000,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": 1_050_000,
    "log.retention.check.interval.ms": CHECKED_MS,
    "offsets.retention.minutes": 25,
    "offsets.retention.check.interval.ms": CHECKED_MS,
    "transactional.id.expiration.ms": 1_200_000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": CHECKED_MS,
    "transaction.remove.expired.transaction.cleanup.interval.ms": CHECKED_MS,
    "connections.max.idle.ms": 2_500_000,
}
"""The transaction's marker, which comes with its abort, is the newest record."""
EXPECTED = {
    "the record is flushed": 120,
    "the session ends": 360,
    "the transaction is aborted": 600,
    "the offset expires": 1500,
    "the records are deleted": 1650,
    "the transactional id expires": 1800,
    "the connections are closed": 2500,
}


class FastTime(VirtualTime):
    """Real time, which passes faster after `hurry`."""

    def __init__(self) -> None:
        self.speed = 1
        self._from_us = 0
        super().__init__()

    def _below_us(self) -> int:
        return self._from_us + (super()._below_us() - self._from_us) * self.speed

    def _awake_in(self, microseconds: int) -> asyncio.TimerHandle:
        return super()._awake_in(-(-microseconds // self.speed))

    def hurry(self, speed: int) -> None:
        self._from_us = super()._below_us()
        self.speed = speed
        self._sleep_on()
        self._wake_up_in_time()


async def offset_of_a_simple_group(api: TimedApi) -> Happened:
    (topic,) = (await api(commit("simple", "t", 0, 7), 7)).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    return lambda: all(group.group_id != "simple" for group in groups_of(api.broker))


async def scene(api: TimedApi) -> dict[str, Happened]:
    """Begins to wait for everything."""
    await create(api, {})
    return {
        "the session ends": await session(360_000)(api),
        "the offset expires": await offset_of_a_simple_group(api),
        "the transaction is aborted": await abort(600_000)(api),
        "the transactional id expires": lambda: not has_transactional_ids(api),
        "the record is flushed": await flush(api),
        "the records are deleted": await retention(api),
        "the connections are closed": await idle_connections(api),
    }


async def watch(broker: InProcessBroker, events: dict[str, Happened], seen: dict[str, float]) -> None:
    """Notes when each event happens, seconds from now. Runs as the broker."""
    begun_ms = broker.clock.now_ms()
    while len(seen) < len(events):
        await asyncio.sleep(LOOK_S)
        for name, happened in events.items():
            if name not in seen and happened():
                seen[name] = (broker.clock.now_ms() - begun_ms) / 1000


async def seen_in_an_hour(pass_an_hour: Callable[[InProcessBroker], Awaitable[object]]) -> dict[str, float]:
    async with timed_api(SETTINGS) as api:
        broker = api.broker
        events = await scene(api)
        seen: dict[str, float] = {}
        watching: Coroutine[Any, Any, None] = watch(broker, events, seen)
        watcher = asyncio.ensure_future(broker.run(watching))
        await asyncio.sleep(0)
        await pass_an_hour(broker)
        watcher.cancel()
        return seen


async def test_an_hour_that_is_advanced_is_as_an_hour_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    advanced = await seen_in_an_hour(lambda broker: broker.advance(HOUR_S))
    monkeypatch.setattr(controls, "VirtualTime", FastTime)

    async def let_it_pass(broker: InProcessBroker, speed: int) -> None:
        assert isinstance(broker.virtual_time, FastTime)
        until_ms = broker.clock.now_ms() + HOUR_S * 1000
        broker.virtual_time.hurry(speed)
        await until(lambda: broker.clock.now_ms() >= until_ms)

    for speed in SPEEDS:
        passed = await seen_in_an_hour(partial(let_it_pass, speed=speed))
        if list(passed) == list(EXPECTED):
            break
    assert list(advanced) == list(passed) == list(EXPECTED)
    for name, due_s in EXPECTED.items():
        assert due_s - 5 <= advanced[name] <= due_s + 45, (name, advanced)
