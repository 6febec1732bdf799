"""What goes wrong with a disk besides single errors.

fail a directory   One of the two log directories fails for good: nothing below it can be read or changed any more. The
                   replicas there are lost for the broker, which goes on with the others. In the end the disk has been
                   mended, and the broker is restarted
fill for a moment  A disk is full, and then has room again. The replicas that were lost come back by themselves
evict pages        The page cache no longer has the logs, so each read of what is there waits for the disk
start on a full disk   The broker is killed, and finds no room when it starts again
stop on a bad disk     Syncs, writes or truncations fail, or nothing has room, while the broker stops as SIGTERM asks
move on a slow disk    Replicas are moved between the directories one after the other, while the disk is slow and
                   leaders are lost, so that logs are truncated, rolled and cleaned while they are copied
load slowly        All disks are slow and nothing is in the page cache while leaders are lost, one after the other:
                   coordinators load for long, lose their office meanwhile, or cannot read their log for a moment,
                   before or after they lose it
fail to truncate   Truncations fail while leaders are lost, so that followers must truncate
lose pages         Syncs fail for a moment, and the system forgets what they have not written, as Linux does: later ones
                   succeed without it. In the end the machine has been restarted, and reads what its disk has
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek.storage.file_names import LOG_SUFFIX
from tests.simulation.aimed_faults import REJOIN_S, id_of, links_of
from tests.simulation.disk import DISK_ERROR, SimulatedDisk
from tests.simulation.log_history import OfflineThoughSound
from tests.simulation.machine import DIRECTORIES, Machine
from tests.simulation.upkeep_history import DiskFilled

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

RESTARTS = 0.3
"""How often a broker with a failed directory stops, and cannot start."""
LARGEST_ROOM = 20_000
"""Bytes on a disk that will soon be full."""
LARGEST_ROOM_AT_START = 2000
"""Bytes on a disk that is full when a broker starts: for some files, but not for all."""
COME_BACK_S = 3.0
FAILS_WHILE_OFFLINE = 0.3
STOPS_WITHIN_S = 8.0
SLOW_MOVES = 200.0
SLOW_LOADS = 200.0
HEARS_S = 0.03
"""In which a broker hears that its session has ended."""
SYNCS_FAIL_FOR = 0.3
"""The part of the fault's time."""


async def fail_directory(world: World, fault: Fault) -> None:
    """One log directory fails. In some cases the broker then stops, and cannot start before the disk is mended."""
    machine = world.machines[fault.broker_id]
    machine.disk.broken = {DIRECTORIES[fault.amount < 0.5]}
    if fault.amount * 10 % 1 < RESTARTS:
        await asyncio.sleep(fault.seconds)
        world.restart_gently(machine)


def mend_directory(world: World, fault: Fault) -> None:
    """Looks which replicas are offline, unless another fault may have broken the whole disk meanwhile; then the
    directory has what it had, and the broker starts again."""
    machine = world.machines[fault.broker_id]
    if not any(other.broker_id == fault.broker_id and other is not fault for other in world.at_work):
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
    """A disk is full, and then has room. In some cases a directory cannot be read meanwhile."""
    machine = world.machines[fault.broker_id]
    machine.disk.room = int(LARGEST_ROOM * fault.amount)
    await asyncio.sleep(fault.seconds)
    machine.disk.room = None
    world.history.note(DiskFilled(process=machine.name, broker_id=machine.broker_id))
    if fault.amount * 10 % 1 < FAILS_WHILE_OFFLINE:
        machine.disk.broken = {DIRECTORIES[fault.amount < 0.5]}
    await asyncio.sleep(COME_BACK_S)


def see_all_back(world: World, fault: Fault) -> None:
    """The broker starts again if a replica is still offline: one whose log has an unknown content. So it does if a
    directory could not be read."""
    machine = world.machines[fault.broker_id]
    broker = machine.running
    if machine.disk.broken:
        mend_directory(world, fault)
    elif broker is None or broker.replica_manager.partitions.offline:
        machine.kill()
        machine.start()


