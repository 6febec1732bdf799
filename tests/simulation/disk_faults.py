"""What goes wrong with a disk besides single errors.

fail a directory   One of the two log directories fails for good: nothing below it can be read or changed any more. The
                   replicas there are lost for the broker, which goes on with the others. In the end the disk has been
                   mended, and the broker is restarted
fill for a moment  A disk is full, and then has room again. The replicas that were lost come back by themselves
evict pages        The page cache no longer has the logs, so each read of what is there waits for the disk
lose pages         Syncs fail for a moment, and the system forgets what they have not written, as Linux does: later ones
                   succeed without it. In the end the machine has been restarted, and reads what its disk has
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.storage.file_names import LOG_SUFFIX
from tests.simulation.disk import DISK_ERROR
from tests.simulation.log_history import OfflineThoughSound
from tests.simulation.machine import DIRECTORIES, Machine
from tests.simulation.upkeep_history import DiskFilled

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

RESTARTS = 0.3
LARGEST_ROOM = 20_000
"""In bytes."""
COME_BACK_S = 3.0
SYNCS_FAIL_FOR = 0.3
"""The part of the fault's time."""


async def fail_directory(world: World, fault: Fault) -> None:
    """One log directory fails. In some cases the broker stops and starts without it."""
    machine = world.machines[fault.broker_id]
    machine.disk.broken = {DIRECTORIES[fault.amount < 0.5]}
    if fault.amount * 10 % 1 < RESTARTS:
        await asyncio.sleep(fault.seconds)
        world.restart_gently(machine)


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


async def fill_for_a_moment(world: World, fault: Fault) -> None:
    """A disk is full, and then has room."""
    machine = world.machines[fault.broker_id]
    machine.disk.room = int(LARGEST_ROOM * fault.amount)
    await asyncio.sleep(fault.seconds)
    machine.disk.room = None
    world.history.note(DiskFilled(process=machine.name, broker_id=machine.broker_id))
    await asyncio.sleep(COME_BACK_S)


def see_all_back(world: World, fault: Fault) -> None:
    """The broker starts again if a replica is still offline: one whose log has an unknown content."""
    machine = world.machines[fault.broker_id]
    broker = machine.running
    if broker is None or broker.replica_manager.partitions.offline:
        machine.kill()
        machine.start()


def evict_pages(world: World, fault: Fault) -> None:
    """The page cache loses what it has of the logs."""
    disk = world.machines[fault.broker_id].disk
    disk.cold = {path for path in disk.names if path.endswith(LOG_SUFFIX)}


def cache_pages(world: World, fault: Fault) -> None:
    """The page cache has everything."""
    world.machines[fault.broker_id].disk.cold = set()


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
