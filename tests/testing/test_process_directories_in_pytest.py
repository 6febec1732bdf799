"""Temporary directories of fixtures when pytest, its workers, or both are ended by a signal."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.patience import block_until
from tests.soak import SOAK
from tests.testing.ended_processes import left_in, started

TESTS = """
import os, pathlib, time
def hold(name):
    pathlib.Path({folder!r}, name).write_text(str(os.getpid()))
    time.sleep(600)
def test_with_brokers(odradek_broker, odradek_session_broker):
    hold("brokers")
def test_with_a_cluster(odradek_cluster):
    hold("cluster")
"""
BROKERS, CLUSTER = 2, 1


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "ready").mkdir(parents=True)
    (folder / "test_it.py").write_text(TESTS.format(folder=str(folder / "ready")))
    (folder / "pytest.ini").write_text("[pytest]\n")
    return folder


def pytest_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]


def processes_of_tests(project: Path, count: int) -> list[int]:
    """Returns the processes of so many tests, once these wait in the middle."""

    def found() -> list[int]:
        return [int(text) for path in (project / "ready").iterdir() if (text := path.read_text())]

    block_until(lambda: len(found()) == count)
    return found()


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for_the_end(pids: list[int]) -> None:
    block_until(lambda: all(map(has_ended, pids)))


def test_pytest_that_is_ended_leaves_no_directory(project: Path, tmp_path: Path) -> None:
    with started(pytest_command("-k", "brokers"), tmp_path, project) as process:
        assert processes_of_tests(project, 1) == [process.pid]
        assert len(left_in(tmp_path)) == BROKERS
        process.terminate()
        assert process.wait() == -signal.SIGTERM
    assert left_in(tmp_path) == []


LONE = pytest.param(
    "the process that runs them",
    marks=[pytest.mark.long, pytest.mark.soak("workers end on a quiet machine without their process", minutes=0.5)],
)


@pytest.mark.parametrize("ended", ["all", pytest.param("the workers", marks=pytest.mark.long), LONE])
def test_workers_that_are_ended_leave_no_directory(ended: str, project: Path, tmp_path: Path) -> None:
    """Workers without their process end themselves, and by `os._exit` if that takes them over 15 s."""
    with started(pytest_command("-n", "2"), tmp_path, project) as process:
        workers = processes_of_tests(project, 2)
        assert process.pid not in workers
        assert len(left_in(tmp_path)) == BROKERS + CLUSTER
        for pid in {"the workers": workers, "all": [process.pid, *workers]}.get(ended, [process.pid]):
            os.kill(pid, signal.SIGTERM)
        wait_for_the_end(workers)
        left = left_in(tmp_path)
        assert left == [] or (ended == LONE.values[0] and not SOAK)
        os.killpg(process.pid, signal.SIGKILL)
    if left:
        assert_the_next_run_removes_them(project, tmp_path)


@pytest.mark.long
def test_workers_that_are_killed_are_cleaned_up_after_by_the_next_run(project: Path, tmp_path: Path) -> None:
    with started(pytest_command("-n", "2"), tmp_path, project) as process:
        workers = processes_of_tests(project, 2)
        os.killpg(process.pid, signal.SIGKILL)
        wait_for_the_end(workers)
    assert len(left_in(tmp_path)) == BROKERS + CLUSTER
    assert_the_next_run_removes_them(project, tmp_path)


def assert_the_next_run_removes_them(project: Path, tmp_path: Path) -> None:
    for path in (project / "ready").iterdir():
        path.unlink()
    with started(pytest_command("-k", "brokers"), tmp_path, project) as process:
        processes_of_tests(project, 1)
        assert len(left_in(tmp_path)) == BROKERS
        process.terminate()
        process.wait()
    assert left_in(tmp_path) == []
