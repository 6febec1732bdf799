"""The metrics of running jobs, in Prometheus's format: batches, dead letters, lag, watermark.

Counters start at 0 when the process starts. The lag refers to the end offsets that the job requested last: at each
trigger, and twice in a batch. `ends_seen` has the time of that. Times are seconds since 1970.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import Topics
from odradek.pipeline.parse.records import REASONS
from odradek.pipeline.parse.rules import REASON
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.accounting import OUTCOMES
from odradek.pipeline.state.ledger import LedgerRow

PREFIX = "odradek_pipeline"
BATCH_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""The upper bounds of the histogram's buckets."""
DISABLED = -1
"""The metrics-port that serves nothing."""

log = structlog.get_logger("pipeline.metrics")


class Metrics:
    """The metrics of the pipelines that this process runs. Thread-safe: a job writes them, a server's threads read."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.registry = CollectorRegistry()
        self._now = now
        self._done: dict[str, Offsets] = {}
        self._topics: dict[str, Topics] = {}
        self._with_lag: dict[str, set[tuple[str, str]]] = {}
        self._rows_in = self._counter("rows_in", "Records that committed batches read.")
        self._rows = self._counter("rows", "Records of committed batches by their outcome.", "outcome")
        self._dead = self._counter("dead_letters", "Dead letters of committed batches by their reason.", "reason")
        self._redriven = self._counter("redriven", "Dead letters that were redriven, by their reason.", "reason")
        self._lost = self._counter("lost_offsets", "Offsets that were deleted before they were read.")
        self._seconds = Histogram(
            f"{PREFIX}_batch_seconds", "How long committed batches took.", ["pipeline"],
            buckets=BATCH_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._last = self._gauge("last_batch", "The number of the last committed batch.")
        self._last_at = self._gauge("last_batch_timestamp_seconds", "When the last batch was committed.")
        self._last_rate = self._gauge("last_batch_rows_per_second", "Rows per second of the last committed batch.")
        self._watermark = self._gauge("watermark_timestamp_seconds", "Older events are late. Absent without one.")
        self._newest = self._gauge("newest_event_timestamp_seconds", "The newest event time of all batches.")
        self._lag = self._gauge("lag_offsets", "Unread offsets of each partition.", "topic", "partition")
        self._failed = self._gauge("failed", "1: the pipeline has failed, and waits for the job to be started again.")
        self._ends_seen = self._gauge("ends_seen_timestamp_seconds", "When the job last asked for the end offsets.")

    def begin(self, pipeline: str, processed: Offsets) -> None:
        """Shows the counters at 0. `processed`: the end offsets of the last batch."""
        self._done[pipeline] = processed
        self._failed.labels(pipeline).set(0)
        for counter in (self._rows_in, self._lost):
            counter.labels(pipeline)
        for outcome in OUTCOMES:
            self._rows.labels(pipeline, outcome)
        for reason in REASONS:
            if not reason.startswith(REASON):  # It stands for the rules, which have names.
                self._dead.labels(pipeline, reason)
                self._redriven.labels(pipeline, reason)
        self._seconds.labels(pipeline)

    def failed(self, pipeline: str) -> None:
        """Shows that the job goes on without this pipeline."""
        self._failed.labels(pipeline).set(1)

    def looked(self, pipeline: str, topics: Topics) -> None:
        """Shows the lag. `topics`: as they are now."""
        self._topics[pipeline] = topics
        self._ends_seen.labels(pipeline).set(self._now())
        self._show_lag(pipeline)

    def batch(self, pipeline: str, row: LedgerRow) -> None:
        """Counts a committed batch."""
        seconds = (row.finished_at - row.started_at).total_seconds()
        self._rows_in.labels(pipeline).inc(row.rows_in)
        for outcome in OUTCOMES:
            self._rows.labels(pipeline, outcome).inc(getattr(row, outcome))
        for reason, count in row.reasons.items():
            self._dead.labels(pipeline, reason).inc(count)
        for reason, count in row.redriven_reasons.items():
            self._redriven.labels(pipeline, reason).inc(count)
        self._lost.labels(pipeline).inc(row.lost)
        self._seconds.labels(pipeline).observe(seconds)
        self._last.labels(pipeline).set(row.batch_id)
        self._last_at.labels(pipeline).set(row.finished_at.timestamp())
        self._last_rate.labels(pipeline).set(row.rows_in / seconds if seconds > 0 else 0)
        for gauge, moment in ((self._watermark, row.watermark), (self._newest, row.newest_event_time)):
            if moment is not None:
                gauge.labels(pipeline).set(moment.timestamp())
        self._done[pipeline] = row.end_offsets
        self._show_lag(pipeline)

    def _show_lag(self, pipeline: str) -> None:
        done = self._done.get(pipeline, {})
        lags = {
            (name, str(number)): max(0, end - done.get(name, {}).get(number, topic.starts.get(number, 0)))
            for name, topic in self._topics.get(pipeline, {}).items()
            for number, end in topic.ends.items()
        }
        for gone in self._with_lag.get(pipeline, set()) - lags.keys():
            self._lag.remove(pipeline, *gone)
        for labels, lag in lags.items():
            self._lag.labels(pipeline, *labels).set(lag)
        self._with_lag[pipeline] = set(lags)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", what, ["pipeline", *labels], registry=self.registry)

    def _gauge(self, name: str, what: str, *labels: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", what, ["pipeline", *labels], registry=self.registry)


@contextlib.contextmanager
def served(metrics: Metrics, settings: Settings) -> Iterator[None]:
    """Serves the metrics at metrics-host and metrics-port within the context. Raises PipelineError."""
    if settings.metrics_port == DISABLED:
        yield
        return
    place = f"{settings.metrics_host}:{settings.metrics_port}"
    try:
        server, thread = start_http_server(settings.metrics_port, settings.metrics_host, metrics.registry)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise PipelineError(f"the metrics cannot be served at {place}: {why}", "set another metrics-port") from error
    log.info("metrics served", url=f"http://{settings.metrics_host}:{server.server_port}/metrics")
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
