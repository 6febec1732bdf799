"""Faults of operators who change the metadata store by hand, and of brokers that have to do without it.

    entries are written again with what they have, so that the versions that brokers know are old
    the registration of a broker gets another address, or is deleted, while the broker lives
    the controller loses the store at a change, and stops as SIGTERM asks, with the change under way
    while brokers stand for election, slowly, one loses its session and another one its connection
    a broker registers anew, and the controller does not get the answer to the first that it sends, and sends it again
    all sessions end when settings are changed
    a broker stands still, without a session, while topics come, move and go

In each, the broker concerned is back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.acl_znodes import ROOTS
from tests.simulation.aimed_at_controllers import LOOK_S, before_next
from tests.simulation.aimed_at_transactions import slow_down
from tests.simulation.aimed_faults import SLOW, id_of, links_of, name_of
from tests.simulation.store_links import STATE_PATH, StoreLinks

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

TOUCHES, LOST_EVERY = 10, 3
PAUSE_S = 0.05
MOVES = 4
SLEEPS_S = 4.0
STOPS_S = 5.0
"""Longer than a broker that stops waits for the store."""
STEP_PATIENCE_S = 5.0
LOOKS = 1000
RESETS_S = 0.1
"""Until both ends know that a connection is broken."""
FIRST_REQUESTS_S = 0.03
"""In which a controller has sent all that a new broker must know."""
ELSEWHERE = "ELSEWHERE"
STEPS: tuple[Callable[[str], object], ...] = (
    STATE_PATH.fullmatch,
    lambda path: path.startswith(f"{znodes.DELETE_TOPICS}/"),
    lambda path: path.startswith(f"{znodes.TOPICS}/") and path.count("/") == znodes.TOPICS.count("/") + 1,
    lambda path: path == znodes.PRODUCER_ID_BLOCK,
)
"""Which paths the changes of a controller have."""


async def touch_entries(world: World, fault: Fault) -> None:
    """An operator writes what controllers and brokers change with what it has already, again and again, while the
    controller elects and its messages to the store take long. A broker loses its session several times."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return
    links.slow_down(controller, SLOW)
    lost = fault.other if controller == name_of(fault) else name_of(fault)
    world.elect(id_of(controller))
    for number in range(TOUCHES):
        if number % LOST_EVERY == 0:
            links.expire(lost)
        for path in list(_touchable(links)):
            links.touch(path)
        await asyncio.sleep(PAUSE_S * (1 + fault.amount))
    links.slow_down(controller, 1.0)


def _touchable(links: StoreLinks) -> Iterator[str]:
    """The entries whose versions somebody may know. A state is touched only if it is of the controller in office, and
    younger than all registrations: a new controller compares their ages."""
    tree = links.store.tree
    brokers = [entry.created for number in links.registered if (entry := tree.get(znodes.broker_path(number)))]
    epoch = links.store.entry(znodes.CONTROLLER_EPOCH)
    for path, entry in tree.items():
        if STATE_PATH.fullmatch(path):
            is_current = epoch is not None and json.loads(entry.data or b"{}")["controller_epoch"] == int(
                epoch.data or b"0"
            )
            if is_current and entry.modified > max(brokers, default=0):
                yield path
        elif path.startswith((*(f"{root}/" for root in ROOTS.values()), f"{znodes.TOPIC_CONFIGS}/")):
            if entry.data:
                yield path
        elif path in (znodes.PRODUCER_ID_BLOCK, znodes.FEATURE):
            yield path


async def move_registration(world: World, fault: Fault) -> None:
    """An operator gives the registration of a broker another address besides, several times. The broker, whose messages
    to the store take long, puts its own in place again."""
    links, path = links_of(world), znodes.broker_path(fault.broker_id)
    entry = links.store.entry(path)
    if entry is None:
        return
    value = json.loads(entry.data or b"{}")
    value["endpoints"].append(f"{ELSEWHERE}://10.9.9.9:9092")
    value["listener_security_protocol_map"][ELSEWHERE] = "PLAINTEXT"
    links.slow_down(name_of(fault), SLOW)
    for _ in range(MOVES):
        links.touch(path, json.dumps(value).encode())
        await asyncio.sleep(0.1 + 0.2 * fault.amount)
    await asyncio.sleep(0.3)
    links.slow_down(name_of(fault), 1.0)


