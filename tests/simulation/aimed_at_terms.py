"""Faults that are aimed at terms of controllers: that end in the midst of something, or begin when the next one has
begun. And at what a controller decides about a broker that is about to stop.

    an operator takes the office from a controller whose own broker has lost a log directory, while a topic is created
    two controllers follow each other, and the second one has elected leaders before the first one knows them
    a topic is created on a broker that shuts down, so that it has no leader, and is reassigned or deleted meanwhile

In each, those that were lost are back soon. See aimed_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.metadata_store import znodes
from tests.simulation.aimed_at_controllers import before_next
from tests.simulation.aimed_faults import PATIENCE_S, SLOW, id_of, links_of, name_of, other_than, until
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.machine import DIRECTORIES

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

FAILS_S = 2.0
"""Until a controller knows that a log directory has failed."""
LOSES_S = 0.3
"""Until its broker has answered that it has lost the replicas there, if its messages to the store take long."""
LOADS_S = 1.0
CREATION_S, LEADS_S = 0.3, 1.0


async def depose_who_loses(world: World, fault: Fault) -> None:
    """A log directory of the controller's broker fails. Then operators create a topic, and when it is stored, and the
    messages to the store take long, one takes the controller's office."""
    links = links_of(world)
    controller = links.controller
    if controller is None:
        return
    machine, topic = world.machines[id_of(controller)], BriefTopic(world, f"deposed-{fault.at_s * 1000:.0f}")
    machine.disk.broken = {DIRECTORIES[fault.amount < 0.5]}
    await asyncio.sleep(FAILS_S)
    links.slow_down(controller, SLOW)
    creating = world.loop.create_task(topic.create(replicas=len(world.machines)))
    path = znodes.topic_path(topic.name)
    if await before_next(world, lambda paths: path in paths, lambda: None, PATIENCE_S):
        await asyncio.sleep(LOSES_S * fault.amount)
        links.delete(znodes.CONTROLLER)
    await creating
    links.slow_down(controller, 1.0)
    machine.disk.broken = set()
    machine.kill()
    machine.start()
    await topic.delete()


async def succeed_twice(world: World, _fault: Fault) -> None:
    """The controller loses its office. The next one has it for a moment, and its messages to the store take long. The
    one after that elects leaders, because a broker loses its session, before the other one has read the old ones."""
    links = links_of(world)
    late: list[str] = []

    def is_taken(paths: Collection[str]) -> bool:
        return znodes.CONTROLLER in paths and links.controller is None

    def depose() -> None:
        if links.controller is not None:
            late.append(links.controller)
            links.slow_down(late[0], SLOW)
            links.delete(znodes.CONTROLLER)

    def lose() -> None:
        links.expire(other_than(world, late[0], links.controller))

    world.loop.call_soon(links.delete, znodes.CONTROLLER)
    if await before_next(world, is_taken, depose, PATIENCE_S) and late:
        await before_next(world, is_taken, lose, PATIENCE_S)
        await asyncio.sleep(LOADS_S)
    for name in late:
        links.slow_down(name, 1.0)


async def create_on_who_stops(world: World, fault: Fault) -> None:
    """A broker stops as SIGTERM asks, while its disk is slow. When the controller knows, operators create a topic on it
    alone. They move the topic to another broker, and delete it, before the broker is back: as long as nobody leads it,
    no broker knows of it, and it cannot be deleted."""
    links = links_of(world)
    stopping = fault.broker_id if links.controller != name_of(fault) else id_of(fault.other)
    machine, topic = world.machines[stopping], BriefTopic(world, f"forlorn-{fault.at_s * 1000:.0f}")
    world.thread_times.slowness[machine.name] = SLOW
    ending = world.loop.create_task(machine.stop())
    await until(world, partial(_is_known_to_stop, world, stopping))
    creating = world.loop.create_task(topic.create(on=[stopping]))
    await asyncio.sleep(CREATION_S)
    if fault.amount < 0.5 and links.controller is not None:
        await topic.reassign([id_of(links.controller)])
    topic.ask_to_delete()
    world.thread_times.slowness.pop(machine.name, None)
    await asyncio.wait([ending, creating])
    machine.start()
    await asyncio.sleep(LEADS_S)
    await topic.delete()


def _is_known_to_stop(world: World, broker_id: int) -> bool:
    """Whether a controller lets a broker shut down."""
    terms = (getattr(machine.broker, "controller", None) for machine in world.machines.values())
    return any(
        each is not None and each.terms.term is not None and broker_id in each.terms.term.context.shutting_down
        for each in terms
    )
