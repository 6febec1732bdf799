"""Logs that a broker cannot open, or cannot create.

start without room for a log   The broker is killed when it creates the first segment of a new log, and finds no room
                               when it starts again: it serves the others, refuses this one, and stops. In some cases
                               the topic is deleted meanwhile. In the end there is room, and the broker is restarted
leave half a log               The broker can neither create a log, nor rename the folder that it has begun. Then it can
                               do both, and tries again; or the replica is taken from it, before it can or after. In the
                               end the broker is restarted, and the topic is deleted
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.aimed_faults import id_of, links_of
from tests.simulation.brief_topics import BriefTopic
from tests.simulation.disk_faults import STOPS_WITHIN_S
from tests.simulation.disk_traps import Bait, Harm, Trap

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

FIRST_SEGMENT = r"/0{20}\.log$"
KILLED_WITHIN_S = 1.0
SERVES_S = 2.0
FAILS_S = 0.5
COMES_BACK_S = 3.0
"""After which a broker has tried again to create a log."""
DELETED = 0.5
TAKEN = 0.7


async def start_without_room(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine = world.machines[fault.broker_id]
    topic = BriefTopic(world, f"unopened-{round(fault.at_s * 1000)}")
    trap = Trap(Bait("create", FIRST_SEGMENT), machine, Harm.KILL, passing=0, stays=False)
    machine.disk.traps.append(trap)
    creating = asyncio.ensure_future(topic.create(replicas=len(world.machines)))
    await asyncio.sleep(KILLED_WITHIN_S)
    machine.disk.traps = []
    machine.kill()
    machine.disk.room = 0
    if world.store_links is not None:
        links_of(world).expire(machine.name)
    machine.start()
    await asyncio.sleep(SERVES_S)
    if fault.amount < DELETED:
        topic.ask_to_delete()
        await asyncio.sleep(SERVES_S)
    stopping = asyncio.get_running_loop().create_task(machine.stop())
    await asyncio.wait([stopping], timeout=STOPS_WITHIN_S)
    await creating


async def leave_half_a_log(world: World, fault: Fault) -> None:
    """See the head of this file."""
    machine = world.machines[fault.broker_id]
    topic = BriefTopic(world, f"half-{round(fault.at_s * 1000)}")
    folder = f"/{topic.partition}"
    fail = partial(Trap, machine=machine, harm=Harm.FAIL, passing=0, stays=True)
    machine.disk.traps += [fail(Bait("create", folder + FIRST_SEGMENT)), fail(Bait("rename", f"{folder}$"))]
    await topic.create(on=[id_of(fault.other), machine.broker_id])
    await asyncio.sleep(FAILS_S)
    if fault.amount < TAKEN:
        if fault.amount < TAKEN / 2:
            machine.disk.traps = []
        await topic.reassign([id_of(fault.other)])
        await asyncio.sleep(FAILS_S)
    machine.disk.traps = []
    await asyncio.sleep(COMES_BACK_S)
    machine.kill()
    machine.start()
    await topic.delete()


def mend(world: World, fault: Fault) -> None:
    """The disk works."""
    world.machines[fault.broker_id].disk.traps = []
