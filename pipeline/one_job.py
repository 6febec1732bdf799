"""A job has its pipeline for itself, and ends between two batches when it is asked to."""

from __future__ import annotations

import contextlib
import fcntl
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pyspark.errors import PySparkException

from odradek.pipeline.errors import PipelineError, Stopped
from odradek.pipeline.places import Places
from odradek.pipeline.progress import Progress, open_progress
from odradek.pipeline.session import open_session
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark_errors import as_pipeline_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.2
"""Longer than `is_held` shares a lock."""


@contextlib.contextmanager
def one_job(name: str, settings: Settings) -> Iterator[tuple[SparkSession, Progress]]:
    """Spark and what shows the progress, for the only job that works here. Raises PipelineError."""
    try:
        with open_progress() as shown, alone(Places.of(settings).lock):
            shown.waiting("starting Spark")
            yield open_session(settings), shown
    except (OSError, PySparkException) as error:
        raise as_pipeline_error(error, f"the {name} failed") from error


@contextlib.contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Holds the lock. Raises PipelineError if another process does; it is let go when the process ends, however."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        try:
            _take(held)
        except BlockingIOError as error:
            raise PipelineError(
                f"another ingest or backfill is at work here: it holds {lock}", "stop it first"
            ) from error
        yield


def _take(file: IO[str]) -> None:
    """Takes the lock. Raises BlockingIOError where it is held for longer than a look takes."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(LOOK_S)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_held(lock: Path) -> bool:
    """Whether a job is at work here. Changes nothing: the look itself shares the lock, for less than LOOK_S."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def pause(stopping: threading.Event) -> Callable[[float], None]:
    """A sleep of so many seconds that raises Stopped when the job is told to stop."""

    def sleep(seconds: float) -> None:
        if stopping.wait(seconds):
            raise Stopped

    return sleep


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`; not in threads, which get no signals.

    Spark's start is to be within: broken off, it would leave its Java process running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
