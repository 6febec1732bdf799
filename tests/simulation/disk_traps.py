"""Errors of a disk at an exact moment: at the n-th next change of one kind to a kind of file.

A trap waits for an operation on a path. When it springs, the operation fails, or the disk is full from then on, or the
process ends there, or the machine's power goes. So what the broker was about to do is half done. Or the disk hangs, and
much happens before the broker hears of what it has done.

set traps on the disk of   Some traps, drawn from `TRAPS`, wait while the broker does what they belong to: it goes on,
                           or its replicas are created, truncated, moved between its directories, recovered at a
                           start, set to a later start because it was away for long, or closed. In the end the disk
                           has room and is sound, and the broker is restarted
`STORIES`                  Traps that belong together, and are all set
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tests.memory_files import parent
from tests.simulation.aimed_faults import REJOIN_S, links_of
from tests.simulation.disk_faults import STOPS_WITHIN_S, move_on_slow_disk, restart_mended, stop_moving
from tests.simulation.machine import Machine
from tests.simulation.retention import READINGS
from tests.simulation.upkeep_history import DiskFilled

if TYPE_CHECKING:
    from tests.simulation.faults import Fault
    from tests.simulation.world import World

MOST_TRAPS = 4
STAYS = 0.3
"""How often a trap concerns all that it matches from the first time on."""
AWAY_S = 5.0
"""So long a broker is away for whose position records may be deleted meanwhile."""
RUNS_ON_S = 5.0
"""So long logs grow before a broker starts again: longer than between two checkpoints of recovery points."""
MOVES_FOR_S = 2.0
GENTLY = 0.4
"""How often the broker is stopped in the end, not killed."""
SLOWNESS = 50.0
"""Of a disk that is slow in half of the cases, so that more is under way when a trap springs."""

HANGS_S = 2.5
"""Long enough for a log to roll, and to lose its first segments."""

READINGS_LOG = rf"/{READINGS}-\d+/\d+\.log$"
"""Of the topic whose records are deleted."""
LOG = r"\d\.log$"
INDEX = r"\d\.(time)?index$"
ABORTED = r"\d\.txnindex$"
SNAPSHOT = r"\.snapshot$"
EPOCHS = r"leader-epoch-checkpoint$"
TOPIC_ID = r"partition\.metadata$"
CHECKPOINT = r"^/[^/]+/[^/]+-checkpoint$"
CLEANED = r"\.cleaned$"
SWAP = r"\.swap$"
DELETED = r"\.deleted$"
FOLDER = r"^/[^/]+/[^/]+-\d+$"
"""The folder of a log."""
GONE_FOLDER = r"^/[^/]+/[^/]+-delete$"
OF_REPLICA = r"-\d+/\d*"
"""What is in the folder of a log that is not a copy, up to its name."""
LATER = r"/0*[1-9]\d*\.\w+"
"""A file of a segment that is not a log's first one, up to its last suffix."""
LATER_LOG = r"/0*[1-9]\d*\.log$"
FUTURE = r"-future"
"""The folder of a log that is moved, and what is in it."""
DIRECTORY = r"^/[^/]+$"
"""A log directory."""


class Harm(Enum):
    """What a trap does."""

    FAIL = "fail"
    LOSE = "fail a sync, and lose its pages"
    REFUSE = "refuse: no room"
    FILL = "fill the disk"
    KILL = "kill"
    CUT = "cut the power"
    HANG = "hang"
    NOTHING = "nothing: another one waits for it"


class Bait(NamedTuple):
    """An operation of the disk and the paths that it concerns; the trap lets at most `most` of them pass. `harms`: what
    it may do, if not anything. `stays`: whether it concerns all that follows; None: by chance. `is_next`: it waits for
    the one before it, in the same folder."""

    operation: str
    files: str
    most: int = 3
    harms: tuple[Harm, ...] = ()
    stays: bool | None = None
    is_next: bool = False


