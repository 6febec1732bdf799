"""Faults that are aimed at replication and at the controller. Each is a story around a change in the metadata store:
what happens a moment before or after, and what does not arrive.

    the in-sync replicas grow, but the leader learns of it late, and hears nothing of the one that has joined
    the leader is parted from the controller for so long that it proposes other in-sync replicas, and then lost
    a broker is lost when the controller has no connection to the store for a moment
    an election is stored, but the controller gets no answer
    requests of a controller arrive when another one is in office
    the controller loses its office while a change is on its way to the store
    the controller is lost and back before another one is in office
    all brokers are lost at once, and start again
    the leader that is alone in sync is lost, and a replica that lacks some of its records leads

In each, a session with the store ends and begins anew at once, so that none takes long. The broker `fault.broker_id` is
the leader or the one that makes the controller work; `fault.other` is another broker. aimed_at_replicas.py has more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from odradek.protocol.wire_codes import ElectionType
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.requests import elect_leaders
from tests.simulation.final_state import Stored
from tests.simulation.store_links import StoreLinks

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

PATIENCE_S = 1.5
LAG_PATIENCE_S = 4.0
REJOIN_S = 0.5
LOOK_S = 0.0005
SLOW, VERY_SLOW = 200.0, 1000.0
"""How many times as long the messages between a controller and the store take."""


def links_of(world: World) -> StoreLinks:
    """The ways to the store, which several brokers share."""
    assert world.store_links is not None
    return world.store_links


def name_of(fault: Fault) -> str:
    """The broker that the fault hits."""
    return f"broker-{fault.broker_id}"


def id_of(name: str) -> int:
    """The id of a broker."""
    return int(name.rpartition("-")[2])


def cut_both(world: World, one: str, other: str) -> None:
    """Lets nothing pass between two hosts."""
    if one != other:
        world.network.cut(one, other)
        world.network.cut(other, one)


def heal_both(world: World, one: str, other: str) -> None:
    """Ends a cut."""
    if one != other:
        world.network.heal(one, other)
        world.network.heal(other, one)


def other_than(world: World, *names: str | None) -> str:
    """Returns the first broker that does not have one of these names; if all have, the first broker."""
    brokers = [machine.name for machine in world.machines.values()]
    return next((name for name in brokers if name not in names), brokers[0])


async def at_change(
    world: World,
    trigger: Callable[[], object],
    is_it: Callable[[Stored, Stored], bool],
    act: Callable[[], object],
    patience_s: float = PATIENCE_S,
) -> bool:
    """Calls `trigger`, then `act` at the first change that `is_it`, before the store answers. Returns whether there was
    one in time."""
    changed: asyncio.Future[None] = world.loop.create_future()

    def look(before: Stored, after: Stored) -> bool:
        if not is_it(before, after):
            return False
        act()
        changed.set_result(None)
        return True

    stop = links_of(world).at_change(look)
    trigger()
    await asyncio.wait([changed], timeout=patience_s)
    stop()
    world.trace.note("moment", "came" if changed.done() else "did not come")
    return changed.done()


async def until(
    world: World, is_so: Callable[[], bool], patience_s: float = PATIENCE_S, *, every_s: float = LOOK_S
) -> bool:
    """Looks every so often until it is so. Returns whether it was in time."""
    give_up_at = world.loop.time() + patience_s
    found = is_so()
    while not found and world.loop.time() < give_up_at:
        await asyncio.sleep(every_s)
        found = is_so()
    world.trace.note("moment", "came" if found else "did not come")
    return found


async def _move_leaders(world: World, fault: Fault) -> None:
    """Takes the leaderships from a broker that is not the controller, which is back in sync at once."""
    links = links_of(world)
    links.expire(fault.other if links.controller == name_of(fault) else name_of(fault))
    await asyncio.sleep(REJOIN_S)


def _is_election(before: Stored, after: Stored) -> bool:
    return before.leader_epoch != after.leader_epoch


async def join_unheard(world: World, fault: Fault) -> None:
    """The other broker joins the in-sync replicas of a leader, but the store's answer to the controller takes long, and
    no fetch reaches the leader, which is then lost."""
    links, leader, joiner = links_of(world), name_of(fault), fault.other
    slow: list[str] = []

    def joins(before: Stored, after: Stored) -> bool:
        return after.leader_id == fault.broker_id and id_of(joiner) in {*after.in_sync} - {*before.in_sync}

    def part() -> None:
        world.network.cut(joiner, leader)
        if links.controller is not None:
            slow.append(links.controller)
            links.slow_down(slow[0], VERY_SLOW)

    if await at_change(world, lambda: links.expire(joiner), joins, part):
        await asyncio.sleep(0.4 + 0.4 * fault.amount)
        await at_change(world, lambda: links.expire(leader), _is_election, lambda: None)
    for name in slow:
        links.slow_down(name, 1.0)


async def lose_parted_leader(world: World, fault: Fault) -> None:
    """The leader hears nothing of the controller for so long that it proposes to do without it. Then it is lost."""
    links, leader = links_of(world), name_of(fault)
    controller = links.controller or fault.other
    cut_both(world, leader, fault.other if controller == leader else controller)
    await asyncio.sleep(3.2 + fault.amount)
    links.expire(leader)


async def lose_answer(world: World, fault: Fault) -> None:
    """The controller is cut from the store when an election is stored, before it gets the answer."""
    links = links_of(world)
    cut: list[str] = []

    def part() -> None:
        if links.controller is not None:
            cut.append(links.controller)
            links.cut(cut[0])

    await _move_leaders(world, fault)
    if links.controller is not None:
        await at_change(world, lambda: world.elect(id_of(str(links.controller))), _is_election, part)
    await asyncio.sleep(fault.seconds)
    for name in cut:
        links.heal(name)


async def delay_requests(world: World, fault: Fault) -> None:
    """What the controller has sent to one broker arrives when another controller is in office and has changed it."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return
    target = fault.other if fault.other != controller else name_of(fault)
    stopped = world.machines[id_of(other_than(world, controller, target))]
    world.network.cut(controller, target)
    loses = partial(world.restart_gently, stopped) if fault.amount < 0.7 else partial(links.expire, stopped.name)
    await at_change(world, loses, _is_election, lambda: None)
    await asyncio.sleep(0.05)
    links.expire(controller)
    await asyncio.sleep(0.5 + 0.5 * fault.amount)
    heal_both(world, controller, target)


