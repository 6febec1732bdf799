"""Faults that are aimed at the moment when replicas differ: what only some of them have, when others are lost.

    the in-sync replicas grow, and at this moment all others are lost: the one that has joined leads alone
    the leader of a coordinator is lost, and the next one, too, before a follower has heard of what both have
    a coordinator cannot write the markers of a transaction, and is lost with all that are in sync; it is back alone,
    and hears which partitions there are long after it has heard that it leads
    a follower leads that has more than the leader knew, and less than the leader had
    a broker is lost, and its disk with it

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.coordinator.runtime.runtime import partition_for
from odradek.broker.metadata.metadata_cache import TRANSACTION_TOPIC
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.aimed_faults import (
    LAG_PATIENCE_S,
    PATIENCE_S,
    SLOW,
    VERY_SLOW,
    at_change,
    cut_both,
    heal_both,
    id_of,
    links_of,
    name_of,
    other_than,
)
from tests.simulation.examination import has_open_transaction
from tests.simulation.final_state import Stored

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

TRANSACTION_PARTITIONS = 4
REPLICAS = 3
TRANSACTION_LOOK_S = 0.0005
CHECKPOINT_S = 5.5
"""Longer than between two checkpoints of the high watermark: a leader that is back alone knows what is committed."""
HEARS_S = 1.5
"""Until a slow request of the controller has arrived, and the next one has not."""
LATE = 300.0
"""How many times as long a follower's fetches take: it stays in sync."""
LONGEST_ABSENCE_S = 10.0
LOOK_S = 0.1


def _lose(world: World, broker_id: int) -> None:
    """Ends the process and its session."""
    world.machines[broker_id].kill()
    links_of(world).expire(f"broker-{broker_id}")


async def lose_all_but_the_joiner(world: World, fault: Fault) -> None:
    """The other broker falls behind the leader and joins the in-sync replicas again. What it fetches meanwhile arrives
    late. As soon as it has joined, the others are lost, and it leads."""
    leader, joiner = name_of(fault), fault.other
    others = [broker_id for broker_id in world.machines if broker_id != id_of(joiner)]

    def joins(before: Stored, after: Stored) -> bool:
        return after.leader_id == fault.broker_id and id_of(joiner) in {*after.in_sync} - {*before.in_sync}

    def lose_others() -> None:
        for broker_id in others:
            _lose(world, broker_id)

    links_of(world).expire(joiner)
    cut_both(world, joiner, leader)
    await asyncio.sleep(0.5 + 0.5 * fault.amount)
    world.network.slow_down(leader, joiner, VERY_SLOW)
    await at_change(world, lambda: heal_both(world, joiner, leader), joins, lambda: world.loop.call_soon(lose_others))
    await asyncio.sleep(fault.seconds)
    world.network.slow_down(leader, joiner, 1.0)
    for broker_id in others:
        world.machines[broker_id].start()


def _coordinators(world: World) -> list[Sequence[int]]:
    """The replicas of each partition where the clients' transactions are, the leader first, if three are in sync."""
    links, topic = links_of(world), links_of(world).metadata().topics.get(TRANSACTION_TOPIC)
    numbers = {partition_for(each, TRANSACTION_PARTITIONS): None for each in world.workload.transactional_ids}
    if topic is None:
        return []
    stored = links.stored([TopicPartition(TRANSACTION_TOPIC, number) for number in numbers])
    return [
        sorted(topic.replicas[key.partition], key=lambda broker_id: broker_id != state.leader_id)
        for key, state in stored.items()
        if len(state.in_sync) == REPLICAS and state.leader_id in state.in_sync
    ]


