from __future__ import annotations

import contextlib
import errno
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.disk import SimulatedDisk
from tests.simulation.disk_traps import DELETED, FOLDER, FUTURE, LOG, TRAPS, Bait, Harm, Trap
from tests.simulation.loop import ProcessEnded

LOG_PATH = "/data/t-0/00000000000000000000.log"


def trapped(bait: Bait, harm: Harm = Harm.FAIL, *, passing: int = 0, stays: bool = False) -> tuple[SimulatedDisk, Trap]:
    disk = SimulatedDisk()
    disk.make_directories("/data/t-0")
    machine: Any = SimpleNamespace(disk=disk)
    trap = Trap(bait, machine, harm, passing=passing, stays=stays)
    disk.traps = [trap]
    return disk, trap


def test_a_trap_fails_the_nth_operation_of_its_kind() -> None:
    disk, trap = trapped(Bait("create", LOG), passing=1)
    disk.open("/data/t-0/1.index", create=True)
    disk.open("/data/t-0/1.log", create=True)
    assert not trap.has_sprung
    with pytest.raises(OSError, match="error") as caught:
        disk.open("/data/t-0/2.log", create=True)
    assert (caught.value.errno, trap.has_sprung) == (errno.EIO, True)
    disk.open("/data/t-0/3.log", create=True)
    assert sorted(disk.contents()) == [f"/data/t-0/{name}" for name in ("1.index", "1.log", "3.log")]


def test_a_trap_that_stays_fails_all_that_follow() -> None:
    disk, _ = trapped(Bait("remove", DELETED), stays=True)
    for name in ("/data/t-0/1.log.deleted", "/data/t-0/2.log.deleted"):
        disk.open(name, create=True)
        with pytest.raises(OSError, match="error"):
            disk.remove(name)
    assert len(disk.contents()) == 2


def test_a_trap_that_is_next_waits_for_the_one_before_it_and_springs_in_its_folder() -> None:
    disk, first = trapped(Bait("create", LOG), Harm.NOTHING)
    disk.make_directories("/data/t-1")
    next_one = Trap(Bait("sync", LOG, is_next=True), first._machine, Harm.FAIL, passing=0, stays=False, earlier=first)
    disk.traps.append(next_one)
    elsewhere = disk.open("/data/t-1/1.index", create=True)
    file = disk.open(LOG_PATH, create=True)
    elsewhere.sync()
    assert (first.has_sprung, next_one.has_sprung) == (True, False)
    disk.open("/data/t-1/1.log", create=True).sync()
    assert not next_one.has_sprung
    with pytest.raises(OSError, match="error"):
        file.sync()


def test_a_trap_fills_the_disk() -> None:
    disk, _ = trapped(Bait("write", LOG), Harm.FILL)
    file = disk.open(LOG_PATH, create=True)
    with pytest.raises(OSError, match="space"):
        file.write([b"x"], 0)
    assert disk.room == 0


def test_a_trap_ends_the_process_before_the_change() -> None:
    disk, _ = trapped(Bait("rename", LOG), Harm.KILL)
    disk.open(LOG_PATH, create=True)
    with pytest.raises(ProcessEnded):
        disk.rename(LOG_PATH, f"{LOG_PATH}.deleted")
    assert list(disk.contents()) == [LOG_PATH]


def test_a_sync_that_fails_in_a_trap_loses_its_pages() -> None:
    disk, _ = trapped(Bait("sync", LOG), Harm.LOSE)
    file = disk.open(LOG_PATH, create=True)
    file.write([b"abc"], 0)
    with pytest.raises(OSError, match="error"):
        file.sync()
    file.sync()
    assert disk.lost == {LOG_PATH}
    disk.drop_cache()
    assert bytes(disk.content(LOG_PATH)) in (b"", bytes(3))


@pytest.mark.parametrize(
    ("operation", "files", "path"),
    [
        ("write", LOG, LOG_PATH),
        ("truncate", LOG, LOG_PATH),
        ("sync", LOG, LOG_PATH),
        ("rename", LOG, LOG_PATH),
        ("remove", LOG, LOG_PATH),
        ("replace", LOG, LOG_PATH),
        ("sync directory", FOLDER, "/data/t-0"),
        ("create", FOLDER, "/data/u-12"),
        ("create", FUTURE, "/data/u-12.0a-future"),
    ],
)
def test_each_operation_of_the_table_is_one_of_the_disk(operation: str, files: str, path: str) -> None:
    assert operation in {bait.operation for baits in TRAPS.values() for bait in baits}
    disk, trap = trapped(Bait(operation, files))
    disk.traps = []
    file = disk.open(LOG_PATH, create=True)
    disk.traps = [trap]
    changes = {
        "write": lambda: file.write([b"x"], 0),
        "truncate": lambda: file.truncate(0),
        "sync": file.sync,
        "rename": lambda: disk.rename(path, "/data/t-0/new"),
        "remove": lambda: disk.remove(path),
        "replace": lambda: disk.replace_file(path, b""),
        "sync directory": lambda: disk.sync_directory(path),
        "create": lambda: disk.make_directories(path),
    }
    with contextlib.suppress(OSError):
        changes[operation]()
    assert trap.has_sprung