def evict_pages(world: World, fault: Fault) -> None:
    """The page cache loses what it has of the logs."""
    _evict(world.machines[fault.broker_id].disk)


def _evict(disk: SimulatedDisk) -> None:
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


def start_on_full_disk(world: World, fault: Fault) -> None:
    """The broker recovers its logs on a disk that is full, or will soon be."""
    machine = world.machines[fault.broker_id]
    machine.kill()
    machine.disk.room = max(int(LARGEST_ROOM_AT_START * (2 * fault.amount - 1)), 0)
    machine.start()


async def stop_on_bad_disk(world: World, fault: Fault) -> None:
    """The broker runs on for a while, and is then asked to stop. The disk has been mended when it starts again."""
    machine = world.machines[fault.broker_id]
    _break(machine.disk, int(fault.amount * 4))
    await asyncio.sleep(fault.seconds)
    stopping = asyncio.get_running_loop().create_task(machine.stop())
    await asyncio.wait([stopping], timeout=STOPS_WITHIN_S)
    restart_mended(world, fault)


def _break(disk: SimulatedDisk, way: int) -> None:
    if way == 0:
        disk.fail_sync = DISK_ERROR
    elif way == 1:
        disk.fail_write = DISK_ERROR
    elif way == 2:
        disk.fail_truncate = DISK_ERROR
    else:
        disk.room = 0


async def fail_to_truncate(world: World, fault: Fault) -> None:
    """The other brokers lose their leaderships, one after the other."""
    world.machines[fault.broker_id].disk.fail_truncate = DISK_ERROR
    for machine in world.machines.values():
        if machine.broker_id != fault.broker_id:
            links_of(world).expire(machine.name)
            await asyncio.sleep(REJOIN_S)


async def move_on_slow_disk(world: World, fault: Fault) -> None:
    """Also the leaderships of all brokers are lost, one after the other, its own first."""
    machine = world.machines[fault.broker_id]
    world.thread_times.slowness[machine.name] = SLOW_MOVES
    if world.workload.disk_mover is not None:
        world.workload.disk_mover.hurries_at = fault.broker_id
    for other in sorted(world.machines.values(), key=lambda other: other is not machine):
        await asyncio.sleep(REJOIN_S)
        links_of(world).expire(other.name)


async def load_slowly(world: World, fault: Fault) -> None:
    """The broker is the second one to be lost. In some cases one of its directories cannot be read meanwhile, or from
    then on."""
    for machine in world.machines.values():
        world.thread_times.slowness[machine.name] = SLOW_LOADS
        _evict(machine.disk)
    first, second = world.machines[id_of(fault.other)], world.machines[fault.broker_id]
    links_of(world).expire(first.name)
    await asyncio.sleep(REJOIN_S * fault.amount)
    broken = {DIRECTORIES[fault.amount * 10 % 1 < 0.5]}
    if fault.amount < 0.3:
        second.disk.broken = broken
    await asyncio.sleep(REJOIN_S / 2)
    links_of(world).expire(second.name)
    if 0.3 <= fault.amount < 0.7:
        await asyncio.sleep(HEARS_S)
        second.disk.broken = broken


def load_fast(world: World, fault: Fault) -> None:
    """The disks are fast again, and can be read."""
    for machine in world.machines.values():
        world.thread_times.slowness.pop(machine.name, None)
        machine.disk.cold = set()
    if world.machines[fault.broker_id].disk.broken:
        mend_directory(world, fault)


def stop_moving(world: World, fault: Fault) -> None:
    """The disk is fast again."""
    world.thread_times.slowness.pop(world.machines[fault.broker_id].name, None)
    if world.workload.disk_mover is not None:
        world.workload.disk_mover.hurries_at = None


def restart_mended(world: World, fault: Fault) -> None:
    """The disk works and has room again, and the broker starts again."""
    machine = world.machines[fault.broker_id]
    disk = machine.disk
    machine.kill()
    disk.fail_sync = disk.fail_write = disk.fail_truncate = disk.room = None
    machine.start()
