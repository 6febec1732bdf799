"""A fault that is aimed at what a leader asks another broker before it writes the first record of a transaction: the
leader stops while it waits for the answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.aimed_at_transactions import slow_down
from tests.simulation.aimed_faults import until
from tests.simulation.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

SLOW = 100.0
"""How many times as long the question takes."""
STOPS_S = 0.3


def _is_asking(machine: Machine) -> bool:
    """Whether a request waits for the answer of a coordinator on another broker."""
    broker = machine.running
    if broker is None or machine.is_paused:
        return False
    unsettled = broker.replica_manager.verification._unsettled.values()
    return any(not asked.answers for waiting in unsettled for asked in waiting)


async def stop_while_it_asks(world: World, _fault: Fault) -> None:
    """The broker stops as SIGTERM asks. In some seeds it does not hand over what it leads."""
    found: list[Machine] = []

    def is_one_asking() -> bool:
        found.extend(filter(_is_asking, world.machines.values()))
        return bool(found)

    slow_down(world, SLOW)
    if await until(world, is_one_asking):
        world.restart_gently(found[0])
        await asyncio.sleep(STOPS_S)
    slow_down(world, 1.0)
