"""Faults that are aimed at a follower that must find out where its leader's log is, or whose answer comes late.

    a follower of which a leader has deleted all that it lacks asks where the leader's log starts, and meanwhile the
    leader is lost, or its epoch has changed
    a follower has started over where its leader's log starts, and the leader is lost with its disk, and leads again
    the answer to a fetch of a deleted topic comes when there is a topic of the same name
    a broker that has led truncates its logs, and stops as SIGTERM asks

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.replica.follower.fetcher_state import Followed, FollowerState
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import OPERATOR
from tests.simulation.aimed_at_replicas import LONGEST_ABSENCE_S, LOOK_S
from tests.simulation.aimed_faults import (
    LAG_PATIENCE_S,
    REJOIN_S,
    SLOW,
    VERY_SLOW,
    at_change,
    cut_both,
    heal_both,
    id_of,
    links_of,
    until,
)
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.deletions import DeletionAdmin
from tests.simulation.examination import replica_of
from tests.simulation.final_state import Stored

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.machine import Machine
    from tests.simulation.world import World

FOLLOWS_S = 0.3
LIVES = 3
"""How often the topic is created again."""
RETURNS_S = 2.0


def _followed(machine: Machine, key: TopicPartition) -> Followed | None:
    """What the fetcher of a broker knows of a partition that it follows."""
    broker = machine.running
    loop = None if broker is None else broker.cluster.fetchers._loop_of.get(key)
    return None if loop is None else loop.fetcher.followed.get(key)


def _is_truncating(machine: Machine) -> bool:
    broker = machine.running
    return broker is not None and any(loop._truncation is not None for loop in broker.cluster.fetchers._loops.values())


def _slow_both(world: World, one: str, other: str, slowness: float) -> None:
    world.network.slow_down(one, other, slowness)
    world.network.slow_down(other, one, slowness)


def _delete_records(world: World, key: TopicPartition) -> None:
    """Operators delete all that is committed."""

    async def delete(cluster: Cluster) -> None:
        await cluster.refresh([key.topic])
        admin = DeletionAdmin(cluster, world.history, name=OPERATOR)
        end = await admin.end_of(key)
        if end is not None:
            await admin.delete(key, end)

    world.as_operator(delete)


async def _leave_behind(world: World, key: TopicPartition, leader: str, follower: str) -> bool:
    """Keeps a follower from its leader until it is out of sync, and all that it lacks is deleted."""

    def is_out(_before: Stored, _after: Stored) -> bool:
        return id_of(follower) not in links_of(world).stored([key])[key].in_sync

    if not await at_change(world, partial(cut_both, world, leader, follower), is_out, lambda: None, LAG_PATIENCE_S):
        return False
    _delete_records(world, key)
    await asyncio.sleep(REJOIN_S)
    return True


async def lose_out_of_range(world: World, fault: Fault) -> None:
    """All that a follower lacks is deleted. When it asks where its leader's log is, slowly, the leader is lost, or its
    epoch changes. In most cases the follower hears of that later than its answer comes."""
    links = links_of(world)
    controller = links.controller
    chosen = [
        (key, state.leader_id, follower)
        for key, state in links.stored(world.workload.readings).items()
        for follower in state.in_sync
        if len(state.in_sync) == len(world.machines) > 2
        and f"broker-{state.leader_id}" != controller
        and f"broker-{follower}" != controller
        and follower != state.leader_id
    ]
    if controller is None or not chosen:
        return
    key, leader_id, follower_id = chosen[int(fault.amount * len(chosen))]
    leader, follower = f"broker-{leader_id}", f"broker-{follower_id}"

    def is_lost() -> bool:
        followed = _followed(world.machines[follower_id], key)
        return followed is not None and followed.state is FollowerState.OUT_OF_RANGE

    if await _leave_behind(world, key, leader, follower):
        _slow_both(world, leader, follower, SLOW)
        heal_both(world, leader, follower)
        if await until(world, is_lost):
            if fault.amount * 10 % 1 < 0.7:
                world.network.slow_down(controller, follower, VERY_SLOW)
            if fault.amount * 100 % 1 < 0.6:
                world.network.slow_down(controller, leader, VERY_SLOW)  # it knows that it leads no more, not who does
                links.expire(leader)
            else:
                links.expire(follower)
            await asyncio.sleep(REJOIN_S)
    heal_both(world, leader, follower)
    _slow_both(world, leader, follower, 1.0)
    for name in (leader, follower):
        world.network.slow_down(controller, name, 1.0)


async def lose_the_log(world: World, fault: Fault) -> None:
    """Of a topic whose replicas may be lost, all is deleted that a follower lacks. When it has started over where its
    leader's log starts, the leader is lost. It is back with an empty disk as soon as nothing else counts on it, and
    messages between the two take long for a while."""
    links = links_of(world)
    chosen = [
        (key, state.leader_id, follower)
        for key, state in links.stored(world.workload.clicks).items()
        for follower in state.in_sync
        if len(state.in_sync) == 2 and f"broker-{state.leader_id}" != links.controller and follower != state.leader_id
    ]
    if not chosen:
        return
    key, leader_id, follower_id = chosen[int(fault.amount * len(chosen))]
    leader, follower, machine = f"broker-{leader_id}", f"broker-{follower_id}", world.machines[leader_id]

    def has_started_over() -> bool:
        replica = replica_of(world.machines, follower_id, key)
        return replica is not None and replica.log.state.log_end_offset == replica.log.state.log_start_offset > 0

    def is_free() -> bool:
        return not links.counts_on(leader_id, world.workload.clicks)

    is_behind = await _leave_behind(world, key, leader, follower)
    heal_both(world, leader, follower)
    if is_behind and await until(world, has_started_over):
        machine.kill()
        links.expire(leader)
        if await until(world, is_free, LONGEST_ABSENCE_S, every_s=LOOK_S) and machine.node is None:
            machine.lose_disk()
        _slow_both(world, leader, follower, SLOW)
        machine.start()
        await asyncio.sleep(RETURNS_S)
        _slow_both(world, leader, follower, 1.0)


async def create_again(world: World, fault: Fault) -> None:
    """What a leader answers to a follower takes long. Meanwhile a topic of both is deleted and created again."""
    links = links_of(world)
    others = [machine.broker_id for machine in world.machines.values() if machine.name != links.controller]
    if len(others) != 2:
        return
    leader_id, follower_id = others if fault.amount < 0.5 else others[::-1]
    topic = BriefTopic(world, f"again-{fault.at_s * 1000:.0f}")
    await topic.create(on=[leader_id, follower_id])
    await asyncio.sleep(FOLLOWS_S)
    world.network.slow_down(f"broker-{leader_id}", f"broker-{follower_id}", VERY_SLOW)
    for _ in range(LIVES):
        await topic.delete()
        await topic.create(on=[leader_id, follower_id])
        await asyncio.sleep(FOLLOWS_S)
    world.network.slow_down(f"broker-{leader_id}", f"broker-{follower_id}", 1.0)
    await topic.delete()


async def stop_while_truncating(world: World, fault: Fault) -> None:
    """A leader hears nothing of its followers, and loses its leaderships. When it truncates its logs, its disk is slow,
    and it is asked to stop."""
    machine, links = world.machines[fault.broker_id], links_of(world)
    others = [other.name for other in world.machines.values() if other is not machine]
    for other in others:
        cut_both(world, machine.name, other)
    await asyncio.sleep(FOLLOWS_S)
    links.expire(machine.name)
    for other in others:
        heal_both(world, machine.name, other)
    if await until(world, partial(_is_truncating, machine), LAG_PATIENCE_S):
        world.thread_times.slowness[machine.name] = VERY_SLOW
        world.restart_gently(machine)
        await asyncio.sleep(FOLLOWS_S)
        world.thread_times.slowness.pop(machine.name, None)
