"""A job has its pipeline for itself, and ends between two batches when it is asked to."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.errors import PipelineError


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Holds the lock. Raises PipelineError if another process does; it is let go when the process ends, however."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PipelineError(
                f"another ingest or backfill is at work here: it holds {lock}", "stop it first"
            ) from error
        yield


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`; not in threads, which get no signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