async def depose_controller(world: World, fault: Fault) -> None:
    """An operator takes the office from the controller, whose messages to the store take long, while it elects."""
    links = links_of(world)
    await _move_leaders(world, fault)
    controller = links.controller
    if controller is None:
        return
    links.slow_down(controller, SLOW)
    world.elect(id_of(controller))
    await asyncio.sleep(0.01 + 0.02 * fault.amount)
    links.delete(znodes.CONTROLLER)
    await asyncio.sleep(0.5)
    links.slow_down(controller, 1.0)


async def restart_controller(world: World, fault: Fault) -> None:
    """The controller is lost, and starts again so soon that no other controller sees it missing. If its power fails,
    its disk was slow before: the followers have records that its own log loses."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return
    machine = world.machines[id_of(controller)]
    entry = links.store.entry(znodes.broker_path(id_of(controller)))
    if world.is_durable:
        world.thread_times.slowness[controller] = SLOW
        await asyncio.sleep(0.1 + 0.2 * fault.amount)
        machine.cut_power()
        world.thread_times.slowness.pop(controller, None)
    else:
        machine.kill()
    machine.start()
    await asyncio.sleep(0.2 + 0.2 * fault.amount)
    if entry is not None:
        links.store.expire(entry.owner)


async def restart_all(world: World, fault: Fault) -> None:
    """All brokers are lost while their requests to each other take long, so that much is half done, and start again."""
    machines = list(world.machines.values())
    pairs = [(one.name, other.name) for one in machines for other in machines if one is not other]
    for pair in pairs:
        world.network.slow_down(*pair, SLOW)
    await asyncio.sleep(0.2 + 0.2 * fault.amount)
    owners = [links_of(world).store.entry(znodes.broker_path(machine.broker_id)) for machine in machines]
    for machine in machines:
        if world.is_durable and fault.amount < 0.5:
            machine.cut_power()
        else:
            machine.kill()
    for pair in pairs:
        world.network.slow_down(*pair, 1.0)
    for machine in machines:
        machine.start()
    await asyncio.sleep(0.3)
    for entry in owners:
        if entry is not None:
            links_of(world).store.expire(entry.owner)


async def elect_uncleanly(world: World, fault: Fault) -> None:
    """A follower hears nothing of the leader until the leader is alone in sync. Then the leader is lost: the follower
    leads, without the records that only the leader had. The leader follows it when it is back. If the topic does not
    allow this, operators ask for it: at first they are told that there is a leader, or none that could be."""
    links = links_of(world)
    by_hand = partial(_elect_by_hand, world)
    chosen = [
        (state.leader_id, follower)
        for state in links.stored(world.workload.clicks).values()
        for follower in state.in_sync
        if len(state.in_sync) == 2
        and state.leader_id in world.machines
        and follower != state.leader_id
        and f"broker-{follower}" != links.controller
    ]
    if not chosen:
        return
    leader_id, follower_id = chosen[int(fault.amount * len(chosen))]
    leader, follower = world.machines[leader_id], world.machines[follower_id]

    def is_alone(_before: Stored, after: Stored) -> bool:
        return after.leader_id == leader_id and after.in_sync == (leader_id,)

    cut = partial(cut_both, world, leader.name, follower.name)
    if await at_change(world, cut, is_alone, lambda: None, LAG_PATIENCE_S):
        by_hand()
        await asyncio.sleep(0.5 + fault.amount)
        leader.kill()
        links.expire(leader.name)
        await asyncio.sleep(0.1)
        by_hand()
        await asyncio.sleep(fault.seconds)
    heal_both(world, leader.name, follower.name)
    leader.start()


def _elect_by_hand(world: World) -> None:
    controller = links_of(world).controller
    if not world.elects_by_hand or controller is None:
        return
    controller_id, request = id_of(controller), elect_leaders(ElectionType.UNCLEAN, world.workload.clicks)

    async def ask(cluster: Cluster) -> None:
        world.judge.unclean_leaders_asked_for()
        await cluster.ask_broker(controller_id, request)

    world.as_operator(ask)


async def miss_a_change(world: World, fault: Fault) -> None:
    """The controller's connection to the store breaks at the moment when a broker's registration ends, before it hears
    of it. It connects again at once."""
    links = links_of(world)
    controller = links.controller
    lost = fault.other if controller == name_of(fault) else name_of(fault)

    def is_registration(paths: Collection[str]) -> bool:
        if controller is None or znodes.broker_path(id_of(lost)) not in paths:
            return False
        links.drop(controller)
        return True

    stop = links.before_change(is_registration)
    links.expire(lost)
    stop()
    await asyncio.sleep(fault.seconds)


def heal(world: World, fault: Fault) -> None:
    """Ends what a story leaves behind."""
    names = [machine.name for machine in world.machines.values()]
    for name in names:
        heal_both(world, name_of(fault), name)
