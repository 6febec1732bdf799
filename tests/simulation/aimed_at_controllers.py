"""Faults that are aimed at what the controller decides over several steps, and at what it must refuse.

    a leader stops that has a follower out of sync, or about to be
    two brokers stop at once
    preferred leaders are elected while a reassignment is under way
    the controller is lost at a step of a reassignment: when it begins, when a new replica joins the in-sync replicas,
    when it completes, when it is finished
    a topic is to be deleted, and one of its brokers, or a log directory, is lost; operators ask for leaders of the
    topic, and for its deletion again
    the controller, to which the store is far, learns at once that a broker has registered anew and another one is lost
    a replica is lost when its leader has proposed it as in sync, which the controller hears later than of its loss

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import OPERATOR, PARCELS
from tests.simulation.aimed_faults import (
    LAG_PATIENCE_S,
    PATIENCE_S,
    SLOW,
    cut_both,
    heal_both,
    id_of,
    links_of,
    name_of,
    other_than,
)
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.reassignments import ReplicaAdmin
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.examination import has_proposed
from tests.simulation.machine import DIRECTORIES
from tests.simulation.stored_changes import MARK_PATH

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

MOVE_PATIENCE_S = 6.0
SLOW_STOPS = 200.0
"""How many times as long the disks take."""
DELETION_PATIENCE_S = 8.0
LOOK_S = 0.0005
ENTRY = znodes.topic_path(PARCELS)


async def before_next(
    world: World, is_it: Callable[[Collection[str]], bool], act: Callable[[], object], patience_s: float
) -> bool:
    """Calls `act` when the next such change has been made, before its answer is sent. Returns whether it came in
    time."""
    came: asyncio.Future[None] = world.loop.create_future()

    def look(paths: Collection[str]) -> bool:
        if not is_it(paths):
            return False
        world.loop.call_soon(act)
        came.set_result(None)
        return True

    stop = links_of(world).before_change(look)
    await asyncio.wait([came], timeout=patience_s)
    stop()
    world.trace.note("moment", "came" if came.done() else "did not come")
    return came.done()


async def stop_without_follower(world: World, fault: Fault) -> None:
    """A broker stops as SIGTERM asks, while another one hears nothing of it: for so short that it is still in sync, or
    for so long that it is not."""
    leader = world.machines[fault.broker_id]
    cut_both(world, leader.name, fault.other)
    await asyncio.sleep(0.3 if fault.amount < 0.5 else LAG_PATIENCE_S)
    world.restart_gently(leader)
    await asyncio.sleep(0.5 + fault.seconds)
    heal_both(world, leader.name, fault.other)


async def stop_two(world: World, fault: Fault) -> None:
    """Two brokers stop as SIGTERM asks, nearly at once; in some cases their disks are slow."""
    machines = world.machines[fault.broker_id], world.machines[id_of(fault.other)]
    if fault.amount * 10 % 1 < 0.5:
        for machine in machines:
            world.thread_times.slowness[machine.name] = SLOW_STOPS
    for machine in machines:
        world.restart_gently(machine)
        await asyncio.sleep(0.05 * fault.amount)
    await asyncio.sleep(fault.seconds)
    for machine in machines:
        world.thread_times.slowness.pop(machine.name, None)


def is_moving(world: World) -> bool:
    """Whether a reassignment of the topic whose replicas move is under way, or not finished."""
    topic = links_of(world).metadata().topics.get(PARCELS)
    return topic is not None and bool(topic.reassigning)


async def elect_while_moving(world: World, fault: Fault) -> None:
    """Operators have preferred leaders elected when a reassignment begins, and a moment later."""
    links = links_of(world)

    def elect() -> None:
        if links.controller is not None:
            world.elect(id_of(links.controller))

    if await before_next(world, lambda paths: ENTRY in paths and not is_moving(world), elect, MOVE_PATIENCE_S):
        await asyncio.sleep(0.05 * fault.amount)
        elect()


async def lose_mover(world: World, fault: Fault) -> None:
    """The controller is lost at one of the steps of a reassignment."""
    links = links_of(world)
    lost: list[str] = []

    def lose() -> None:
        if links.controller is not None:
            lost.append(links.controller)
            world.machines[id_of(lost[0])].kill()
            links.expire(lost[0])

    steps: list[Callable[[Collection[str]], bool]] = [
        lambda paths: ENTRY in paths and not is_moving(world),
        lambda paths: ENTRY not in paths and is_moving(world) and any(path.startswith(f"{ENTRY}/") for path in paths),
        lambda paths: ENTRY in paths and is_moving(world) and len(paths) > 1,
        lambda paths: ENTRY in paths and is_moving(world) and len(paths) == 1,
    ]
    await before_next(world, steps[int(fault.amount * len(steps))], lose, MOVE_PATIENCE_S)
    await asyncio.sleep(0.2 + fault.seconds)
    for name in lost:
        world.machines[id_of(name)].start()


async def delete_without(world: World, fault: Fault) -> None:
    """A broker is lost, or one of its log directories, when a topic is marked for deletion. Meanwhile operators ask for
    leaders of the topic, and for its deletion again."""
    links, machine = links_of(world), world.machines[fault.broker_id]
    marked: list[TopicPartition] = []
    slow: list[str] = []

    def is_marked(paths: Collection[str]) -> bool:
        marked.extend(TopicPartition(path.rpartition("/")[2], 0) for path in paths if MARK_PATH.fullmatch(path))
        return bool(marked)

    def ask_again() -> None:
        topic = marked[0].topic
        world.as_operator(lambda cluster: TopicAdmin(cluster, world.history, name=OPERATOR).delete(topic))

    def lose() -> None:
        if links.controller is not None:  # it learns late that the mark is stored, and is asked for it meanwhile
            slow.append(links.controller)
            links.slow_down(slow[0], SLOW)
            ask_again()
        if fault.amount < 0.4:
            machine.disk.broken = {DIRECTORIES[fault.amount < 0.2]}
        else:
            machine.kill()
            links.expire(machine.name)

    await before_next(world, is_marked, lose, DELETION_PATIENCE_S)
    await asyncio.sleep(0.2 + fault.seconds)
    for name in slow:
        links.slow_down(name, 1.0)
    if any(key.topic in links.metadata().deletions for key in marked) and links.controller is not None:
        world.elect(id_of(links.controller), partitions=marked)
        _move(world, marked[0], id_of(links.controller))
        ask_again()
    await asyncio.sleep(0.6)
    machine.disk.broken = set()
    machine.kill()
    machine.start()


def _move(world: World, key: TopicPartition, broker_id: int) -> None:
    async def move(cluster: Cluster) -> None:
        await ReplicaAdmin(cluster, world.history, name=OPERATOR, topic=key.topic).reassign({key: [broker_id]})

    world.as_operator(move)


async def lose_the_proposed(world: World, fault: Fault) -> None:
    """A replica that was behind is lost when its leader proposes it as in sync. The proposal takes so long that the
    controller knows of the loss before."""
    links, leader, joiner = links_of(world), name_of(fault), fault.other
    controller = links.controller
    if controller == leader:
        return
    slowed = controller or other_than(world, leader, joiner)
    links.expire(joiner)
    await asyncio.sleep(0.02 * fault.amount)
    world.network.slow_down(leader, slowed, SLOW)
    give_up_at = world.loop.time() + PATIENCE_S
    is_proposed = False
    while not is_proposed and world.loop.time() < give_up_at:
        await asyncio.sleep(LOOK_S)
        is_proposed = has_proposed(world.machines, fault.broker_id, id_of(joiner))
    if is_proposed:
        world.machines[id_of(joiner)].kill()
        links.expire(joiner)
        await asyncio.sleep(0.3 + fault.seconds)
    world.network.slow_down(leader, slowed, 1.0)
    world.machines[id_of(joiner)].start()


async def lose_while_another_registers(world: World, fault: Fault) -> None:
    """The messages between the controller and the store take long. It learns at once that one broker has registered
    anew, and that another one is lost: what it is about to send to the lost one for the sake of the other goes
    nowhere."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return
    returning = other_than(world, controller)
    lost = other_than(world, controller, returning)
    links.slow_down(controller, SLOW)
    links.expire(returning)
    world.machines[id_of(lost)].kill()
    links.expire(lost)
    await asyncio.sleep(0.5 + fault.seconds)
    links.slow_down(controller, 1.0)
    world.machines[id_of(lost)].start()
