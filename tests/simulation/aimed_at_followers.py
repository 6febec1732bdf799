"""Faults that are aimed at a follower that must find out where its leader's log is, or whose answer comes late.

    a follower of which a leader has deleted all that it lacks asks where the leader's log starts, and meanwhile the
    leader is lost, or its epoch has changed, or the follower's disk fails when it starts over there
    a follower has started over where its leader's log starts, and the leader is lost with its disk, and leads again
    the answer to a fetch of a deleted topic comes when there is a topic of the same name
    a broker that has led truncates its logs, and stops as SIGTERM asks

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
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
    cut_both,
    heal_both,
    id_of,
    links_of,
    other_than,
    until,
)
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.deletions import DeletionAdmin
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.disk_traps import READINGS_LOG, Bait, Harm, Trap
from tests.simulation.examination import replica_of

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.machine import Machine
    from tests.simulation.world import World

FOLLOWS_S = 0.3
LIVES = 3
RARE_LOOK_S = 0.02
"""How often the topic is created again."""
RETURNS_S = 2.0


def _followed(machine: Machine, key: TopicPartition) -> Followed | None:
    """What the fetcher of a broker knows of a partition that it follows."""
    broker = machine.running
    loop = None if broker is None else broker.cluster.fetchers._loop_of.get(key)
    return None if loop is None else loop.fetcher.followed.get(key)


def is_truncating(machine: Machine) -> bool:
    """Whether a broker truncates logs."""
    broker = machine.running
    return broker is not None and any(loop._truncation is not None for loop in broker.cluster.fetchers._loops.values())


def _slow_both(world: World, one: str, other: str, slowness: float) -> None:
    world.network.slow_down(one, other, slowness)
    world.network.slow_down(other, one, slowness)


def delete_records(world: World, key: TopicPartition) -> None:
    """Operators delete all that is committed."""

    async def delete(cluster: Cluster) -> None:
        await cluster.refresh([key.topic])
        admin = DeletionAdmin(cluster, world.history, name=OPERATOR)
        end = await admin.end_of(key)
        if end is not None:
            await admin.delete(key, end)

    world.as_operator(delete)


def _reorder(world: World, key: TopicPartition) -> None:
    """Operators let another replica be the preferred one, which begins a leader epoch."""
    replicas = links_of(world).metadata().topics[key.topic].replicas[key.partition]

    async def reassign(cluster: Cluster) -> None:
        admin = ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=key.topic)
        await admin.reassign({key: [*replicas[1:], replicas[0]]})

    world.as_operator(reassign)


async def _chosen(
    world: World, fault: Fault, keys: Sequence[TopicPartition], *, in_sync: int
) -> tuple[TopicPartition, int, int] | None:
    """Waits until so many replicas of one of the partitions are in sync. Returns the partition, its leader, which is
    not the controller, and a follower. Operators ask for the preferred leaders if the controller leads all of them."""
    links = links_of(world)
    found: list[tuple[TopicPartition, int, int]] = []

    def find() -> bool:
        found[:] = [
            (key, state.leader_id, follower)
            for key, state in links.stored(keys).items()
            for follower in state.in_sync
            if len(state.in_sync) == in_sync
            and state.leader_id in world.machines
            and f"broker-{state.leader_id}" != links.controller
            and follower != state.leader_id
        ]
        return bool(found)

    if not find() and links.controller is not None:
        world.elect(id_of(links.controller), keys)
    is_found = await until(world, find, LAG_PATIENCE_S, every_s=RARE_LOOK_S)
    return found[int(fault.amount * len(found))] if is_found else None


async def _leave_behind(world: World, key: TopicPartition, leader_id: int, follower_id: int) -> bool:
    """Kills a follower until its leader has deleted all that it lacks. Returns whether that came in time; whoever calls
    starts it again."""
    links, follower = links_of(world), replica_of(world.machines, follower_id, key)
    if follower is None:
        return False
    end_offset = follower.log.state.log_end_offset

    def is_out() -> bool:
        leader = replica_of(world.machines, leader_id, key)
        has_more = leader is not None and leader.log.state.high_watermark > end_offset
        return has_more and follower_id not in links.stored([key])[key].in_sync

    def is_deleted() -> bool:
        leader = replica_of(world.machines, leader_id, key)
        return leader is not None and leader.log.state.log_start_offset > end_offset

    world.machines[follower_id].kill()
    links.expire(f"broker-{follower_id}")
    if not await until(world, is_out, LAG_PATIENCE_S):
        return False
    delete_records(world, key)
    return await until(world, is_deleted)


async def lose_out_of_range(world: World, fault: Fault) -> None:
    """All that a follower lacks is deleted. When it asks where its leader's log is, slowly, the leader is lost, or its
    epoch changes. In most cases the follower hears of that later than its answer comes. Or nothing of this happens, and
    its disk fails when it removes the first of its segments."""
    links = links_of(world)
    chosen = await _chosen(world, fault, world.workload.readings, in_sync=len(world.machines))
    controller = links.controller
    if chosen is None or controller is None:
        return
    key, leader_id, _ = chosen
    leader = f"broker-{leader_id}"
    follower = other_than(world, leader, controller)
    follower_id = id_of(follower)
    machine = world.machines[follower_id]
    traps: list[Trap] = []

    def is_lost() -> bool:
        followed = _followed(machine, key)
        return followed is not None and followed.state is FollowerState.OUT_OF_RANGE

    is_behind = await _leave_behind(world, key, leader_id, follower_id)
    _slow_both(world, leader, follower, SLOW)
    machine.start()
    if is_behind and await until(world, is_lost, LAG_PATIENCE_S):
        if fault.amount * 10 % 1 < 0.5:
            world.network.slow_down(controller, follower, VERY_SLOW)
        if fault.amount * 10 % 1 > 0.7:
            traps.append(Trap(Bait("rename", READINGS_LOG), machine, Harm.FAIL, passing=0, stays=False))
            machine.disk.traps += traps
        elif fault.amount * 100 % 1 < 0.5:
            world.network.slow_down(controller, leader, VERY_SLOW)  # it knows that it leads no more, not who does
            links.expire(leader)
        else:
            _reorder(world, key)
        await asyncio.sleep(REJOIN_S)
    _slow_both(world, leader, follower, 1.0)
    if traps:
        machine.disk.traps = [each for each in machine.disk.traps if each not in traps]
        machine.kill()
        machine.start()
    for name in (leader, follower):
        world.network.slow_down(controller, name, 1.0)


async def lose_the_log(world: World, fault: Fault) -> None:
    """Of a topic whose replicas may be lost, all is deleted that a follower lacks. When it has started over where its
    leader's log starts, the leader is lost. It is back with an empty disk as soon as nothing else counts on it, and
    messages between the two take long for a while."""
    links = links_of(world)
    chosen = await _chosen(world, fault, world.workload.clicks, in_sync=2)
    if chosen is None:
        return
    key, leader_id, follower_id = chosen
    leader, follower, machine = f"broker-{leader_id}", f"broker-{follower_id}", world.machines[leader_id]

    def has_started_over() -> bool:
        replica = replica_of(world.machines, follower_id, key)
        return replica is not None and replica.log.state.log_end_offset == replica.log.state.log_start_offset > 0

    def is_free() -> bool:
        return not links.counts_on(leader_id, world.workload.clicks)

    is_behind = await _leave_behind(world, key, leader_id, follower_id)
    world.machines[follower_id].start()
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


async def part_and_depose(world: World, machine: Machine) -> None:
    """A leader hears nothing of its followers, and loses its leaderships, so that it must truncate its logs."""
    others = [other.name for other in world.machines.values() if other is not machine]
    for other in others:
        cut_both(world, machine.name, other)
    await asyncio.sleep(FOLLOWS_S)
    links_of(world).expire(machine.name)
    for other in others:
        heal_both(world, machine.name, other)


async def stop_while_truncating(world: World, fault: Fault) -> None:
    """A leader hears nothing of its followers, and loses its leaderships. When it truncates its logs, its disk is slow,
    and it is asked to stop."""
    machine = world.machines[fault.broker_id]
    await part_and_depose(world, machine)
    if await until(world, partial(is_truncating, machine), LAG_PATIENCE_S):
        world.thread_times.slowness[machine.name] = VERY_SLOW
        world.restart_gently(machine)
        await asyncio.sleep(FOLLOWS_S)
        world.thread_times.slowness.pop(machine.name, None)
