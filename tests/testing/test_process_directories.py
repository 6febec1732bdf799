"""Temporary directories of processes that end in one way or another: real processes, each with a temporary directory of
its own for all of them.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path

import pytest

from odradek.testing.process_directories import LOCK, ProcessDirectories
from tests.testing.ended_processes import (
    ON_ASYNCIO,
    PROGRAMS,
    READY,
    left_in,
    run,
    running,
    started,
    wait_for,
)

NEXT_START = """
from odradek.testing import BrokerThread
with BrokerThread(): pass
"""


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("thread", signal.SIGTERM),
        ("asyncio", signal.SIGTERM),
        *(pytest.param(name, signal.SIGTERM, marks=pytest.mark.long) for name in ("uvloop", "cluster", "snapshot")),
        pytest.param("thread", signal.SIGHUP, marks=pytest.mark.long),
    ],
)
def test_a_process_that_is_ended_by_a_signal_leaves_no_directory(
    program: str, number: signal.Signals, tmp_path: Path
) -> None:
    with running(PROGRAMS[program], tmp_path) as process:
        assert len(left_in(tmp_path)) == 1
        process.send_signal(number)
        assert process.wait() == -number
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    "programs", [["asyncio"], pytest.param(["thread", "uvloop", "cluster", "snapshot"], marks=pytest.mark.long)]
)
def test_the_next_start_removes_what_killed_processes_have_left(programs: list[str], tmp_path: Path) -> None:
    for program in programs:
        with running(PROGRAMS[program], tmp_path) as process:
            process.kill()
            process.wait()
        assert len(left_in(tmp_path)) == 1  # each start has removed that of the one before
    run(NEXT_START, tmp_path)
    assert left_in(tmp_path) == []


def test_the_next_start_leaves_what_a_live_process_has(tmp_path: Path) -> None:
    with running(ON_ASYNCIO, tmp_path):
        before = left_in(tmp_path)
        run(NEXT_START, tmp_path)
        assert left_in(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces")
def test_the_next_start_in_another_namespace_of_processes_leaves_it_too(tmp_path: Path) -> None:
    with running(ON_ASYNCIO, tmp_path):
        before = left_in(tmp_path)
        command = ["unshare", "--pid", "--fork", sys.executable, "-c", f"{NEXT_START}\nprint('{READY}')"]
        with started(command, tmp_path) as other:
            wait_for(READY, other)
            assert other.wait() == 0
        assert left_in(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces")
def test_the_first_process_of_a_container_ends_too(tmp_path: Path) -> None:
    """It has no default for SIGTERM: one that does not handle the signal goes on."""
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", PROGRAMS["asyncio"]]
    with started(command, tmp_path) as process:
        wait_for(READY, process)
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    assert left_in(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directories_of_other_users_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "odradek-0123456789abcdef"
    left.mkdir()
    (left / LOCK).touch()
    os.chown(left, 12345, 12345)
    assert ProcessDirectories().adopt_left() == []
    os.chown(left, 0, 0)
    assert ProcessDirectories().adopt_left() == [str(left)]


def test_directories_without_our_lock_or_name_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = tmp_path / "odradek-0123456789abcdef"  # has data, and no lock
    kept.mkdir()
    (kept / "data").touch()
    for name in ("odradek-abc12345", "odradek-0123456789abcdef-copy", "other-0123456789abcdef"):
        (tmp_path / name).mkdir()
        (tmp_path / name / LOCK).touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK).touch()
    (tmp_path / "odradek-aaaaaaaaaaaaaaaa").symlink_to(elsewhere)
    before = sorted(tmp_path.rglob("*"))
    assert ProcessDirectories().adopt_left() == []
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_left_of_a_removal_or_a_creation_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "odradek-0123456789abcdef").mkdir()
    assert ProcessDirectories().adopt_left() == []
    assert left_in(tmp_path) == []


def test_a_directory_that_another_process_takes_for_left_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one looks between the creation of a directory and its lock."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directories, others, make = ProcessDirectories(), ProcessDirectories(), os.mkdir
    looks = iter([True, False])

    def mkdir(path: str, mode: int) -> None:
        make(path, mode)
        if next(looks):
            assert others.adopt_left() == []

    monkeypatch.setattr(os, "mkdir", mkdir)
    path = directories.make()
    assert left_in(tmp_path) == [os.path.basename(path)]
    directories.remove(path)
    assert left_in(tmp_path) == []


def test_a_removal_that_was_interrupted_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any of its steps."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for steps in range(20):
        directories = ProcessDirectories()
        path = Path(directories.make())
        for name in ("a", "b/c", "z/d"):
            (path / name).parent.mkdir(exist_ok=True)
            (path / name).touch()
        removal = directories.removal(str(path))
        for _ in range(steps):
            next(removal, None)
        directories._forget()  # as the end of the process does
        after = ProcessDirectories()
        for left in after.adopt_left():
            after.remove(left)
        assert left_in(tmp_path) == []


def test_directories_that_nobody_may_read_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directories = ProcessDirectories()
    path = Path(directories.make())
    (path / "data").mkdir()
    (path / "data" / "file").touch()
    (path / "data").chmod(0)
    directories.remove(str(path))
    assert left_in(tmp_path) == []


# --- signals --------------------------------------------------------------------------------------------------------

HANDLERS = """
import os, signal, sys
from odradek.testing import BrokerThread
def own(number, frame): os.write(1, b"own handler\\n")  # print() fails amid another one
HANDLER = {"own": own, "ignore": signal.SIG_IGN}[sys.argv[1]] if len(sys.argv) > 1 else own
"""


def test_a_handler_of_the_program_stays(tmp_path: Path) -> None:
    """One that was there before, and one that comes later."""
    program = """
