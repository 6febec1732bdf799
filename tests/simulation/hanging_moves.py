"""Moves between log directories that are about to end while the disk hangs, so that the log is not as it was.

hang at the end of a move on   Operators move replicas of a broker, and the disk hangs when all is copied. Meanwhile the
                               logs roll, or their records are deleted
move what is truncated on      A leader hears nothing of its followers, and loses its leaderships. When it is about to
                               truncate its logs, its disk hangs. Meanwhile operators move them
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import OPERATOR
from tests.simulation.aimed_at_followers import delete_records, is_truncating, part_and_depose
from tests.simulation.aimed_faults import LAG_PATIENCE_S, until
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.log_dirs import DiskAdmin
from tests.simulation.disk_traps import CHECKPOINT, EPOCHS, FUTURE, HANGS_S, Bait, Harm, Trap
from tests.simulation.machine import DIRECTORIES, Machine
from tests.simulation.trapped_moves import movable

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

MOST_MOVES = len(DIRECTORIES)
"""As many as are copied at a time."""
DELETES = 0.5
"""How often operators delete records meanwhile."""


async def hang_at_the_end(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine, deleted = world.machines[fault.broker_id], world.workload.readings if fault.amount < DELETES else []
    chosen = sorted(movable(machine), key=lambda each: each[0] not in deleted)[:MOST_MOVES]
    trap = _set(machine, Bait("replace", f"{FUTURE}/{EPOCHS}"))
    _move(world, machine, chosen)
    if await until(world, lambda: trap.has_sprung):
        for key in deleted:
            delete_records(world, key)
        await asyncio.sleep(2 * HANGS_S)


async def move_what_is_truncated(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine = world.machines[fault.broker_id]
    _set(machine, Bait("replace", CHECKPOINT))
    await part_and_depose(world, machine)
    if await until(world, partial(is_truncating, machine), LAG_PATIENCE_S):
        _move(world, machine, [each for each in movable(machine) if _is_truncated(machine, each[0])][:MOST_MOVES])
        await asyncio.sleep(HANGS_S)


def stop_hanging(world: World, fault: Fault) -> None:
    """The disk works."""
    world.machines[fault.broker_id].disk.traps = []


def _set(machine: Machine, bait: Bait) -> Trap:
    trap = Trap(bait, machine, Harm.HANG, passing=0, stays=True)
    machine.disk.traps.append(trap)
    return trap


def _is_truncated(machine: Machine, key: TopicPartition) -> bool:
    assert machine.running is not None, "it has logs"
    return machine.running.log_manager.logs[key].state.truncating_to is not None


def _move(world: World, machine: Machine, moves: Sequence[tuple[TopicPartition, str]]) -> None:
    async def ask(cluster: Cluster) -> None:
        admin = DiskAdmin(cluster, world.history, name=OPERATOR)
        for key, target in moves:
            await admin.move(machine.broker_id, key, target)

    world.as_operator(ask)
