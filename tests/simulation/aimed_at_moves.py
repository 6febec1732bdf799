"""Faults that are aimed at reassignments whose end, or whose leader, is in doubt. Operators ask for what must wait, or
must be refused.

    the brokers that lose their replicas hear late of it, and another reassignment of the partition begins
    of the target only the new replica is in sync, and leads; then the reassignment is cancelled

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from odradek.protocol.messages.topics import CreatePartitionsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import OPERATOR, PARCELS, PARCELS_REPLICAS, ReplicaMover
from tests.simulation.aimed_at_controllers import ENTRY, MOVE_PATIENCE_S, before_next, is_moving
from tests.simulation.aimed_faults import LAG_PATIENCE_S, at_change, id_of, links_of
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.final_state import Stored

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

MOST_PARTITIONS = 1000
LEADS_S = 0.4
"""Until an election that is asked for is over."""


async def _reassign(world: World, mover: ReplicaMover, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """An operator reassigns, while the other one does not."""

    async def ask(cluster: Cluster) -> None:
        await ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=PARCELS).reassign(targets)

    async with mover.moving:
        await world.as_operator(ask)


async def move_on(world: World, fault: Fault) -> None:
    """What a controller sends at the end of a reassignment arrives late. Meanwhile operators ask whether the topic
    could get more partitions, and move its partitions to other brokers, or back."""
    links, mover = links_of(world), world.workload.replica_mover
    held: list[str] = []
    moved: list[int] = []

    def is_completed(paths: Collection[str]) -> bool:
        return mover is not None and ENTRY in paths and is_moving(world) and len(paths) > 1

    def hold() -> None:
        moved.extend(links.metadata().topics[PARCELS].reassigning)
        if links.controller is not None:
            held.append(links.controller)
            for machine in world.machines.values():
                if machine.name != links.controller:
                    world.network.cut(links.controller, machine.name)

    if mover is None or not await before_next(world, is_completed, hold, MOVE_PATIENCE_S) or not held:
        return
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=PARCELS, count=MOST_PARTITIONS, assignments=None)
    world.ask(id_of(held[0]), CreatePartitionsRequest(topics=[topic], timeout_ms=1000, validate_only=True))
    targets = list(permutations(world.machines, PARCELS_REPLICAS))
    target = targets[int(fault.amount * len(targets))]
    moving = world.loop.create_task(_reassign(world, mover, {TopicPartition(PARCELS, each): target for each in moved}))
    await asyncio.sleep(0.5 + fault.seconds)
    for machine in world.machines.values():
        if machine.name != held[0]:
            world.network.heal(held[0], machine.name)
    await moving


async def cancel_move(world: World, fault: Fault) -> None:
    """A replica joins by a reassignment, while another one of its target is away. Then it leads: operators elect it, or
    the old leader is lost. At this moment operators cancel the reassignment."""
    links, mover = links_of(world), world.workload.replica_mover
    movable = [
        (key, state.leader_id, lost, new)
        for key, state in links.stored(world.workload.parcels).items()
        for lost in state.in_sync
        for new in world.machines
        if mover is not None and not is_moving(world)
        if len(state.in_sync) == PARCELS_REPLICAS and lost != state.leader_id in world.machines
        if new not in state.in_sync
    ]
    if mover is None or not movable:
        return
    key, leader, lost, new = movable[int(fault.amount * len(movable))]
    lose = partial(_lose, world)

    def joins(before: Stored, after: Stored) -> bool:
        return after.leader_id == leader and new in {*after.in_sync} - {*before.in_sync}

    lose(lost)
    await asyncio.sleep(0.2)
    moving: list[asyncio.Task[None]] = []

    def begin() -> None:
        moving.append(world.loop.create_task(_reassign(world, mover, {key: (new, lost)})))

    has_joined = await at_change(world, begin, joins, lambda: None, LAG_PATIENCE_S)
    if has_joined:
        if fault.amount * 10 % 1 < 0.5:
            lose(leader)
        elif links.controller is not None:
            world.elect(id_of(links.controller), partitions=[key])
        await asyncio.sleep(LEADS_S)
    await asyncio.gather(*moving)
    if has_joined:
        await _reassign(world, mover, {key: None})
    for broker_id in (leader, lost):
        world.machines[broker_id].start()


def _lose(world: World, broker_id: int) -> None:
    world.machines[broker_id].kill()
    links_of(world).expire(f"broker-{broker_id}")
