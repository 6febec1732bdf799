"""Faults that are aimed at the moment when replicas differ: what only some of them have, when others are lost.

    the in-sync replicas grow, and at this moment all others are lost: the one that has joined leads alone
    the leader of a coordinator is lost, and the next one, too, before a follower has heard of what both have
    a broker is lost, and its disk with it

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.broker.coordinator.java_hash import partition_for
from odradek.broker.metadata.metadata_cache import TRANSACTION_TOPIC
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.aimed_faults import VERY_SLOW, at_change, cut_both, heal_both, id_of, links_of, name_of
from tests.simulation.final_state import Stored

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

TRANSACTION_PARTITIONS = 4
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


async def lose_two_coordinators(world: World, fault: Fault) -> None:
    """A follower of a coordinator's partition hears nothing of the others. The leader is lost, then the next one, once
    it has served for a moment. The follower leads, without what only those two had."""
    links = links_of(world)
    ids = world.workload.transactional_ids
    number = partition_for(ids[int(fault.amount * len(ids))], TRANSACTION_PARTITIONS)
    topic, key = links.metadata().topics.get(TRANSACTION_TOPIC), TopicPartition(TRANSACTION_TOPIC, number)
    state = links.stored([key]).get(key)
    if topic is None or state is None or len(state.in_sync) < 3:
        return
    second, third = (broker_id for broker_id in topic.replicas[number] if broker_id != state.leader_id)
    for broker_id in (state.leader_id, second):
        cut_both(world, f"broker-{broker_id}", f"broker-{third}")

    def is_elected(_before: Stored, after: Stored) -> bool:
        return after.leader_id == second

    await asyncio.sleep(0.2 + 0.3 * fault.amount)
    if await at_change(world, lambda: _lose(world, state.leader_id), is_elected, lambda: None):
        await asyncio.sleep(0.3 + 0.4 * fault.amount)
        _lose(world, second)
    for broker_id in (state.leader_id, second):
        heal_both(world, f"broker-{broker_id}", f"broker-{third}")
    await asyncio.sleep(fault.seconds)
    for broker_id in (state.leader_id, second):
        world.machines[broker_id].start()


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
