"""What a streaming query knows of the batch that it is at, asked in the midst of it.

Spark tells most of this in the progress event of a batch, when it is over. The counts are needed before anything is
committed, so they are taken from the execution itself (StreamExecution.lastExecution): its observed metrics and those
of the operator that de-duplicates. They are complete when the batch has been executed once, and only once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

OBSERVATION = "odradek"
"""Names the count of records before de-duplication."""


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """Counts of one batch before anything is split. `watermark`: that by which lateness was judged."""

    rows_in: int
    duplicates: int
    late: int
    state_rows: int
    watermark: datetime | None


def counted(records: DataFrame) -> DataFrame:
    """The records, which Spark counts as they pass."""
    return records.observe(OBSERVATION, sf.count(sf.lit(1)).alias("records"))


def batch_metrics(query: StreamingQuery) -> BatchMetrics:
    """The counts of the batch that `query` is at. It must have been executed."""
    execution = query._jsq.streamingQuery().lastExecution()
    rows_in = int(execution.observedMetrics().apply(OBSERVATION).getLong(0))
    for operator in _operators(execution.executedPlan()):
        if operator.nodeName().startswith("StreamingDeduplicate"):
            metrics = _values(operator.metrics())
            milliseconds = int(execution.offsetSeqMetadata().batchWatermarkMs())
            watermark = datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds > 0 else None
            return BatchMetrics(
                rows_in,
                metrics["numDroppedDuplicateRows"],
                metrics["numRowsDroppedByWatermark"],
                metrics["numTotalStateRows"],
                watermark,
            )
    return BatchMetrics(rows_in, 0, 0, 0, None)


def _operators(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for index in range(children.size()):
        yield from _operators(children.apply(index))


def _values(metrics: Any) -> dict[str, int]:
    """A Scala map of SQLMetrics."""
    found: dict[str, int] = {}
    entries = metrics.iterator()
    while entries.hasNext():
        entry = entries.next()
        found[entry._1()] = int(entry._2().value())
    return found
