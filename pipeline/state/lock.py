"""A job has its pipeline for itself.

In a directory a lock of the operating system says so: it ends with the process, however that ends. In an object store
it is a lease: a file that says who holds it and until when, taken and renewed by conditional puts. Its holder renews it
every RENEWED_S. One who was killed is waited out: until the lease runs out, or, where that is later by a clock that is
ahead of this machine's, until nobody has renewed it for LEASE_S.

The lock keeps two jobs from doing the same work twice. Two jobs could do no harm even without it: the plans and the
tables' logs take each batch once.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import IO

import structlog

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.location import Location

LOOK_S = 0.2
"""Longer than `is_held` shares a lock."""
LEASE_S = 30.0
RENEWED_S = 10.0

log = structlog.get_logger("pipeline.lock")


@contextlib.contextmanager
def alone(
    place: Location,
    name: str,
    problem: str,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Holds the lock `name`. Raises PipelineError with this problem if another process does."""
    if place.is_local:
        with _locked(place, name, problem):
            yield
    else:
        with _Lease(place, name, problem, now, sleep):
            yield


def is_held(place: Location, name: str, now: Callable[[], float] = time.time) -> bool:
    """Whether a job is at work here. Changes nothing: the look itself shares the lock, for less than LOOK_S."""
    if not place.is_local:
        told = _told(place.read(name))
        return told is not None and told[1] > now()
    try:
        with (place.path / name).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


@contextlib.contextmanager
def _locked(place: Location, name: str, problem: str) -> Iterator[None]:
    place.path.mkdir(parents=True, exist_ok=True)
    with (place.path / name).open("w") as held:
        try:
            _take(held)
        except BlockingIOError as error:
            raise PipelineError(f"{problem}: it holds {place / name}", "stop it first") from error
        yield


def _take(file: IO[str]) -> None:
    """Takes the lock. Raises BlockingIOError where it is held for longer than a look takes."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(LOOK_S)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class _Lease:
    """A lease while it lasts."""

    def __init__(
        self, place: Location, name: str, problem: str, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._place, self._name, self._problem = place, name, problem
        self._now, self._sleep = now, sleep
        self._holder = f"{socket.gethostname()} {os.getpid()} {uuid.uuid4().hex}"
        self._version = ""
        self._over = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> _Lease:
        seen, since = "", self._now()
        while not self._taken(seen if self._now() - since >= LEASE_S else ""):
            found = self._place.version(self._name)
            if seen and found not in (seen, ""):
                raise self._refused()
            if found and not seen:
                log.info("the lock is held; waiting whether its holder lives", lock=str(self._place / self._name))
                seen, since = found, self._now()
            self._sleep(1)
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._renewing.join()
        try:
            if self._is_mine():
                self._place.remove(self._name)
        except Exception as error:  # As above. An error of the job itself must not be hidden by it.
            log.warning("the lock could not be given back, so it is held until it runs out", error=_first_line(error))

    def _refused(self) -> PipelineError:
        told = _told(self._place.read(self._name))
        holder = told[0] if told else "somebody"
        return PipelineError(f"{self._problem}: {holder} holds {self._place / self._name}", "stop it first")

    def _taken(self, dead: str) -> bool:
        """Makes the lease, or takes over one that has run out, or that is still of the version `dead`."""
        content = self._content()
        if self._place.create(self._name, content):
            self._version = self._place.version(self._name)
            return True
        version = self._place.version(self._name)
        told = _told(self._place.read(self._name))
        if not version or (version != dead and told is not None and told[1] > self._now()):
            return False
        self._version = self._place.swap(self._name, content, version)
        return bool(self._version)

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_S):
            try:
                renewed = self._place.swap(self._name, self._content(), self._version)
                if not renewed and self._is_mine():  # It was renewed before, by a put whose answer was lost.
                    renewed = self._place.version(self._name)
            except Exception as error:  # The store may be away for longer than its client waits.
                log.warning("the lock could not be renewed", error=_first_line(error))
                continue
            if not renewed:
                log.error("the lock was taken by another job; what both write is taken once", lock=self._name)
                return
            self._version = renewed

    def _is_mine(self) -> bool:
        told = _told(self._place.read(self._name))
        return told is not None and told[0] == self._holder

    def _content(self) -> bytes:
        return json.dumps({"holder": self._holder, "until": self._now() + LEASE_S}).encode()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _told(content: bytes | None) -> tuple[str, float] | None:
    """Holder and end of a lease; None where there is none that can be read."""
    try:
        told = json.loads(content or b"")
        return str(told["holder"]), float(told["until"])
    except (ValueError, KeyError, TypeError):
        return None
