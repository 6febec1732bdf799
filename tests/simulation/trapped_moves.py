"""Moves between log directories whose disk fails at one of their steps.

move into a trap on    Operators move replicas of a broker. The copy cannot get the partition's name, or the process
                       ends before it has; the directories cannot be synced before it has, or after; or the log itself
                       cannot be flushed while it is copied, or its leader epochs cannot be written before. In the end
                       the disk is sound, and the broker is restarted
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, NamedTuple

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import OPERATOR
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.log_dirs import DiskAdmin
from tests.simulation.disk_traps import DIRECTORY, EPOCHS, FOLDER, FUTURE, LOG, OF_REPLICA, Bait, Harm, Trap
from tests.simulation.machine import DIRECTORIES, Machine

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

MOST_MOVES = 4
FLUSHES_S = 2.0


COPY, TARGET = FUTURE + "$", "TARGET"


class Way(NamedTuple):
    """Where a move fails. The files are those of the bait, or the directory to which the first replica moves (TARGET).
    The trap waits until the operation `after`, and `stays` or not. `comes_first`: it springs at what happens before
    the moves; with `restarts` after a start of the broker, which has new leader epochs to write."""

    bait: Bait
    harm: Harm = Harm.FAIL
    after: Bait | None = None
    stays: bool = False
    comes_first: bool = False
    restarts: bool = False


WAYS = (
    Way(Bait("rename", COPY), stays=True),
    Way(Bait("rename", COPY), Harm.KILL),
    Way(Bait("sync directory", DIRECTORY), after=Bait("rename", FOLDER)),
    Way(Bait("sync directory", TARGET), after=Bait("rename", COPY)),
    Way(Bait("sync", OF_REPLICA + LOG), stays=True, comes_first=True),
    Way(Bait("replace", OF_REPLICA + EPOCHS), stays=True, comes_first=True, restarts=True),
)


class LateTrap:
    """A trap that waits until something has been done."""

    def __init__(self, trap: Trap, after: Bait) -> None:
        self._trap = trap
        self._after = after
        self._waits = False

    def __call__(self, operation: str, path: str) -> None:
        """See SimulatedDisk."""
        if self._waits:
            self._trap(operation, path)
        elif operation == self._after.operation and re.search(self._after.files, path):
            self._waits = True


async def move_into_trap(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine = world.machines[fault.broker_id]
    way = WAYS[int(fault.amount * len(WAYS))]
    harm = Harm.CUT if way.harm is Harm.KILL and world.is_durable else way.harm
    found = movable(machine)
    if not found:
        return
    files = f"^{found[0][1]}$" if way.bait.files == TARGET else way.bait.files
    trap = Trap(way.bait._replace(files=files), machine, harm, passing=0, stays=way.stays)
    machine.disk.traps.append(trap if way.after is None else LateTrap(trap, way.after))
    if way.restarts:
        machine.kill()
        machine.start()
    if way.comes_first:
        await asyncio.sleep(FLUSHES_S)

    async def ask(cluster: Cluster) -> None:
        admin = DiskAdmin(cluster, world.history, name=OPERATOR)
        for key, target in found[: MOST_MOVES if way.stays else 1]:
            await admin.move(machine.broker_id, key, target)

    await world.as_operator(ask)
    await asyncio.sleep(FLUSHES_S)


def movable(machine: Machine) -> list[tuple[TopicPartition, str]]:
    """The replicas of clients' topics with the directory in which they are not, those with the most segments first."""
    broker = machine.running
    if broker is None:
        return []
    logs = sorted(broker.log_manager.logs.values(), key=lambda log: (-len(log.segments), log.topic_partition))
    return [
        (log.topic_partition, next(each for each in DIRECTORIES if each != broker.log_manager.directory_of(log)))
        for log in logs
        if not log.topic_partition.topic.startswith("__") and broker.log_manager.moves.get(log.topic_partition) is None
    ]
