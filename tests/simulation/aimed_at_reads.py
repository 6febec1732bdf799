"""Faults that strike when a broker reads an entry of the metadata store.

    an operator writes what a broker has read, and is about to change, before the broker does
    notices come as other tools write them: about clients and users that nobody knows. Some are withdrawn before they
    are read, and a connection breaks between a notice and what it names
    settings of a topic are changed by a broker whose messages to the store take long, while the topic is deleted
    the controller loses the store when it reads which brokers there are, and stops as SIGTERM asks

See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.acl_znodes import CHANGES, ROOTS, acl_change
from odradek.broker.metadata_store.interface import Create
from odradek.broker.security.authorizer.acl import ResourcePattern
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.wire_codes import AclPatternType, AclResourceType, ConfigOperation, ConfigResourceType
from tests.simulation.aimed_at_the_store import STEP_PATIENCE_S, STOPS_S
from tests.simulation.aimed_faults import SLOW, id_of, links_of, name_of, other_than
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.client.settings import Altered, Resource

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

CONTENDS_S = 3.0
MOST_WRITES = 3
"""How often an operator is faster at one entry: a broker gives up a change of access rules after ten times."""
CONTENDED = tuple(
    f"{root}/" for root in (znodes.TOPIC_CONFIGS, znodes.BROKER_CONFIGS, znodes.USER_CONFIGS, *ROOTS.values())
)
NOBODY = "nobody"
TOLD = (f"clients/{NOBODY}", f"users/{NOBODY}", f"users/{NOBODY}/clients/{NOBODY}")
TELLS_S = 1.5
SETTLES_S = 1.5


async def at_read(
    world: World, is_it: Callable[[str, str], bool], act: Callable[[str], object], patience_s: float
) -> bool:
    """Calls `act` with the name of the broker before the next such read. Returns whether it came in time."""
    came: asyncio.Future[None] = world.loop.create_future()

    def look(name: str, path: str) -> bool:
        if not is_it(name, path):
            return False
        act(name)
        came.set_result(None)
        return True

    stop = links_of(world).before_read(look)
    await asyncio.wait([came], timeout=patience_s)
    stop()
    world.trace.note("moment", "came" if came.done() else "did not come")
    return came.done()


async def write_what_is_read(world: World, fault: Fault) -> None:
    """When a broker has read what it may change, an operator writes the entry with what it has, before the broker's
    change arrives."""
    links = links_of(world)
    written: Counter[str] = Counter()

    def write(_name: str, path: str) -> bool:
        if (path == znodes.PRODUCER_ID_BLOCK or path.startswith(CONTENDED)) and written[path] < MOST_WRITES:
            written[path] += 1
            world.loop.call_soon(links.touch, path)
        return False

    stop = links.before_read(write)
    await asyncio.sleep(CONTENDS_S * (1 + fault.amount))
    stop()


async def tell_of_others(world: World, fault: Fault) -> None:
    """Other tools write notices. Those that name the same once more are withdrawn before they are read. One broker
    loses its connection when it reads what a notice names."""
    links = links_of(world)
    kept = [_settings_changed(entity) for entity in TOLD]
    doubled = [kept[0]]
    if links.store.entry(CHANGES[AclPatternType.LITERAL]) is not None:
        doubled.append(acl_change(ResourcePattern(AclResourceType.TOPIC, AclPatternType.LITERAL, NOBODY)))
    withdrawn: dict[str, None] = {}

    def withdraw(_name: str, path: str) -> bool:
        if path in withdrawn:
            links.delete(path)
        return False

    stop = links.before_read(withdraw)
    for creation in kept:
        links.create(creation)
    withdrawn.update(dict.fromkeys(map(links.create, doubled)))
    topic = world.workload.partitions[0].topic
    links.create(_settings_changed(f"topics/{topic}"))
    named = znodes.topic_config_path(topic)
    await at_read(world, lambda name, path: name == name_of(fault) and path == named, links.drop, TELLS_S)
    stop()


def _settings_changed(entity: str) -> Create:
    data = znodes.encode_config_change(f"/config/{entity}")
    return Create(znodes.CONFIG_CHANGE_PREFIX, data, sequential=True)


async def settle_who_goes(world: World, fault: Fault) -> None:
    """A broker is asked to change the settings of a topic. When it reads them its messages to the store begin to take
    long, and the topic is deleted."""
    links = links_of(world)
    name = name_of(fault) if links.controller != name_of(fault) else fault.other
    topic = BriefTopic(world, f"settled-{fault.at_s * 1000:.0f}")
    await topic.create(replicas=2)
    path = znodes.topic_config_path(topic.name)
    change = Altered(name="max.message.bytes", config_operation=ConfigOperation.SET, value="2000000")
    resource = Resource(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, configs=[change])
    world.ask(id_of(name), IncrementalAlterConfigsRequest(resources=[resource]))

    def go(name: str) -> None:
        links.slow_down(name, 1 + SLOW * fault.amount)
        world.loop.call_soon(topic.ask_to_delete)

    await at_read(world, lambda who, what: (who, what) == (name, path), go, STEP_PATIENCE_S)
    await asyncio.sleep(SETTLES_S)
    links.slow_down(name, 1.0)
    await topic.delete()


async def stop_at_a_read(world: World, fault: Fault) -> None:
    """A broker loses its session. The controller loses the store when it reads which brokers there are, and stops as
    SIGTERM asks. It gives up when the store has been silent for a while, and is back when its session has ended."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return

    def stop() -> None:
        links.cut(controller)
        world.restart_gently(world.machines[id_of(controller)])

    world.loop.call_soon(links.expire, other_than(world, controller))
    is_asking = await at_read(
        world,
        lambda name, path: name == controller and path == znodes.BROKER_IDS,
        lambda _: world.loop.call_soon(stop),
        STEP_PATIENCE_S,
    )
    if is_asking:
        await asyncio.sleep(STOPS_S)
        links.heal(controller)
