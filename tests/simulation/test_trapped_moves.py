from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_traps import DIRECTORY, Bait, Harm, Trap
from tests.simulation.trapped_moves import COPY, LateTrap

FUTURE = "/more/t-0.0a-future"


def test_a_late_trap_waits_for_what_comes_before() -> None:
    disk = SimulatedDisk()
    disk.make_directories(FUTURE)
    machine: Any = SimpleNamespace(disk=disk)
    trap = Trap(Bait("sync directory", DIRECTORY), machine, Harm.FAIL, passing=0, stays=False)
    disk.traps = [LateTrap(trap, Bait("rename", COPY))]
    disk.sync_directory("/more")
    disk.rename(FUTURE, "/more/t-0")
    with pytest.raises(OSError, match="error"):
        disk.sync_directory("/more")
    disk.sync_directory("/more")
