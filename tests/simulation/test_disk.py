from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from random import Random

import pytest

from odradek.protocol.records import Record, build_batch
from tests.simulation.clock import START_OF_TIME_MS, SimulatedClock
from tests.simulation.disk import DISK_ERROR, SimulatedDisk, ThreadTimes, kept_of_log, lost_of_log
from tests.simulation.loop import NODE, Node, ProcessEnded, simulated_loop
from tests.simulation.trace import Trace


def test_a_disk_remembers_what_was_synced_after_many_changes() -> None:
    source = Random(1)
    disk = SimulatedDisk()
    disk.make_directories("/d")
    file = disk.open("/d/f", create=True)
    disk.sync_directory("/")
    disk.sync_directory("/d")
    synced = b""
    for _ in range(300):
        size = file.size()
        match source.randrange(4):
            case 0:
                file.truncate(source.randint(0, size))
            case 1:
                file.write([source.randbytes(source.randint(1, 30))], source.randint(0, size))
            case 2:
                file.write([source.randbytes(10)], size)
            case 3:
                file.sync()
                synced = bytes(file.read(0, file.size()))
        assert bytes(disk.crash().content("/d/f")) == synced


def test_an_operator_puts_a_file_on_any_disk() -> None:
    disk = SimulatedDisk()
    disk.room = 0
    disk.fail_write = disk.fail_sync = DISK_ERROR
    disk.put("/f", b"content")
    assert disk.read_file("/f") == b"content"


def test_a_broken_disk_fails_until_it_is_mended() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.fail_write = disk.fail_sync = DISK_ERROR
    for operation in (lambda: file.write([b"x"], 0), file.sync):
        with pytest.raises(OSError, match="error") as caught:
            operation()
        assert caught.value.errno == errno.EIO
    disk.fail_write = disk.fail_sync = None
    file.write([b"x"], 0)
    file.sync()


def test_a_disk_knows_what_could_not_be_renamed_until_it_is() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/d/f")
    disk.sync_directory("/")
    disk.sync_directory("/d")
    disk.broken = {"/d"}
    with pytest.raises(OSError, match="error"):
        disk.rename("/d/f", "/d/g")
    disk.broken.clear()
    disk = disk.crash()
    assert disk.stuck == {"/d/f"}
    disk.rename("/d/f", "/d/g")
    assert disk.stuck == set()


def test_after_the_end_of_a_process_its_locks_are_free() -> None:
    disk = SimulatedDisk()
    assert disk.lock("/lock") is not None
    assert disk.lock("/lock") is None
    disk.end_of_process()
    assert disk.lock("/lock") is not None


def test_a_process_that_ends_in_the_midst_of_changes_makes_no_more_of_them() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    ends: list[int] = []
    disk.on_last_change = lambda: ends.append(1)
    disk.changes_left = 1
    disk.rename("/f", "/g")
    for change in (
        lambda: disk.rename("/g", "/h"),
        lambda: file.write([b"x"], 0),
        file.sync,
        lambda: disk.remove("/g"),
    ):
        with pytest.raises(ProcessEnded):
            change()
    assert ends == [1]
    assert disk.contents() == {"/g": b""}
    disk.start_of_process()
    disk.rename("/g", "/h")
    file.write([b"x"], 0)
    assert disk.contents() == {"/h": b"x"}


def test_the_threads_of_a_slow_disk_take_longer() -> None:
    times = ThreadTimes(Random(1))
    times.slowness["slow"] = 1000.0
    assert sum(times(print)) < 0.1
    token = NODE.set(Node("slow"))
    try:
        assert sum(times(print)) > 0.1
    finally:
        NODE.reset(token)


def test_clocks_follow_the_virtual_time_from_their_own_start() -> None:
    loop = simulated_loop()
    clock = SimulatedClock(loop, up_since_ms=5000, skew_ms=-7)
    loop.run_for(1.2345)
    assert clock.now_ms() == 6234
    assert clock.wall_ms() == START_OF_TIME_MS - 7 + 1234
    loop.close()


def test_traces_differ_in_the_time_the_words_and_the_content() -> None:
    digests = set()
    for delay, word, content in ((0, "a", b"x"), (1, "a", b"x"), (0, "b", b"x"), (0, "a", b"y"), (0, "a", b"x")):
        loop = simulated_loop()
        trace = Trace(loop)
        loop.run_for(delay)
        trace.note(word, content=content)
        digests.add(trace.digest)
        loop.close()
    assert len(digests) == 4


def test_nothing_below_a_broken_directory_can_be_read_or_changed() -> None:
    disk = SimulatedDisk()
    for path in ("/a", "/b"):
        disk.make_directories(path)
    files = [disk.open(path, create=True) for path in ("/a/f", "/b/f")]
    disk.broken = {"/a"}
    changes: list[Callable[[], object]] = [
        lambda: files[0].read(0, 1),
        lambda: files[0].write([b"x"], 0),
        lambda: files[0].truncate(0),
        files[0].sync,
        lambda: disk.open("/a/g", create=True),
        lambda: disk.replace_file("/a/f", b"x"),
        lambda: disk.rename("/a/f", "/a/g"),
        lambda: disk.remove("/a/f"),
        lambda: disk.sync_directory("/a"),
        lambda: disk.list_directory("/a"),
    ]
    for change in changes:
        with pytest.raises(OSError, match="error"):
            change()
    files[1].write([b"x"], 0)
    disk.broken = set()
    assert disk.read_file("/a/f") == b""
    assert disk.read_file("/b/f") == b"x"


def test_a_failed_sync_loses_its_pages_for_later_ones_too() -> None:
    disk = SimulatedDisk()
    file = disk.open("/f", create=True)
    disk.sync_directory("/")
    file.write([b"abc"], 0)
    file.sync()
    disk.failed_syncs_lose_pages, disk.fail_sync = True, DISK_ERROR
    file.write([b"def"], 3)
    with pytest.raises(OSError, match="error"):
        file.sync()
    disk.fail_sync = None
    file.write([b"ghi"], 6)
    file.sync()
    assert file.read(0, 9) == b"abcdefghi"
    assert disk.crash().content("/f") == b"abc\0\0\0ghi"
    disk.drop_cache()
    assert file.read(0, 9) == b"abc\0\0\0ghi"


def test_a_log_keeps_what_a_recovery_has_left_of_it() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data/a-0")
    disk.put("/data/a-0/00000000000000000000.log", (0).to_bytes(8, "big") + b"batch" + b"torn")
    disk.open("/data/a-0/00000000000000000000.log").truncate(13)
    assert kept_of_log(disk, "/data/a-0", 5) == 5


def test_what_a_failed_sync_has_lost_is_on_the_disk_no_longer() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/data/a-0")
    file = disk.open("/data/a-0/00000000000000000000.log", create=True)
    batches = [bytearray(build_batch([Record(value=b"value")])) for _ in range(3)]
    for offset, batch in enumerate(batches):
        batch[:8] = offset.to_bytes(8, "big")
    size = len(batches[0])
    file.write([batches[0]], 0)
    file.sync()
    disk.failed_syncs_lose_pages, disk.fail_sync = True, DISK_ERROR
    file.write([batches[1]], size)
    with contextlib.suppress(OSError):
        file.sync()
    assert lost_of_log(disk, "/data/a-0") == 1
    disk.fail_sync = None
    file.write([batches[2]], 2 * size)
    file.sync()
    assert (lost_of_log(disk, "/data/a-0"), kept_of_log(disk, "/data/a-0", 3)) == (1, 3)
    disk.start_of_process()
    assert lost_of_log(disk, "/data/a-0") is None