async def delete_registration(world: World, fault: Fault) -> None:
    """An operator deletes the registration of a broker, which goes on, and registers again: soon, or when its messages
    to the store have arrived."""
    links = links_of(world)
    if fault.amount < 0.5:
        links.slow_down(name_of(fault), SLOW)
    links.delete(znodes.broker_path(fault.broker_id))
    await asyncio.sleep(0.5 + fault.amount)
    links.slow_down(name_of(fault), 1.0)


async def stop_without_store(world: World, fault: Fault) -> None:
    """The controller loses the store when a change of it is made, before it hears of it, and stops at the same time as
    SIGTERM asks. It gives up when the store has been silent for a while, and is back when its session has ended. In
    most cases what brokers send to each other takes long meanwhile."""
    links = links_of(world)
    step = STEPS[int(fault.amount * len(STEPS))]
    stopped: list[str] = []

    def stop() -> None:
        if links.controller is not None:
            stopped.append(links.controller)
            links.cut(stopped[0])
            if fault.amount * 100 % 1 < 0.9:
                slow_down(world, SLOW)
            world.restart_gently(world.machines[id_of(stopped[0])])

    def is_step(paths: Collection[str]) -> bool:
        return any(map(step, paths))

    if await before_next(world, is_step, stop, STEP_PATIENCE_S):
        await asyncio.sleep(STOPS_S)
    slow_down(world, 1.0)
    for name in stopped:
        links.heal(name)


async def lose_who_stands(world: World, fault: Fault) -> None:
    """The controller loses its office. The messages of all brokers to the store take long. While they stand for
    election, one loses its session, and another one its connection."""
    links = links_of(world)
    for machine in world.machines.values():
        links.slow_down(machine.name, SLOW)
    links.delete(znodes.CONTROLLER)
    await asyncio.sleep(0.4 * fault.amount)
    links.expire(name_of(fault))
    links.drop(fault.other)
    await asyncio.sleep(0.5)
    for machine in world.machines.values():
        links.slow_down(machine.name, 1.0)


async def repeat_first_request(world: World, fault: Fault) -> None:
    """A broker registers anew. A moment later, when the controller has told it of the brokers, or when it has all its
    roles, the controller hears nothing of it until their connections break."""
    links, path, name = links_of(world), znodes.broker_path(fault.broker_id), name_of(fault)
    controller, broker = links.controller, world.machines[fault.broker_id].running
    if controller is None or controller == name or broker is None:
        return
    changes = broker.cluster.changes
    before = changes._full_in
    links.expire(name)
    await before_next(world, lambda paths: path in paths, lambda: None, STEP_PATIENCE_S)
    if fault.amount < 0.5:
        await asyncio.sleep(2 * FIRST_REQUESTS_S * fault.amount)
    else:
        world.network.slow_down(name, controller, SLOW)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            if changes._full_in != before:
                break
        world.network.slow_down(name, controller, 1.0)
    world.network.cut(name, controller)
    await asyncio.sleep(0.2)
    world.network.reset(name, controller)
    await asyncio.sleep(RESETS_S)
    world.network.heal(name, controller)


async def expire_all(world: World, _fault: Fault) -> None:
    """All connections break when settings are changed, before anybody hears of it, and the sessions end."""
    links = links_of(world)

    def is_setting(paths: Collection[str]) -> bool:
        if not any(path.startswith((f"{znodes.TOPIC_CONFIGS}/", f"{znodes.BROKER_CONFIGS}/")) for path in paths):
            return False
        for machine in world.machines.values():
            links.drop(machine.name)
        return True

    def expire() -> None:
        for machine in world.machines.values():
            links.expire(machine.name)

    await before_next(world, is_setting, expire, STEP_PATIENCE_S)


async def sleep_through(world: World, fault: Fault) -> None:
    """A broker stands still, and its session ends at once, until topics have come, moved and gone."""
    machine = world.machines[fault.broker_id]
    machine.pause()
    links_of(world).expire(machine.name)
    await asyncio.sleep(SLEEPS_S * (1 + fault.amount))
    machine.resume()