async def lose_two_coordinators(world: World, fault: Fault) -> None:
    """A follower of a coordinator's partition hears nothing of the others. The leader is lost, then the next one, once
    it has served for a moment. The follower leads, without what only those two had."""
    found = _coordinators(world)
    if not found:
        return
    leader, second, third = found[int(fault.amount * len(found))]
    for broker_id in (leader, second):
        cut_both(world, f"broker-{broker_id}", f"broker-{third}")

    def is_elected(_before: Stored, after: Stored) -> bool:
        return after.leader_id == second

    await asyncio.sleep(0.2 + 0.3 * fault.amount)
    if await at_change(world, lambda: _lose(world, leader), is_elected, lambda: None):
        await asyncio.sleep(0.3 + 0.4 * fault.amount)
        _lose(world, second)
    for broker_id in (leader, second):
        heal_both(world, f"broker-{broker_id}", f"broker-{third}")
    await asyncio.sleep(fault.seconds)
    for broker_id in (leader, second):
        world.machines[broker_id].start()


async def return_alone(world: World, fault: Fault) -> None:
    """A coordinator is parted from a broker that leads a partition of a transaction, until only the controller is in
    sync with the coordinator, and markers wait. Both are lost. The coordinator is back first, and leads by itself. What
    it hears of the new controller takes long."""
    controller = links_of(world).controller
    found = [replicas[0] for replicas in _coordinators(world) if f"broker-{replicas[0]}" != controller]
    if controller is None or not found:
        return
    leader_id = found[int(fault.amount * len(found))]
    leader = f"broker-{leader_id}"
    other = other_than(world, leader, controller)

    def part() -> None:
        cut_both(world, leader, other)
        world.network.reset(leader, other)  # or what the cut holds would arrive after it

    def is_without_other(before: Stored, after: Stored) -> bool:
        return after.leader_id == leader_id and id_of(other) in {*before.in_sync} - {*after.in_sync}

    await _open_transaction(world, leader_id, id_of(other))
    if await at_change(world, part, is_without_other, lambda: None, LAG_PATIENCE_S):
        await asyncio.sleep(CHECKPOINT_S + fault.amount)
        for broker_id in (leader_id, id_of(controller)):
            _lose(world, broker_id)
        heal_both(world, leader, other)
        world.network.slow_down(other, leader, SLOW)
        world.machines[leader_id].start()
        await asyncio.sleep(HEARS_S)
        world.network.slow_down(other, leader, 1.0)
        world.machines[id_of(controller)].start()
    heal_both(world, leader, other)


async def _open_transaction(world: World, coordinator_id: int, leader_id: int) -> None:
    """Waits for a transaction with records in a partition of this leader. If there is none in time, it returns, too."""
    ids, give_up_at = world.workload.transactional_ids, world.loop.time() + PATIENCE_S
    is_open = False
    while not is_open and world.loop.time() < give_up_at:
        await asyncio.sleep(TRANSACTION_LOOK_S)
        is_open = has_open_transaction(world.machines, coordinator_id, leader_id, ids)


async def lead_behind(world: World, fault: Fault) -> None:
    """The other broker's fetches take long, so the leader knows late what it has, and sends it late what comes next.
    Then the leader loses its leaderships. Where the other broker gets them, all other logs are cut at its end."""
    leader, follower = name_of(fault), fault.other
    world.network.slow_down(follower, leader, LATE)
    await asyncio.sleep(1.0 + fault.amount)
    links_of(world).expire(leader)
    await asyncio.sleep(fault.seconds)
    world.network.slow_down(follower, leader, 1.0)


async def lose_a_disk(world: World, fault: Fault) -> None:
    """A broker is lost. It is back with an empty disk as soon as no partition counts on what it had: then the in-sync
    replicas are others. If that takes too long, or another fault ends with its restart, it is back with its disk."""
    links, machine = links_of(world), world.machines[fault.broker_id]
    _lose(world, fault.broker_id)
    give_up_at = world.loop.time() + LONGEST_ABSENCE_S
    counts = True
    while counts and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        counts = links.counts_on(fault.broker_id, world.workload.clicks)
    if not counts and machine.node is None:
        machine.lose_disk()
    machine.start()
