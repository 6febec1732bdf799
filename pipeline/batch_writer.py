"""What happens to each batch of the stream: foreachBatch's function.

Read once, counted, checked (the sum, and that the topics are the ones that were read), and only then written; last
come the ledger, and what merely shows the progress. An exception ends the query with nothing of the batch in the
ledger; the batch is repeated by the next start.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from odradek.pipeline.accounting import Counts
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.batch_metrics import BatchMetrics, batch_metrics
from odradek.pipeline.batch_tables import BatchTables, Outcome, cached, outcome_of
from odradek.pipeline.checkpoints import Checkpoint
from odradek.pipeline.errors import Stopped
from odradek.pipeline.ledger import Ledger, LedgerRow, Offsets
from odradek.pipeline.repetitions import Remembered, without_repeated
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.delta import nothing
from odradek.pipeline.sinks.staged_files import Written
from odradek.pipeline.topic_ids import Topics, lost_below

START_S = 60


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed batch: its row of the ledger, and where the topics ended while it was written."""

    row: LedgerRow
    topics: Topics


class BatchWriter:
    """Writes the batches of one query. Spark calls it in a thread of its own, one batch at a time.

    `look`: the topics at this moment, checked for their ids, once for each batch; raises PipelineError.
    `lost`: offsets that the first batch of this generation has to account for.
    `remembered`: knows the keys that a backfill has written.
    `committed`: told of each batch after its row of the ledger. `reached`: told of each point that is passed.
    `stopping`: whether no batch shall begin any more."""

    def __init__(
        self,
        settings: Settings,
        tables: BatchTables,
        ledger: Ledger,
        checkpoint: Checkpoint,
        first: BatchId,
        *,
        look: Callable[[], Topics],
        lost: int = 0,
        remembered: Remembered | None = None,
        committed: Callable[[Committed], None] = lambda _: None,
        reached: Callable[[str], None] = nothing,
        stopping: Callable[[], bool] = lambda: False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._ledger = ledger
        self._checkpoint = checkpoint
        self._first = first
        self._look = look
        self._lost = lost
        self._remembered = remembered
        self._committed = committed
        self._reached = reached
        self._now = now
        self._query: StreamingQuery | None = None
        self._started = threading.Event()
        self._stopping = stopping
        self.failure: BaseException | None = None

    def started(self, query: StreamingQuery) -> None:
        """The query that calls; its first batch may wait for this."""
        self._query = query
        self._started.set()

    def __call__(self, parsed: DataFrame, number: int) -> None:
        """Writes batch `number`."""
        try:
            if self._stopping():
                raise Stopped
            self._write(parsed, BatchId(self._first.pipeline, self._first.job, self._first.generation, number))
        except BaseException as error:
            self.failure = error  # Spark makes a text of it.
            raise

    def _write(self, parsed: DataFrame, batch: BatchId) -> None:
        started_at = self._now()
        with contextlib.ExitStack() as until:
            rows = cached(parsed, until)
            outcome = outcome_of(rows)
            metrics = self._metrics()
            judged = self._remembered(rows, metrics.watermark) if self._remembered else None
            if judged is not None:
                rows, repeated = without_repeated(cached(judged, until))
                outcome = outcome_of(rows)
                metrics = replace(metrics, duplicates=metrics.duplicates + repeated)
            start, end = self._checkpoint.start_offsets(batch.number), self._checkpoint.end_offsets(batch.number)
            topics = self._look()
            lost = lost_below(start, end, topics) + (self._lost if batch.number == 0 else 0)
            counts = counts_of(metrics, outcome, lost)
            counts.check(batch)
            self._reached("read")
            written = self._tables.write(rows, counts, batch)
            row = ledger_row(
                batch, self._settings.job_version, counts, metrics, written, start, end, started_at, self._now()
            )
            self._ledger.append(batch, row)
            self._reached("ledger: committed")
        self._committed(Committed(row, topics))

    def _metrics(self) -> BatchMetrics:
        self._started.wait(START_S)
        assert self._query is not None, "the query has started"
        return batch_metrics(self._query)


def counts_of(metrics: BatchMetrics, outcome: Outcome, lost: int) -> Counts:
    """Everything that is known of a batch's records, unchecked."""
    return Counts(
        metrics.rows_in,
        outcome.good,
        sum(outcome.reasons.values()),
        metrics.duplicates,
        metrics.late,
        lost,
        outcome.reasons,
    )


def ledger_row(
    batch: BatchId,
    job_version: str,
    counts: Counts,
    metrics: BatchMetrics,
    written: Written,
    start: Offsets,
    end: Offsets,
    started_at: datetime,
    finished_at: datetime,
) -> LedgerRow:
    """The row that says that all this is in the tables."""
    reasons: Mapping[str, int] = counts.reasons
    return LedgerRow(
        job=batch.job,
        generation=batch.generation,
        batch_id=batch.number,
        started_at=started_at,
        finished_at=finished_at,
        rows_in=counts.rows_in,
        good=counts.good,
        dead=counts.dead,
        duplicates=counts.duplicates,
        late=counts.late,
        lost=counts.lost,
        watermark=metrics.watermark,
        state_rows=metrics.state_rows,
        files_written=written.files,
        bytes_written=written.bytes,
        reasons=reasons,
        start_offsets=start,
        end_offsets=end,
        job_version=job_version,
    )
