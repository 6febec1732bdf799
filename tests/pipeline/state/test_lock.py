"""A job has exclusive use of its pipeline: a lock in a directory, a lease in a store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state import lock
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.lock import LEASE_S, RENEWED_S, alone, is_held
from tests.pipeline.state.memory_place import InMemory, in_memory

NAME, PROBLEM = "job.lock", "another ingest runs"
THREADS = 20
HOLDING = """
import sys
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.lock import alone
with alone(Location(sys.argv[1]), "job.lock", "held already"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Location:
    return Location(str(tmp_path / "state"))


@contextmanager
def another_process(place: Location) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock until its input ends."""
    command = [sys.executable, "-c", HOLDING, place.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_is_refused_until_the_process_that_holds_it_ends(directory: Location) -> None:
    assert not is_held(directory, NAME)
    assert not directory.is_there(), "the look makes nothing"
    with another_process(directory) as process:
        assert is_held(directory, NAME)
        with (
            pytest.raises(PipelineError, match=f"{PROBLEM}: it holds {directory}/{NAME}; stop it first"),
            alone(directory, NAME, PROBLEM),
        ):
            pytest.fail("two have it")
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)
        assert not is_held(directory, NAME)
        with alone(directory, NAME, PROBLEM):
            assert is_held(directory, NAME)
            assert not is_held(directory, "compact.lock")
    assert not is_held(directory, NAME)


def test_checking_a_lock_does_not_block_a_job(directory: Location) -> None:
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_held(directory, NAME)

    watching = threading.Thread(target=look)
    watching.start()
    try:
        for _ in range(50):
            with alone(directory, NAME, PROBLEM):
                pass
    finally:
        over.set()
        watching.join()


class Clock:
    """A clock that advances only in `sleep`, which also calls `also`."""

    def __init__(self, also: Callable[[], object] = lambda: None) -> None:
        self.time = 1_000_000.0
        self._also = also

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self._also()


def holder_of(place: Location) -> tuple[str, float] | None:
    content = place.read(NAME)
    if content is None:
        return None
    lease = json.loads(content)
    return lease["holder"], lease["until"]


def lease(holder: str, until: float) -> bytes:
    return json.dumps({"holder": holder, "until": until}).encode()


def refused(place: Location, clock: Clock) -> str:
    with (
        pytest.raises(PipelineError) as caught,
        alone(place, NAME, PROBLEM, clock.now, clock.sleep),
    ):
        pytest.fail("two have it")
    return f"{caught.value}"


def test_a_lease_is_held_until_it_expires() -> None:
    place, clock = in_memory(), Clock()
    assert not is_held(place, NAME, clock.now)
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        assert is_held(place, NAME, clock.now)
        holder = holder_of(place)
        assert holder is not None
        assert holder[1] == clock.time + LEASE_S
        assert f" {os.getpid()} " in holder[0]
    assert holder_of(place) is None
    with pytest.raises(ZeroDivisionError), alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        raise ZeroDivisionError
    assert not is_held(place, NAME, clock.now)


def test_a_lease_that_is_renewed_is_refused_with_its_holders_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEWED_S", 0.01)
    place = in_memory()
    clock = Clock(also=lambda: time.sleep(0.05))
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        holder = holder_of(place)
        assert holder is not None
        before = clock.time
        assert refused(place, clock) == f"{PROBLEM}: {holder[0]} holds memory://here/{NAME}; stop it first"
        assert clock.time - before <= RENEWED_S + 2, "it is seen to live long before its lease ends"
        clock.time += 10 * LEASE_S
        time.sleep(0.1)
        assert is_held(place, NAME, clock.now), "it goes on as long as its holder lives"
    assert holder_of(place) is None


@pytest.mark.parametrize("left_s", [-1.0, 0.0, 5.0, LEASE_S])
def test_a_job_waits_for_the_lease_of_a_killed_holder_to_expire(left_s: float) -> None:
    place, clock = in_memory(), Clock()
    place.create(NAME, lease("somebody", clock.time + left_s))
    assert is_held(place, NAME, clock.now) == (left_s > 0)
    before = clock.time
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        holder = holder_of(place)
        assert holder is not None
        assert holder[0] != "somebody"
        assert max(left_s, 0) <= clock.time - before <= LEASE_S + 1
    assert holder_of(place) is None


def test_the_lease_of_a_killed_holder_with_a_fast_clock_expires_too() -> None:
    place, clock = in_memory(), Clock()
    place.create(NAME, lease("somebody", clock.time + 365 * 86_400))
    before = clock.time
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        assert LEASE_S <= clock.time - before <= LEASE_S + 1
        assert (holder_of(place) or ("somebody",))[0] != "somebody"


def test_a_live_lease_of_a_holder_with_a_fast_clock_is_refused_with_its_name() -> None:
    def renewed() -> None:
        if clock.time >= next_time[0]:
            place.replace(NAME, lease("somebody", clock.time + 86_400))
            next_time[0] += RENEWED_S

    place, clock = in_memory(), Clock(also=renewed)
    next_time = [clock.time + RENEWED_S]
    place.create(NAME, lease("somebody", clock.time + 86_400))
    assert "somebody holds" in refused(place, clock)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"holder": "x"}', b'{"holder": "x", "until": "soon"}', b"\xff"]
)
def test_a_lock_with_unreadable_content_is_acquired(content: bytes) -> None:
    place, clock = in_memory(), Clock()
    place.create(NAME, content)
    assert not is_held(place, NAME, clock.now)
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        assert is_held(place, NAME, clock.now)


@pytest.mark.parametrize("is_there", [False, True])
def test_one_of_many_concurrent_jobs_acquires_a_lease(monkeypatch: pytest.MonkeyPatch, is_there: bool) -> None:
    monkeypatch.setattr(lock, "RENEWED_S", 0.01)
    place = in_memory()
    if is_there:
        place.create(NAME, lease("somebody", time.time() - 1))
    together, over = threading.Barrier(THREADS), threading.Event()
    had: list[int] = []
    refusals: list[PipelineError] = []

    def take(number: int) -> None:
        together.wait()
        try:
            with alone(place, NAME, PROBLEM, sleep=lambda _: time.sleep(0.02)):
                had.append(number)
                over.wait(60)
        except PipelineError as error:
            refusals.append(error)
        if len(refusals) == THREADS - 1:
            over.set()

    threads = [threading.Thread(target=take, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert (len(had), len(refusals)) == (1, THREADS - 1)


def test_a_job_that_lost_its_lease_does_not_release_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEWED_S", 0.01)
    place, clock = in_memory(), Clock()
    with alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        place.replace(NAME, lease("another", clock.time + LEASE_S))
        time.sleep(0.1)
    assert holder_of(place) == ("another", clock.time + LEASE_S)


def test_a_lost_response_to_a_renewal_does_not_lose_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "RENEWED_S", 0.01)
    place, clock = in_memory(), Clock()
    swap, lost = InMemory.swap, list[object]()

    def swap_and_fail_once(self: InMemory, name: str, content: bytes, version: str) -> str:
        done = swap(self, name, content, version)
        if not lost:
            lost.append(done)
            raise OSError("the connection broke")
        return done

    with monkeypatch.context() as patched, alone(place, NAME, PROBLEM, clock.now, clock.sleep):
        patched.setattr(InMemory, "swap", swap_and_fail_once)
        time.sleep(0.2)
        assert lost
        clock.time += LEASE_S + 1
        time.sleep(0.2)
        assert is_held(place, NAME, clock.now), "it is renewed by the next"
    assert holder_of(place) is None
