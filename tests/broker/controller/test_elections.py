"""Elections that clients request, and the balance of leaders."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest, UpdateMetadataRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType
from tests.broker.controller.fleet import Fleet, codes

KEY = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


async def elect(fleet: Fleet, election: ElectionType, *keys: TopicPartition, timeout_ms: int = 1000) -> list[ErrorCode]:
    active = fleet.active()
    electing = active.controller.replicas.elect(election, keys, timeout_ms=timeout_ms)
    outcomes = await fleet.as_node(active.broker_id, electing)
    assert list(outcomes) == list(keys)
    return codes(outcomes.values())


async def leader(fleet: Fleet, key: TopicPartition = KEY) -> int:
    return (await fleet.state(key)).leader


async def out_of_balance(fleet: Fleet) -> None:
    """Broker 2 has lost its leaderships, and is in sync again."""
    await fleet.create("t", {0: [2, 3], 1: [2, 3], 2: [3, 2]})
    fleet.kill(2)
    await fleet.start(2)
    await fleet.quiet()
    for key in (KEY, OTHER):
        await fleet.set_isr(key, [3, 2])


def test_a_preferred_leader_is_elected_where_it_is_needed_and_possible() -> None:
    async def scene(fleet: Fleet) -> None:
        await out_of_balance(fleet)
        assert fleet.active().controller.terms.numbers().preferred_replica_imbalance == 2
        await fleet.set_isr(OTHER, [3])
        unknown = TopicPartition("none", 0)
        assert await elect(fleet, ElectionType.PREFERRED, KEY, OTHER, TopicPartition("t", 2), unknown) == [
            ErrorCode.NONE,
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await leader(fleet) == 2
        await fleet.quiet()
        await fleet.check_agreement()

    Fleet([1, 2, 3]).run(scene)


def test_an_unclean_election_needs_a_partition_without_leader() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 3], 1: [3, 2]})
        assert await elect(fleet, ElectionType.UNCLEAN, KEY) == [ErrorCode.ELECTION_NOT_NEEDED]
        await fleet.set_isr(KEY, [2])
        fleet.kill(2)
        await fleet.quiet()
        assert await elect(fleet, ElectionType.UNCLEAN, KEY, OTHER) == [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED]
        assert (await fleet.state(KEY)).isr == (3,)
        fleet.kill(3)
        await fleet.quiet()
        assert await elect(fleet, ElectionType.UNCLEAN, KEY) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]

    Fleet([1, 2, 3]).run(scene)


def test_an_election_is_answered_when_this_broker_knows_the_leader_or_times_out() -> None:
    async def scene(fleet: Fleet) -> None:
        await out_of_balance(fleet)
        gate = asyncio.Event()

        async def wait(request: Any) -> None:
            if isinstance(request, UpdateMetadataRequest):
                await gate.wait()

        node = fleet.active()
        node.broker.before = wait
        electing = asyncio.ensure_future(elect(fleet, ElectionType.PREFERRED, KEY))
        await fleet.quiet(0.2)
        assert not electing.done()
        assert node.election_purgatory.delayed == 1
        assert await elect(fleet, ElectionType.PREFERRED, OTHER, timeout_ms=300) == [ErrorCode.REQUEST_TIMED_OUT]
        assert await leader(fleet, OTHER) == 2
        gate.set()
        assert await electing == [ErrorCode.NONE]
        assert (node.election_purgatory.delayed, node.election_purgatory.expired) == (0, 1)

    Fleet([1, 2, 3]).run(scene)


def test_a_broker_that_leads_too_little_gets_its_leaderships_back() -> None:
    async def scene(fleet: Fleet) -> None:
        await out_of_balance(fleet)
        await fleet.as_node(1, fleet.active().controller.replicas.balance_leaders())
        assert [await leader(fleet, key) for key in (KEY, OTHER)] == [2, 2]
        sent = len(fleet.nodes[2].broker.requests)
        await fleet.as_node(1, fleet.active().controller.replicas.balance_leaders())
        await fleet.nodes[3].controller.replicas.balance_leaders()  # not the controller
        await fleet.quiet()
        requests = [each for each in fleet.nodes[2].broker.requests[sent:] if isinstance(each, LeaderAndIsrRequest)]
        assert len(requests) <= 1  # of the first balance
        assert fleet.active().controller.terms.numbers().preferred_replica_imbalance == 0

    Fleet([1, 2, 3]).run(scene)


def test_a_small_imbalance_stays_and_so_does_one_during_a_reassignment() -> None:
    async def scene(fleet: Fleet) -> None:
        await out_of_balance(fleet)
        await fleet.as_node(1, fleet.active().controller.replicas.reassign({TopicPartition("t", 2): [1]}))
        await fleet.as_node(1, fleet.active().controller.replicas.balance_leaders())
        assert await leader(fleet) == 3
        await fleet.as_node(1, fleet.active().controller.replicas.reassign({TopicPartition("t", 2): None}))
        await fleet.as_node(1, fleet.active().controller.replicas.balance_leaders())
        assert await leader(fleet) == 3

    Fleet([1, 2, 3], {"leader.imbalance.per.broker.percentage": "100"}).run(scene)


def test_the_balance_may_be_disabled() -> None:
    async def scene(fleet: Fleet) -> None:
        await out_of_balance(fleet)
        await fleet.as_node(1, fleet.active().controller.replicas.balance_leaders())
        assert await leader(fleet) == 3

    Fleet([1, 2, 3], {"auto.leader.rebalance.enable": "false"}).run(scene)
