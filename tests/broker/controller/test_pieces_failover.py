"""The controller is hit after each transaction of long changes, also between two that it sends together. The next
controller completes them, or they have not begun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest

from odradek.broker.controller import pieces
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import ConnectionLost, MetadataStore, Operation, Outcome
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import SESSION_TIMEOUT_MS, Fleet, FleetNode
from tests.broker.controller.test_controller_failover import Countdown, attempt, cut_off, killed, until_back

NEW, GONE, GROWN, SHRUNK, MOVED = "new", "gone", "grown", "shrunk", "moved"
PARTITIONS = 6
FEWEST_STEPS = 28


class OneAtATime:
    """A session whose transactions are steps. What follows a lost one in a pipeline is lost, too."""

    def __init__(self, node: FleetNode, session: MetadataStore, countdown: Countdown) -> None:
        self._node = node
        self._session = session
        self._countdown = countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def pipeline(self, groups: Sequence[Iterable[Operation]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for group in groups:
            if outcomes and isinstance(outcomes[-1], ConnectionLost):
                outcomes.append(ConnectionLost("", "an earlier transaction is lost"))
                continue
            outcomes += await self._session.pipeline([group])
            await self._countdown.step(self._node)
        return outcomes


def keys_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(PARTITIONS)]


async def changes(fleet: Fleet) -> None:
    """The requests to broker 1. It may die at any moment."""
    controller, node = fleet.nodes[1].controller, fleet.nodes[1].process

    async def ask(work: Any) -> None:
        await attempt(fleet.loop.run_as(node, fleet.loop.create_task, work))

    wish = NewTopic(NEW, assignments={number: [1 + number % 3, 1 + (number + 1) % 3] for number in range(PARTITIONS)})
    await ask(controller.topics.create([wish], timeout_ms=2000))
    await ask(controller.topics.add_partitions([NewPartitions(GROWN, PARTITIONS)], timeout_ms=2000))
    await ask(controller.replicas.reassign({key: [3] for key in keys_of(SHRUNK)}))
    await ask(controller.replicas.reassign({key: [1, 3] for key in keys_of(MOVED)}))
    await ask(controller.topics.delete([GONE], timeout_ms=2000))
    await fleet.quiet(0.5)


def is_hit_at(limit: int, fault: Callable[[Fleet], Awaitable[None]]) -> bool:
    """Plays the scene. Returns False if it has fewer steps than `limit`."""
    fleet = Fleet([1, 2, 3])
    countdown = Countdown(fleet, limit, fault)
    fleet.around_store = lambda node, session: OneAtATime(node, session, countdown)

    async def scene(fleet: Fleet) -> bool:
        for name in (SHRUNK, MOVED, GONE):
            await fleet.create(name, {number: [2, 3] for number in range(PARTITIONS)})
        await fleet.create(GROWN, {0: [2, 3]})
        countdown.is_armed = True
        await changes(fleet)
        is_hit, countdown.is_armed = countdown.steps >= limit, False
        await fleet.quiet(2 if fault is killed else 2.5 * SESSION_TIMEOUT_MS / 1000)
        await until_back(fleet, 1)
        await fleet.quiet(2)
        await check(fleet)
        return is_hit

    return fleet.run(scene)


async def assignment(fleet: Fleet, topic: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The replicas, those being added and those being removed, which are the same for all partitions."""
    states = [await fleet.state(key) for key in keys_of(topic)]
    assert all(state.leader in state.isr and {*state.isr} <= {*state.replicas} for state in states)
    (found,) = {(state.replicas, state.adding, state.removing) for state in states}
    return found


async def check(fleet: Fleet) -> None:
    """Each change is complete, or has not begun. Every partition has a state, which all brokers know."""
    for name, possible in ((NEW, {0, PARTITIONS}), (GROWN, {1, PARTITIONS})):
        topic = await fleet.observer.exists(znodes.topic_path(name))
        count = 0 if topic is None else len(znodes.parse_topic(name, topic.data).replicas)
        assert count in possible, name
        assert (await fleet.observer.exists(znodes.topic_config_path(name)) is None) == (count == 0)
    assert await assignment(fleet, SHRUNK) in [((2, 3), (), ()), ((3,), (), ())]
    moved = await assignment(fleet, MOVED)
    if moved == ((1, 3, 2), (1,), (2,)):
        for key in keys_of(MOVED):
            await fleet.set_isr(key, [1, 2, 3])
        await fleet.quiet()
        assert await assignment(fleet, MOVED) == ((1, 3), (), ())
    else:
        assert moved == ((2, 3), (), ())
    gone = await fleet.observer.exists(znodes.topic_path(GONE))
    assert gone is None or await fleet.observer.exists(znodes.deletion_path(GONE)) is None
    await fleet.check_agreement()


@pytest.mark.parametrize(
    "fault", [killed, pytest.param(cut_off, marks=pytest.mark.long)], ids=lambda fault: fault.__name__
)
def test_a_controller_that_is_hit_after_any_piece_is_replaced_by_one_that_completes_its_changes(
    fault: Callable[[Fleet], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "OPERATIONS_AT_A_TIME", 4)
    limit = 1
    while is_hit_at(limit, fault):
        limit += 1
    assert limit >= FEWEST_STEPS