signal.signal(signal.SIGTERM, own)
with BrokerThread(): pass
signal.raise_signal(signal.SIGTERM)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
with BrokerThread():
    signal.signal(signal.SIGTERM, own)
    signal.raise_signal(signal.SIGTERM)
    with BrokerThread(): pass
    signal.raise_signal(signal.SIGTERM)
signal.raise_signal(signal.SIGTERM)
"""
    assert run(HANDLERS + program, tmp_path).split("\n")[:4] == ["own handler"] * 4
    assert left_in(tmp_path) == []


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with BrokerThread() as broker:
    signal.raise_signal(signal.SIGTERM)
    broker.seed({"orders": [b"value"]})
print("goes on")
"""
    assert run(HANDLERS + program, tmp_path).strip() == "goes on"


def test_a_handler_of_the_program_that_calls_the_one_before_leaves_no_directory(tmp_path: Path) -> None:
    program = """
with BrokerThread():
    before = signal.getsignal(signal.SIGTERM)
    def chained(number, frame):
        own(number, frame)
        before(number, frame)
    signal.signal(signal.SIGTERM, chained)
    print("ready", flush=True)
    signal.pause()
"""
    with running(HANDLERS + program, tmp_path) as process:
        process.terminate()
        assert wait_for("own handler", process)
        assert process.wait() == -signal.SIGTERM
    assert left_in(tmp_path) == []


def test_the_handlers_are_there_only_while_brokers_are(tmp_path: Path) -> None:
    program = """
import asyncio
from odradek.testing import in_process_broker
def handlers(): return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
default = [signal.SIG_DFL] * 2
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
assert handlers() == default
with BrokerThread() as first:
    assert signal.SIG_DFL not in handlers()
    with BrokerThread(): pass
    assert signal.SIG_DFL not in handlers()
assert handlers() == default
async def main():
    async with in_process_broker():
        assert signal.SIG_DFL not in handlers()
    assert handlers() == default
asyncio.run(main())
try:
    BrokerThread({"log.dirs": ""}).start()
except Exception as error:
    print(type(error).__name__)
assert handlers() == default
"""
    assert run(HANDLERS + program, tmp_path).strip() == "ConfigError"


def test_a_broker_that_was_never_stopped_is_removed_at_the_end_of_the_program(tmp_path: Path) -> None:
    run("from odradek.testing import BrokerThread\nBrokerThread().start()", tmp_path)
    assert left_in(tmp_path) == []


# --- forks ----------------------------------------------------------------------------------------------------------

FORKS = """
import os, signal, sys, time
from odradek.testing import BrokerThread
from odradek.testing.process_directories import PROCESS_DIRECTORIES
def look():
    assert PROCESS_DIRECTORIES.adopt_left() == []
    os._exit(0)
with BrokerThread() as broker:
    directory = str(broker.data_dir.parent)
    for end, status in [
        (lambda: os._exit(3), 3),
        (lambda: (PROCESS_DIRECTORIES.remove_all(), os._exit(4)), 4),
        (lambda: (PROCESS_DIRECTORIES.remove(directory), os._exit(5)), 5),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), -signal.SIGTERM),
        (look, 0),
    ]:
        child = os.fork()
        if not child:
            end()
            os._exit(99)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == status
        assert broker.data_dir.is_dir(), "the child has removed the directory of its parent"
    broker.seed({"orders": [b"value"]})
"""


def test_forked_processes_leave_the_directories_of_their_parent(tmp_path: Path) -> None:
    """Those that end by themselves, as the end of a program or of `with` does, or by a signal."""
    run(FORKS, tmp_path)
    assert left_in(tmp_path) == []


def test_processes_of_multiprocessing_have_directories_of_their_own(tmp_path: Path) -> None:
    program = """
import multiprocessing
from odradek.testing import BrokerThread
def work(queue):
    with BrokerThread() as own:
        queue.put(str(own.data_dir))
context = multiprocessing.get_context("fork")
with BrokerThread() as broker:
    queue = context.Queue()
    child = context.Process(target=work, args=[queue])
    child.start()
    assert queue.get() != str(broker.data_dir)
    child.join()
    assert child.exitcode == 0
    assert broker.data_dir.is_dir()
"""
    run(program, tmp_path)
    assert left_in(tmp_path) == []


def test_a_child_that_lives_on_does_not_keep_the_directories_of_a_killed_parent(tmp_path: Path) -> None:
    program = """
import os, time
from odradek.testing import BrokerThread
with BrokerThread():
    if not os.fork():
        time.sleep(600)
    print("ready", flush=True)
    time.sleep(600)
"""
    with running(program, tmp_path) as process:
        process.kill()
        process.wait()
        try:
            run(NEXT_START, tmp_path)
            assert left_in(tmp_path) == []
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_child_that_is_forked_holds_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    directories = ProcessDirectories()
    path = directories.make()
    with open(f"{path}/{LOCK}") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        directories._forget()
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
