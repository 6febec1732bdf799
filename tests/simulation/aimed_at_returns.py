"""Faults of brokers that come back to another topic, or to another place, than those that they have a log of.

    a broker sleeps, or is down, while a topic leaves it, is deleted and created again. The folder of the old topic is
    in the way of the new one
    a broker is lost while a replica moves to its other log directory, the partition leaves it, and then comes back: to
    this very directory, as operators have asked
    a replica is taken from a broker while its log is cleaned, or after its disk could not be read for a moment

See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import BRIEF, OPERATOR, PARCELS
from tests.simulation.aimed_at_controllers import before_next, is_moving
from tests.simulation.aimed_faults import PATIENCE_S, id_of, links_of, other_than, until
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.log_dirs import DiskAdmin
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.disk_faults import SLOW_MOVES
from tests.simulation.disk_traps import FOLDER, Bait, Harm, Trap
from tests.simulation.history import Outcome
from tests.simulation.machine import DIRECTORIES, Machine

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

SETTLES_S = 0.5
LOOK_S, LOOKS_FOR_S = 0.005, 5.0
ATTEMPTS = 10
SLEEPS = 0.5
CANNOT_RENAME = 0.2
"""How often a broker sleeps, and cannot rename the old folder for a while when it wakes up."""
LOSES_CONTROLLER = 0.9
"""Up to here the controller is lost after the broker was down."""
CANNOT_READ = 0.4


def _not_the_controller(world: World, fault: Fault) -> Machine:
    """The broker that the fault hits, or another one if it is the controller."""
    name = f"broker-{fault.broker_id}"
    return world.machines[id_of(other_than(world, name) if links_of(world).controller == name else name)]


async def return_to_another_topic(world: World, fault: Fault) -> None:
    """See the head of this file. A broker that was down is up again before the topic is: it gets a replica, and in some
    cases the controller is lost before the broker hears of it. One that has slept gets a replica when it wakes up."""
    links, machine = links_of(world), _not_the_controller(world, fault)
    sleeps = fault.amount < SLEEPS
    topic = f"{BRIEF}again-{round(fault.at_s * 1000)}"
    key, state = TopicPartition(topic, 0), znodes.state_path(topic, 0)
    others = [each for each in world.machines if each != machine.broker_id]

    def lose_controller() -> None:
        if links.controller not in (None, machine.name):
            lost = world.machines[id_of(str(links.controller))]
            lost.kill()
            links.expire(lost.name)
            lost.start()

    async def tell(cluster: Cluster) -> None:
        admin = TopicAdmin(cluster, world.history, name=OPERATOR)
        mover = ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=topic)
        if await admin.create(topic, 1, len(world.machines)) is Outcome.FAILED:
            return
        await asyncio.sleep(SETTLES_S)
        if sleeps:
            machine.pause()
        else:
            machine.kill()
        links.expire(machine.name)
        await asyncio.sleep(SETTLES_S)
        await _reassign(mover, key, others)
        await _delete(admin, cluster, topic)
        if sleeps:
            await admin.create(topic, 1, len(others))
            if fault.amount < CANNOT_RENAME:
                machine.disk.traps.append(Trap(Bait("rename", FOLDER), machine, Harm.FAIL, passing=0, stays=True))
            machine.resume()
            await asyncio.sleep(SETTLES_S)
            await _reassign(mover, key, [machine.broker_id, others[0]])
        else:
            machine.start()
            await until(world, lambda: machine.running is not None, LOOKS_FOR_S, every_s=LOOK_S)
            creating = asyncio.ensure_future(admin.create(topic, 1, len(world.machines)))
            if fault.amount < LOSES_CONTROLLER:
                await before_next(world, lambda paths: state in paths, lose_controller, PATIENCE_S)
            await creating

    await world.as_operator(tell)
    machine.resume()
    if machine.disk.traps:
        machine.disk.traps.clear()
        machine.kill()
    machine.start()


async def _reassign(mover: ReplicaAdmin, key: TopicPartition, replicas: Sequence[int]) -> None:
    """Returns when the reassignment has ended, or after a while."""
    await mover.reassign({key: replicas})
    for _ in range(ATTEMPTS):
        if await mover.under_way() == []:
            return
        await asyncio.sleep(SETTLES_S / 2)


async def _delete(admin: TopicAdmin, cluster: Cluster, topic: str) -> None:
    for _ in range(ATTEMPTS):
        if await admin.delete(topic) is not Outcome.UNKNOWN:
            return
        await cluster.back_off()


async def return_to_another_directory(world: World, fault: Fault) -> None:
    """See the head of this file."""
    links, mover, machine = links_of(world), world.workload.replica_mover, _not_the_controller(world, fault)
    of_broker = [
        key for key, state in links.stored(world.workload.parcels).items() if machine.broker_id in state.in_sync
    ]
    if mover is None or not of_broker or is_moving(world) or machine.running is None:
        return
    key = of_broker[int(fault.amount * len(of_broker))]
    others = [each for each in world.machines if each != machine.broker_id]

    def moves() -> bool:
        return machine.running is not None and machine.running.log_manager.moves.get(key) is not None

    async def tell(cluster: Cluster) -> None:
        disks = DiskAdmin(cluster, world.history, name=OPERATOR)
        admin = ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=PARCELS)
        target = _other_directory(machine, key)
        if target is None:
            return
        world.thread_times.slowness[machine.name] = SLOW_MOVES
        await disks.move(machine.broker_id, key, target)
        await until(world, moves, LOOKS_FOR_S, every_s=LOOK_S)
        machine.kill()
        links.expire(machine.name)
        world.thread_times.slowness.pop(machine.name, None)
        await asyncio.sleep(SETTLES_S)
        await _reassign(admin, key, others)
        machine.start()
        if await until(world, lambda: machine.running is not None, LOOKS_FOR_S, every_s=LOOK_S):
            await disks.move(machine.broker_id, key, target)
            await _reassign(admin, key, [machine.broker_id, others[0]])

    async with mover.moving:
        await world.as_operator(tell)
    world.thread_times.slowness.pop(machine.name, None)
    machine.start()


def _other_directory(machine: Machine, key: TopicPartition) -> str | None:
    """The log directory in which the broker does not have this log; None without a log."""
    broker = machine.running
    log = None if broker is None else broker.log_manager.get(key)
    if broker is None or log is None:
        return None
    return next(each for each in DIRECTORIES if each != broker.log_manager.directory_of(log))


async def take_what_is_cleaned(world: World, fault: Fault) -> None:
    """See the head of this file. The replica comes back later."""
    machine = _not_the_controller(world, fault)
    if fault.amount < CANNOT_READ:
        taken = await _marked_as_uncleanable(world, machine, world.workload.balances)
    else:
        taken = await _cleaned(world, machine, world.workload.balances)
    others = [each for each in world.machines if each != machine.broker_id]

    async def tell(cluster: Cluster) -> None:
        if taken is not None:
            admin = ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=taken.topic)
            await _reassign(admin, taken, others)
            await asyncio.sleep(SETTLES_S)
            await _reassign(admin, taken, list(world.machines))

    await world.as_operator(tell)
    if fault.amount < CANNOT_READ:
        machine.kill()
        machine.start()


async def _cleaned(world: World, machine: Machine, keys: Sequence[TopicPartition]) -> TopicPartition | None:
    """Returns one of the partitions when its log is being cleaned; None if none is for a while."""

    def in_progress() -> list[TopicPartition]:
        cleaner = None if machine.running is None else machine.running.log_cleaner
        return [] if cleaner is None else [key for key in keys if key in cleaner.manager.in_progress]

    return in_progress()[0] if await until(world, lambda: bool(in_progress()), LOOKS_FOR_S, every_s=LOOK_S) else None


async def _marked_as_uncleanable(
    world: World, machine: Machine, keys: Sequence[TopicPartition]
) -> TopicPartition | None:
    """A directory cannot be read until one of the partitions is marked as uncleanable, or for a while."""
    there = _other_directory(machine, keys[0])
    if there is None:
        return None
    here = next(each for each in DIRECTORIES if each != there)

    def marked() -> list[TopicPartition]:
        cleaner = None if machine.running is None else machine.running.log_cleaner
        logs = [] if cleaner is None else cleaner.manager.uncleanable()[here]
        return [log.topic_partition for log in logs if log.topic_partition in keys]

    machine.disk.broken = {here}
    is_marked = await until(world, lambda: bool(marked()), LOOKS_FOR_S, every_s=LOOK_S)
    machine.disk.broken = set()
    return marked()[0] if is_marked else None
