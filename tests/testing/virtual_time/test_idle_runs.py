"""Runs of periodic work that would do nothing are left out, and nobody notices."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest

from odradek.broker.background.background import Background
from odradek.broker.network.connection import Connection
from odradek.broker.network.socket_server import SocketServer
from odradek.testing import in_process_broker
from odradek.testing.network import Network
from odradek.testing.node_loop import NodeLoop, node_loop
from odradek.testing.virtual_time.advance import LOOK_US, Advance
from odradek.testing.virtual_time.virtual_time import VirtualTime
from tests.patience import until
from tests.soak import rounds
from tests.wire.records import connect

HOUR_S = 3600
WEEK_S = 7 * 24 * HOUR_S
SEEDS = rounds(15, in_soak=1000)


@pytest.fixture
async def node() -> AsyncIterator[NodeLoop]:
    """Its time stands, so that timers that are set one after the other begin together."""
    time = VirtualTime()
    time.stand()
    loop = node_loop(1, Network(), time)
    time.belongs_to(loop)
    yield loop
    loop.end()
    await loop.all_gone()


def time_of(node: NodeLoop) -> VirtualTime:
    assert isinstance(node._time, VirtualTime)
    return node._time


async def pass_by(node: NodeLoop, seconds: float) -> None:
    time = time_of(node)
    await Advance(time, time.now_us + round(seconds * 1e6)).run()


class Work:
    """Periodic work that has something to do from given moments on; notes its runs."""

    def __init__(self, node: NodeLoop, background: Background, interval_ms: int, due_ms: list[int]) -> None:
        self.runs: list[int] = []
        self.name = f"every {interval_ms} ms"
        self.due_ms = due_ms
        self._time = time_of(node)
        self.begun_ms = self._time.now_ms()
        node.call(background.every, interval_ms, self.run, self.name, self.idle_until_ms)

    def now_ms(self) -> int:
        return self._time.now_ms() - self.begun_ms

    def is_due(self) -> None:
        self.due_ms.append(0)

    def run(self) -> None:
        self.runs.append(self.now_ms())
        self.due_ms = [due_ms for due_ms in self.due_ms if due_ms > self.now_ms()]

    def idle_until_ms(self) -> float:
        return self.begun_ms + min(self.due_ms, default=math.inf)


async def test_work_runs_when_it_has_something_to_do_at_the_moments_of_its_series(node: NodeLoop) -> None:
    work = Work(node, Background(), 500, [7_300, 7_500, 60_001, 3_599_900, 3_600_000])
    await pass_by(node, HOUR_S + 0.1)
    assert work.runs == [7_500, 60_500, 3_600_000]
    await pass_by(node, WEEK_S)
    assert work.runs == [7_500, 60_500, 3_600_000]


async def test_what_another_timer_gives_it_to_do_is_done_at_the_next_run(node: NodeLoop) -> None:
    work = Work(node, Background(), 500, [])
    for second in (7.3, 20, 20.001):
        node.call(node.call_later, second, work.is_due)
    await pass_by(node, HOUR_S + 0.1)
    assert work.runs == [7_500, 20_000, 20_500]


async def test_work_that_does_not_say_when_it_is_idle_always_runs(node: NodeLoop) -> None:
    runs: list[int] = []
    node.call(Background().every, 10_000, lambda: runs.append(time_of(node).now_ms()), "work")
    await pass_by(node, HOUR_S)
    assert len(runs) == 360


@pytest.mark.soak("1,000 seeds of random periodic work", minutes=1)
async def test_what_happens_is_the_same_in_the_same_order_as_if_no_run_were_left_out() -> None:
    """Random work, which gives other work something to do."""
    for seed in range(SEEDS):
        assert await _events(seed, leaves_out=True) == await _events(seed, leaves_out=False), seed


async def _events(seed: int, *, leaves_out: bool) -> list[tuple[int, str]]:
    random = Random(seed)
    time = VirtualTime()
    time.stand()
    node = node_loop(1, Network(), time)
    time.belongs_to(node)
    background, begun_ms = Background(), time.now_ms()
    events: list[tuple[int, str]] = []
    to_do: dict[str, int] = {}
    intervals = [random.choice((100, 250, 400, 500, 1000, 3000, 7001)) for _ in range(6)]

    def add(name: str, interval_ms: int) -> None:
        def run() -> None:
            now_ms = time.now_ms() - begun_ms
            if name in to_do and to_do[name] <= now_ms:
                events.append((now_ms, name))
                del to_do[name]
                to_do[f"work {random.randrange(6)}"] = now_ms + random.choice((0, 0, 1, 99, 5_000, 20_000))

        def idle_until_ms() -> float:
            return begun_ms + to_do.get(name, math.inf) if leaves_out else 0

        node.call(background.every, interval_ms, run, name, idle_until_ms)

    for number, interval_ms in enumerate(intervals):
        add(f"work {number}", interval_ms)
    for _ in range(8):
        due_s, name = random.randrange(60_000) / 1000, f"work {random.randrange(6)}"
        node.call(node.call_later, due_s, to_do.setdefault, name, 0)
    await pass_by(node, 120)
    node.end()
    await node.all_gone()
    return events


async def test_a_condition_that_depends_on_the_time_alone_is_noticed_within_a_second() -> None:
    async with in_process_broker(time="virtual") as broker:
        until_ms = broker.clock.now_ms() + 1_800_000
        await broker.advance_until(lambda: broker.clock.now_ms() >= until_ms)
        assert until_ms <= broker.clock.now_ms() <= until_ms + LOOK_US // 1000


async def test_an_hour_of_an_idle_broker_has_few_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 20,000 timers that fall due in an hour, those that have something to do, or do not know, are left."""
    moments = 0
    move_to = VirtualTime.move_to

    def counted(self: VirtualTime, now_us: int) -> None:
        nonlocal moments
        moments += 1
        move_to(self, now_us)

    monkeypatch.setattr(VirtualTime, "move_to", counted)
    async with in_process_broker(time="virtual") as broker:
        await broker.advance(60)  # the first checkpoints are written
        moments = 0
        await broker.advance(HOUR_S)
        assert moments < 600
        await asyncio.sleep(0)


NOT_IDLE: dict[str, Callable[[SocketServer, Connection], object]] = {
    "not read": lambda server, connection: server.blocked.update({connection: None}),
    "its client does not read": lambda server, connection: server.not_read_by.update({connection: 1}),
    "being closed": lambda server, connection: server.closing(connection),
    "in the middle of a frame": lambda server, connection: server.queues.anonymous.hold(connection, 1),
}


@pytest.mark.parametrize("state", NOT_IDLE)
async def test_connections_are_swept_while_there_is_something_to_sweep(state: str) -> None:
    async with in_process_broker(time="virtual") as broker, await connect(broker.bootstrap):
        server = broker.socket_server
        await until(lambda: server.connections)
        assert server.idle_until_ms() > broker.clock.now_ms()
        (connection,) = server.connections
        NOT_IDLE[state](server, connection)
        assert server.idle_until_ms() == 0
        server.lost(connection)
        assert server.idle_until_ms() > broker.clock.now_ms()