TRAPS: Mapping[str, Sequence[Bait]] = {
    "go on": (
        Bait("create", LOG),
        Bait("create", INDEX),
        Bait("create", FOLDER),
        Bait("create", CLEANED),
        Bait("write", LOG, 100),
        Bait("write", INDEX, 10),
        Bait("write", ABORTED),
        Bait("write", CLEANED),
        Bait("replace", SNAPSHOT),
        Bait("replace", EPOCHS),
        Bait("replace", TOPIC_ID),
        Bait("replace", CHECKPOINT),
        Bait("sync", LOG, 100),
        Bait("sync", INDEX, 10),
        Bait("sync", SNAPSHOT),
        Bait("sync", EPOCHS),
        Bait("sync", CLEANED),
        Bait("sync directory", FOLDER),
        Bait("sync directory", DIRECTORY),
        Bait("rename", LOG),
        Bait("rename", INDEX),
        Bait("rename", SNAPSHOT),
        Bait("rename", CLEANED),
        Bait("rename", SWAP),
        Bait("rename", FOLDER),
        Bait("remove", DELETED),
        Bait("remove", GONE_FOLDER),
    ),
    "create": (
        Bait("create", FOLDER, 1),
        Bait("create", LOG, 2),
        Bait("create", INDEX, 2),
        Bait("replace", TOPIC_ID, 1),
        Bait("replace", EPOCHS, 1),
        Bait("sync", TOPIC_ID, 1),
        Bait("sync", EPOCHS, 3, (Harm.FAIL, Harm.CUT, Harm.CUT, Harm.CUT)),
        Bait("sync directory", FOLDER, 2),
        Bait("sync directory", DIRECTORY, 2),
        Bait("replace", CHECKPOINT),
        Bait("rename", FOLDER, 1),
    ),
    "clean": (
        Bait("write", CLEANED, 8),
        Bait("remove", CLEANED, 0),
        Bait("sync", CLEANED, 8),
        Bait("rename", SWAP, 12),
        Bait("rename", CLEANED, 8),
    ),
    "return": (
        Bait("create", LOG, 1),
        Bait("create", INDEX, 2),
        Bait("truncate", LOG),
        Bait("rename", LOG, 2),
        Bait("rename", INDEX),
        Bait("sync", LOG, 5),
        Bait("sync directory", FOLDER),
        Bait("replace", CHECKPOINT),
    ),
    "truncate": (
        Bait("create", LOG),
        Bait("truncate", LOG),
        Bait("truncate", INDEX),
        Bait("truncate", ABORTED),
        Bait("rename", LOG),
        Bait("rename", INDEX),
        Bait("rename", SNAPSHOT),
        Bait("replace", SNAPSHOT),
        Bait("replace", CHECKPOINT),
        Bait("sync", LOG, 20),
        Bait("sync directory", FOLDER),
    ),
    "move": (
        Bait("create", FUTURE, 10),
        Bait("write", FUTURE, 10),
        Bait("truncate", FUTURE),
        Bait("replace", FUTURE),
        Bait("sync", FUTURE, 10),
        Bait("sync directory", FUTURE),
        Bait("sync directory", DIRECTORY),
        Bait("rename", FUTURE),
        Bait("rename", FOLDER),
        Bait("remove", FUTURE),
        Bait("replace", CHECKPOINT),
        Bait("write", OF_REPLICA + LOG, 100),
        Bait("sync", OF_REPLICA + LOG, 20),
        Bait("replace", OF_REPLICA + EPOCHS),
    ),
    "start": (
        Bait("create", INDEX),
        Bait("write", INDEX),
        Bait("write", ABORTED, 1, (Harm.FILL, Harm.FILL, Harm.FAIL)),
        Bait("truncate", LOG, 1),
        Bait("truncate", INDEX),
        Bait("truncate", ABORTED),
        Bait("sync", INDEX),
        Bait("sync", ABORTED),
        Bait("replace", SNAPSHOT),
        Bait("rename", LOG),
        Bait("rename", SWAP),
        Bait("rename", FOLDER),
        Bait("remove", SNAPSHOT),
        Bait("remove", DELETED),
        Bait("sync directory", FOLDER),
    ),
    "stop": (
        Bait("write", INDEX),
        Bait("sync", INDEX),
        Bait("sync", LOG),
        Bait("replace", SNAPSHOT),
        Bait("replace", EPOCHS),
        Bait("replace", CHECKPOINT),
        Bait("sync directory", FOLDER),
    ),
}
"""Where traps may be, by what the broker does meanwhile: a key of `_STIRS`."""
STORIES: Mapping[str, tuple[str, tuple[Bait, ...]]] = {
    "lose a new log of": ("create", (Bait("sync", EPOCHS, 3, (Harm.CUT,)),)),
    "leave cleaned files of": (
        "clean",
        (
            Bait("sync", LATER + CLEANED, 1, (Harm.FAIL,), stays=False),
            Bait("remove", LATER + CLEANED, 0, (Harm.FAIL,), stays=False, is_next=True),
            Bait("rename", SWAP, 2, (Harm.CUT,), is_next=True),
        ),
    ),
    "do not start over at": (
        "return",
        (Bait("rename", READINGS_LOG, 3, (Harm.FAIL,)), Bait("create", READINGS_LOG, 2, (Harm.FAIL, Harm.REFUSE))),
    ),
    "rebuild no index of": (
        "lose power",
        (
            Bait("sync", INDEX, 2, (Harm.FAIL, Harm.REFUSE), stays=False),
            Bait("write", INDEX, 8, (Harm.FAIL, Harm.FILL)),
        ),
    ),
    "take no snapshots of": ("go on and start", (Bait("replace", SNAPSHOT, 0, (Harm.REFUSE,), stays=True),)),
    "tear a sealed segment of": (
        "run on",
        (
            Bait("create", LATER_LOG, 10, (Harm.NOTHING,), stays=True),
            Bait("sync", LOG, 0, (Harm.CUT,), is_next=True),
        ),
    ),
    "leave transactions unwritten at": ("start and move", (Bait("write", ABORTED, 2, (Harm.REFUSE,)),)),
}
"""Traps that belong together, and what the broker does meanwhile."""
FILLING = {"create", "write", "replace"}
"""What needs room."""


