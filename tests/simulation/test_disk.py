from __future__ import annotations

import errno
from random import Random

import pytest

from tests.simulation.clock import START_OF_TIME_MS, SimulatedClock
from tests.simulation.disk import DISK_ERROR, SimulatedDisk, ThreadTimes
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
