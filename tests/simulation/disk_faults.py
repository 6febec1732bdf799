"""What goes wrong with a disk besides single errors.

fail a directory   One of the two log directories fails for good: nothing below it can be read or changed any more. The
                   replicas there are lost for the broker, which goes on with the others. In the end the disk has been
                   mended, and the broker is restarted
lose pages         Syncs fail for a moment, and the system forgets what they have not written, as Linux does: later ones
                   succeed without it. In the end the machine has been restarted, and reads what its disk has
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.disk import DISK_ERROR
from tests.simulation.log_history import OfflineThoughSound
from tests.simulation.machine import DIRECTORIES, Machine

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

SYNCS_FAIL_FOR = 0.3
"""The part of the fault's time."""


def fail_directory(world: World, fault: Fault) -> None:
    """One log directory fails."""
    world.machines[fault.broker_id].disk.broken = {DIRECTORIES[fault.amount < 0.5]}


def mend_directory(world: World, fault: Fault) -> None:
    """Looks which replicas are offline; then the directory has what it had, and the broker starts again."""
    machine = world.machines[fault.broker_id]
    _note_offline(world, machine)
    machine.disk.broken = set()
    machine.kill()
    machine.start()


def _note_offline(world: World, machine: Machine) -> None:
    """Notes the replicas that are offline although their directory is sound."""
    broker = machine.running
    for partition in [] if broker is None else list(broker.replica_manager.partitions.offline):
        assert broker is not None
        log = broker.log_manager.get(partition)
        if log is not None and broker.log_manager.directory_of(log) not in machine.disk.broken:
            reason = broker.replica_manager.partitions.offline[partition].reason
            world.history.note(OfflineThoughSound(process=machine.name, partition=partition, reason=reason))


async def lose_pages(world: World, fault: Fault) -> None:
    """Some syncs fail, and the next ones do not."""
    disk = world.machines[fault.broker_id].disk
    disk.failed_syncs_lose_pages = True
    disk.fail_sync = DISK_ERROR
    await asyncio.sleep(fault.seconds * SYNCS_FAIL_FOR)
    disk.fail_sync = None


def drop_cache(world: World, fault: Fault) -> None:
    """The machine starts again."""
    machine = world.machines[fault.broker_id]
    machine.kill()
    machine.disk.drop_cache()
    machine.disk.failed_syncs_lose_pages = False
    machine.start()