class Trap:
    """Springs at the operation that the bait names, after letting `passing` of them pass; once, or with `stays` at all
    that follow. Not before `earlier` has sprung, and only where that was."""

    def __init__(
        self, bait: Bait, machine: Machine, harm: Harm, *, passing: int, stays: bool, earlier: Trap | None = None
    ) -> None:
        self._operation = bait.operation
        self._files = re.compile(bait.files)
        self._machine = machine
        self._harm = harm
        self._passing = passing
        self._stays = stays
        self._earlier = earlier
        self._folder: str | None = None

    @property
    def has_sprung(self) -> bool:
        """Whether something has gone into it."""
        return self._folder is not None

    def __call__(self, operation: str, path: str) -> None:
        """See SimulatedDisk: raises OSError, or ends the process."""
        if operation != self._operation or not self._files.search(path) or (self.has_sprung and not self._stays):
            return
        if self._earlier is not None and self._earlier._folder != parent(path):
            return
        if self._passing:
            self._passing -= 1
            return
        self._folder = parent(path)
        self._spring(path)

    def _spring(self, path: str) -> None:
        disk = self._machine.disk
        match self._harm:
            case Harm.NOTHING:
                return
            case Harm.FILL:
                disk.room = 0
                return
            case Harm.HANG:
                self._machine.hang(HANGS_S)
                return
            case Harm.KILL:
                disk.end_process()
            case Harm.CUT:
                self._machine.lose_power_with_process()
                disk.end_process()
            case Harm.LOSE:
                disk.failed_syncs_lose_pages = True
                disk.lost.add(path)
        code = errno.ENOSPC if self._harm is Harm.REFUSE else errno.EIO
        raise OSError(code, os.strerror(code), path)


def _harms(bait: Bait, *, is_durable: bool) -> list[Harm]:
    end = Harm.CUT if is_durable else Harm.KILL
    if bait.harms:
        return [end if harm is Harm.CUT else harm for harm in bait.harms]
    harms = [Harm.FAIL, Harm.FAIL, end]
    if bait.operation in FILLING:
        harms += [Harm.FILL, Harm.REFUSE]
    if bait.operation == "sync" and is_durable:
        harms.append(Harm.LOSE)
    return harms


async def set_traps(world: World, fault: Fault) -> None:
    """See the head of this file."""
    source = Random(fault.amount)
    stir = source.choice(list(TRAPS))
    baits = source.sample(TRAPS[stir], source.randint(2, min(MOST_TRAPS, len(TRAPS[stir]))))
    await _set_all(world, fault, stir, baits, source)


async def tell_story(world: World, fault: Fault) -> None:
    """The one of the fault's name."""
    stir, baits = STORIES[fault.kind]
    await _set_all(world, fault, stir, baits, Random(fault.amount))


