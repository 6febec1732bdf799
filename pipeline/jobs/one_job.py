"""The context of a job: it runs exclusively on its pipelines, and stops between two batches when requested."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from odradek.pipeline.errors import Stopped
from odradek.pipeline.jobs.one_line import one_line
from odradek.pipeline.report.metrics import served
from odradek.pipeline.report.progress import Progress, open_progress
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import as_pipeline_error
from odradek.pipeline.spark.session import open_session
from odradek.pipeline.state.lock import alone
from odradek.pipeline.state.places import JOB_LOCK, Places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextlib.contextmanager
def one_job(name: str, settings: Settings, *others: Settings) -> Iterator[tuple[SparkSession, Progress]]:
    """Yields Spark and the progress display, while holding the locks of the pipelines. Raises PipelineError."""
    pipelines = (settings, *others)
    secrets = frozenset().union(*(one.secrets for one in pipelines))
    with_jars = next((one for one in pipelines if one.format == "protobuf"), settings)
    try:
        with (
            one_line(f"the {name} failed"),
            open_progress(secrets=secrets) as shown,
            contextlib.ExitStack() as locks,
            served(shown.metrics, settings),
        ):
            for one in pipelines:
                problem = "another ingest, backfill or redrive is running here"
                locks.enter_context(alone(Places.of(one).state, JOB_LOCK, problem))
            shown.waiting("starting Spark")
            yield open_session(with_jars), shown
    except PySparkException as error:
        raise as_pipeline_error(error, f"the {name} failed") from error


def pause(stopping: threading.Event) -> Callable[[float], None]:
    """Returns a function that sleeps for a number of seconds, and raises Stopped as soon as the job has to stop."""

    def sleep(seconds: float) -> None:
        if stopping.wait(seconds):
            raise Stopped

    return sleep


@contextlib.contextmanager
def signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop` within the context, but only in the main thread, as others get no signals.

    Start Spark within this context: an interrupted start would leave its Java process running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda *_: stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
