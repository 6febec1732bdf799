"""The controller is hit after each of its writes and before each of its requests, in a scene that grows, reassigns and
deletes topics while a broker dies and comes back. The next controller completes or undoes what it finds.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

from odradek.broker.metadata.new_topic import NewPartitions
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, Operation, Outcome
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType
from tests.broker.controller.fleet import SESSION_TIMEOUT_MS, Fleet, FleetNode
from tests.soak import SOAK

MOVED, GONE, GROWN = "moved", "gone", "grown"
KEY = TopicPartition(MOVED, 0)
FEWEST_STEPS = 40


async def killed(fleet: Fleet) -> None:
    """The process ends here."""
    fleet.loop.call_soon(fleet.kill, 1, context=fleet.context)
    await asyncio.Future()


async def expired(fleet: Fleet) -> None:
    """The session ends, and the process goes on."""
    fleet.loop.call_soon(fleet.shared.expire, "1", context=fleet.context)
    await asyncio.sleep(0.01)


async def cut_off(fleet: Fleet) -> None:
    """The connection is lost for a while, and with it some answers."""
    fleet.loop.call_soon(partial(fleet.shared.cut, "1", lost_answers=random.Random(1)), context=fleet.context)
    fleet.loop.call_later(0.3, fleet.shared.heal, "1", context=fleet.context)
    await asyncio.sleep(0.01)


async def cut_off_for_long(fleet: Fleet) -> None:
    """The connection is lost until the session has ended."""
    fleet.loop.call_soon(partial(fleet.shared.cut, "1", lost_answers=random.Random(1)), context=fleet.context)
    fleet.loop.call_later(2 * SESSION_TIMEOUT_MS / 1000, fleet.shared.heal, "1", context=fleet.context)
    await asyncio.sleep(0.01)


FAULTS = (killed, expired, cut_off, cut_off_for_long)


class Countdown:
    """Hits the node of broker 1 at its `limit`-th step."""

    def __init__(self, fleet: Fleet, limit: int, fault: Callable[[Fleet], Awaitable[None]]) -> None:
        self.fleet = fleet
        self.limit = limit
        self.fault = fault
        self.steps = 0
        self.is_armed = False

    async def step(self, node: FleetNode) -> None:
        if self.is_armed and node.broker_id == 1:
            self.steps += 1
            if self.steps == self.limit:
                self.is_armed = False
                await self.fault(self.fleet)


class CountingStore:
    """A session whose writes are steps: the answer to the last one never arrives."""

    def __init__(self, node: FleetNode, session: MetadataStore, countdown: Countdown) -> None:
        self._node = node
        self._session = session
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        outcomes = await self._session.pipeline(groups)
        await self._countdown.step(self._node)
        return outcomes


async def until_back(fleet: Fleet, broker_id: int) -> None:
    if not fleet.nodes[broker_id].is_running:
        await fleet.start(broker_id)


async def attempt(work: Any) -> None:
    """A client's request, which is never answered if the controller dies."""
    await asyncio.wait([asyncio.ensure_future(work)], timeout=3)


async def changes(fleet: Fleet) -> None:
    """The requests to broker 1. It may die at any moment."""
    controller = fleet.nodes[1].controller
    node = fleet.nodes[1].process

    def ask(work: Any) -> Any:
        return attempt(fleet.loop.run_as(node, fleet.loop.create_task, work))

    await ask(controller.topics.add_partitions([NewPartitions(GROWN, 3)], timeout_ms=2000))
    await ask(controller.replicas.reassign({KEY: [4, 2, 3]}))
    await asyncio.sleep(0.2)
    if (await fleet.state(KEY)).adding and fleet.nodes[1].controller.terms.is_active and fleet.nodes[1].is_running:
        await attempt(fleet.set_isr(KEY, [1, 2, 3, 4]))
    await asyncio.sleep(0.2)
    fleet.kill(3)
    await asyncio.sleep(0.2)
    await ask(controller.topics.delete([GONE], timeout_ms=2000))
    await fleet.start(3)
    await asyncio.sleep(0.2)
    await ask(controller.replicas.elect(ElectionType.PREFERRED, [KEY], timeout_ms=500))
    await asyncio.sleep(0.5)


def is_hit_at(limit: int, fault: Callable[[Fleet], Awaitable[None]]) -> bool:
    """Plays the scene. Returns False if it has fewer steps than `limit`."""
    fleet = Fleet([1, 2, 3, 4])
    countdown = Countdown(fleet, limit, fault)
    fleet.around_store = lambda node, session: CountingStore(node, session, countdown)

    async def before_send(start: FleetNode, _end: FleetNode, _request: Any) -> None:
        await countdown.step(start)

    async def scene(fleet: Fleet) -> bool:
        fleet.before_send = before_send
        fleet.nodes[1].broker.before = lambda _request: countdown.step(fleet.nodes[1])
        await fleet.create(MOVED, {0: [1, 2, 3]})
        await fleet.create(GONE, {0: [3, 2], 1: [4, 3]})
        await fleet.create(GROWN, {0: [2, 3], 1: [1, 2]})
        countdown.is_armed = True
        await changes(fleet)
        is_hit = countdown.steps >= limit
        await fleet.quiet(2 if fault is killed else 2.5 * SESSION_TIMEOUT_MS / 1000)
        await until_back(fleet, 1)
        await fleet.quiet(2)
        for node in fleet.running():
            assert node.active_controller == fleet.active().broker_id
        state = await fleet.state(KEY)
        if state.adding:
            await fleet.set_isr(KEY, list(state.replicas))
            await fleet.quiet()
            state = await fleet.state(KEY)
        assert (state.adding, state.removing) == ((), ())
        assert sorted(state.replicas) in ([1, 2, 3], [2, 3, 4])
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == []
        await fleet.check_agreement()
        return is_hit

    return fleet.run(scene)


@pytest.mark.soak("each fault of a controller at each step", minutes=0.2)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_controller_that_is_hit_at_any_step_is_replaced_by_one_that_completes_its_changes(
    fault: Callable[[Fleet], Awaitable[None]],
) -> None:
    """Outside of a soak, the faults after the first one share the steps."""
    stride = 1 if SOAK or fault is killed else len(FAULTS) - 1
    limit = 1 + FAULTS.index(fault) % stride
    while is_hit_at(limit, fault):
        limit += stride
    assert limit > FEWEST_STEPS
