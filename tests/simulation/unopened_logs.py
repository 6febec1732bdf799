"""A log that a broker cannot open because it has no room for it.

start without room for a log   The broker is killed when it creates the first segment of a new log, and finds no room
                               when it starts again: it serves the others, refuses this one, and stops. In the end
                               there is room, and the broker is restarted
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.administration import BRIEF, OPERATOR
from tests.simulation.aimed_faults import links_of
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.disk_faults import STOPS_WITHIN_S
from tests.simulation.disk_traps import Bait, Harm, Trap

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

FIRST_SEGMENT = r"/0{20}\.log$"
KILLED_WITHIN_S = 1.0
SERVES_S = 2.0


async def start_without_room(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine = world.machines[fault.broker_id]
    topic = f"{BRIEF}unopened-{round(fault.at_s * 1000)}"
    trap = Trap(Bait("create", FIRST_SEGMENT), machine, Harm.KILL, passing=0, stays=False)
    machine.disk.traps.append(trap)
    world.as_operator(
        lambda cluster: TopicAdmin(cluster, world.history, name=OPERATOR).create(topic, 1, len(world.machines))
    )
    await asyncio.sleep(KILLED_WITHIN_S)
    machine.disk.traps = []
    machine.kill()
    machine.disk.room = 0
    if world.store_links is not None:
        links_of(world).expire(machine.name)
    machine.start()
    await asyncio.sleep(SERVES_S)
    stopping = asyncio.get_running_loop().create_task(machine.stop())
    await asyncio.wait([stopping], timeout=STOPS_WITHIN_S)
