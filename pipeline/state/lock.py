"""Locks that keep two jobs from running on one pipeline at the same time.

In a directory it is a lock of the operating system, released when the process ends, however it ends. In an object store
it is a lease: a file with its holder and its expiry time, taken and renewed by conditional puts. The holder renews it
every RENEWED_S seconds. The lease of a killed holder can be taken when it expires, or, if the killed holder's clock was
ahead of this machine's, when it has not been renewed for LEASE_S seconds.

The lock only avoids duplicate work. Two jobs would do no harm even without it: the plans and the tables' logs accept
each batch once.
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
"""Longer than `is_held` holds a shared lock."""
RETRIED_S = 0.004
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
    """Holds the lock `name`. Raises PipelineError with `problem` if another process holds it."""
    if place.is_local:
        with _locked(place, name, problem):
            yield
    else:
        with _Lease(place, name, problem, now, sleep):
            yield


def is_held(place: Location, name: str, now: Callable[[], float] = time.time) -> bool:
    """Whether a job holds the lock. Changes nothing: the check takes a shared lock for less than LOOK_S seconds."""
    if not place.is_local:
        lease = _lease_of(place.read(name))
        return lease is not None and lease[1] > now()
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
    """Takes the lock, as soon as no check by `is_held` has it. Raises BlockingIOError if it is held for LOOK_S."""
    give_up = time.monotonic() + LOOK_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise
        time.sleep(RETRIED_S)


class _Lease:
    """A lease, held within the `with` block."""

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
                log.info("lock held, waiting for renewal or expiry", lock=str(self._place / self._name))
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
        except Exception as error:  # Logged only: it must not hide an error of the job itself.
            log.warning("lock not released, held until it expires", error=_first_line(error))

    def _refused(self) -> PipelineError:
        lease = _lease_of(self._place.read(self._name))
        holder = lease[0] if lease else "another job"
        return PipelineError(f"{self._problem}: {holder} holds {self._place / self._name}", "stop it first")

    def _taken(self, dead: str) -> bool:
        """Creates the lease, or takes a lease that has expired or still has the version `dead`."""
        content = self._content()
        if self._place.create(self._name, content):
            self._version = self._place.version(self._name)
            return True
        version = self._place.version(self._name)
        lease = _lease_of(self._place.read(self._name))
        if not version or (version != dead and lease is not None and lease[1] > self._now()):
            return False
        self._version = self._place.swap(self._name, content, version)
        return bool(self._version)

    def _renew(self) -> None:
        while not self._over.wait(RENEWED_S):
            try:
                renewed = self._place.swap(self._name, self._content(), self._version)
                if not renewed and self._is_mine():  # Already renewed, by a put whose response was lost.
                    renewed = self._place.version(self._name)
            except Exception as error:  # The store may be unavailable for longer than its client retries.
                log.warning("lock not renewed", error=_first_line(error))
                continue
            if not renewed:
                log.error("lock taken by another job", lock=self._name)
                return
            self._version = renewed

    def _is_mine(self) -> bool:
        lease = _lease_of(self._place.read(self._name))
        return lease is not None and lease[0] == self._holder

    def _content(self) -> bytes:
        return json.dumps({"holder": self._holder, "until": self._now() + LEASE_S}).encode()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _lease_of(content: bytes | None) -> tuple[str, float] | None:
    """Returns the holder and the expiry time of a lease. None if the content is missing or not a lease."""
    try:
        lease = json.loads(content or b"")
        return str(lease["holder"]), float(lease["until"])
    except (ValueError, KeyError, TypeError):
        return None