async def _set_all(world: World, fault: Fault, stir: str, baits: Sequence[Bait], source: Random) -> None:
    """A disk that they have filled has room again for a while before the broker is restarted."""
    machine = world.machines[fault.broker_id]
    traps: list[Trap] = []
    for bait in baits:
        traps.append(
            Trap(
                bait,
                machine,
                source.choice(_harms(bait, is_durable=world.is_durable)),
                passing=round(bait.most * source.random() ** 2),
                stays=source.random() < STAYS if bait.stays is None else bait.stays,
                earlier=traps[-1] if bait.is_next else None,
            )
        )
    machine.disk.traps = list(traps)
    if source.random() < 0.5:
        world.thread_times.slowness[machine.name] = SLOWNESS
    beginning = _STIRS[stir](world, fault)
    if beginning is not None:
        await beginning
    await asyncio.sleep(fault.seconds / 2)
    if machine.disk.room is not None:
        machine.disk.room = None
        world.history.note(DiskFilled(process=machine.name, broker_id=machine.broker_id))
    sprung = [f"{bait.operation} {bait.files}" for bait, trap in zip(baits, traps, strict=True) if trap.has_sprung]
    world.trace.note("traps", stir, ", ".join(sprung))


def remove_traps(world: World, fault: Fault) -> None:
    """The disk works and has room, and the broker starts again, in some cases after it was stopped as SIGTERM does."""
    machine = world.machines[fault.broker_id]
    machine.disk.traps = []
    machine.disk.room = None
    stop_moving(world, fault)
    if machine.running is not None and not machine.disk.failed_syncs_lose_pages and fault.amount * 100 % 1 < GENTLY:
        world.restart_gently(machine)
    else:
        machine.kill()
        machine.disk.failed_syncs_lose_pages = False
        restart_mended(world, fault)


def _go_on(world: World, fault: Fault) -> None:
    """Logs are created, roll, are cleaned and deleted by themselves."""


async def _truncate(world: World, fault: Fault) -> None:
    """The other brokers lose their leaderships, one after the other."""
    for machine in world.machines.values():
        if world.store_links is not None and machine.broker_id != fault.broker_id:
            links_of(world).expire(machine.name)
            await asyncio.sleep(REJOIN_S)


async def _run_on(world: World, fault: Fault) -> None:
    """Logs do what they do by themselves, for longer."""
    await asyncio.sleep(RUNS_ON_S)


async def _move(world: World, fault: Fault) -> None:
    if world.store_links is not None:
        await move_on_slow_disk(world, fault)


def _start(world: World, fault: Fault) -> None:
    machine = world.machines[fault.broker_id]
    machine.kill()
    machine.start()


async def _start_and_move(world: World, fault: Fault) -> None:
    _start(world, fault)
    if world.workload.disk_mover is not None:
        world.workload.disk_mover.hurries_at = fault.broker_id
    await asyncio.sleep(MOVES_FOR_S)


def _lose_power(world: World, fault: Fault) -> None:
    machine = world.machines[fault.broker_id]
    traps = machine.disk.traps
    machine.cut_power()
    machine.disk.traps = traps
    machine.start()


async def _go_on_and_start(world: World, fault: Fault) -> None:
    await asyncio.sleep(RUNS_ON_S)
    _start(world, fault)


async def _return(world: World, fault: Fault) -> None:
    machine = world.machines[fault.broker_id]
    machine.kill()
    if world.store_links is not None:
        links_of(world).expire(machine.name)
    await asyncio.sleep(AWAY_S)
    machine.start()


async def _stop(world: World, fault: Fault) -> None:
    stopping = asyncio.get_running_loop().create_task(world.machines[fault.broker_id].stop())
    await asyncio.wait([stopping], timeout=STOPS_WITHIN_S)


_STIRS: Mapping[str, Callable[[World, Fault], Awaitable[None] | None]] = {
    "go on": _go_on,
    "create": _go_on,
    "clean": _run_on,
    "run on": _run_on,
    "return": _return,
    "start and move": _start_and_move,
    "lose power": _lose_power,
    "go on and start": _go_on_and_start,
    "truncate": _truncate,
    "move": _move,
    "start": _start,
    "stop": _stop,
}
