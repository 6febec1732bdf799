"""The ledger: a Delta table with a row for each batch that is committed, written last of all of the batch's tables.

What is here is in the tables. What is in the tables and not here is a batch that was killed between two commits: its
repetition finds its rows written, skips them, and writes the ledger's row. The newest row says where the pipeline goes
on: its offsets are of all partitions that were ever read, its topics those whose ids are known.

The rows are few files however many batches there are: after every COMPACTED_EACH batches a job makes one file of the
small ones. So a hundred thousand batches are read in less than a second, and only the columns that are asked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.kafka.offsets import Offsets, offsets_of, offsets_text
from odradek.pipeline.kafka.topics import KnownTopic, known_topics_of, known_topics_text
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import BrokenTable, has_batch, read_table, table_at
from odradek.pipeline.state.location import Location

COMPACTED_EACH = 200
SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("batch_id", pa.int64()),
        ("started_at", pa.timestamp("us", "UTC")),
        ("finished_at", pa.timestamp("us", "UTC")),
        ("rows_in", pa.int64()),
        ("good", pa.int64()),
        ("dead", pa.int64()),
        ("duplicates", pa.int64()),
        ("late", pa.int64()),
        ("lost", pa.int64()),
        ("watermark", pa.timestamp("us", "UTC")),
        ("newest_event_time", pa.timestamp("us", "UTC")),
        ("files_written", pa.int64()),
        ("bytes_written", pa.int64()),
        ("reasons", pa.map_(pa.string(), pa.int64())),
        ("start_offsets", pa.string()),
        ("end_offsets", pa.string()),
        ("topics", pa.string()),
        ("job_version", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One batch. Offsets: the first that was read, and the first that was not; `end_offsets` of all partitions that
    were ever read. `watermark`: what late rows were older than. `newest_event_time`: of this and all earlier batches.
    """

    job: str
    batch_id: int
    started_at: datetime
    finished_at: datetime
    rows_in: int
    good: int
    dead: int
    duplicates: int
    late: int
    lost: int
    watermark: datetime | None
    newest_event_time: datetime | None
    files_written: int
    bytes_written: int
    reasons: Mapping[str, int]
    start_offsets: Offsets
    end_offsets: Offsets
    topics: Mapping[str, KnownTopic] = field(default_factory=dict)
    job_version: str = "1"


COLUMNS = tuple(one.name for one in fields(LedgerRow))


class Ledger:
    """The table at `place`, which comes into being with its first row."""

    def __init__(self, place: Location) -> None:
        self._place = place

    def append(self, batch: BatchId, *rows: LedgerRow) -> None:
        """Enters a batch, unless it is entered already. Several rows are entered as one: `batch` names the last.

        Raises what deltalake raises, also where another job enters the same batch."""
        table = self._table()
        app = batch.app("batches")
        if table is not None and has_batch(table, app, batch.number):
            return
        content = pa.Table.from_pylist([_values(row) for row in rows], SCHEMA)
        commit = CommitProperties(app_transactions=[Transaction(app, batch.number)])
        options = dict(self._place.options)
        try:
            if table is None:
                write_deltalake(
                    self._place.url, content, mode="append", commit_properties=commit, storage_options=options
                )
            else:
                write_deltalake(table, content, mode="append", commit_properties=commit)
        except CommitFailedError:
            if self.newest() != rows[-1]:  # Else it is entered: the store has lost its answer.
                raise

    def newest(self) -> LedgerRow | None:
        """The row of the last batch. Raises PipelineError."""
        return next(iter(self.last_rows(1)), None)

    def rows(self, job: str | None = None) -> list[LedgerRow]:
        """The rows of one job, or of all, in the order of their batches. Raises PipelineError."""
        return sorted(
            (_row(values) for values in self.content(COLUMNS).to_pylist() if job in (None, values["job"])),
            key=lambda row: row.batch_id,
        )

    def content(self, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Columns of all rows, in the order of their batches. Raises PipelineError."""
        wanted = list(dict.fromkeys([*columns, "batch_id"]))
        return self._read(self._table(), wanted).sort_by("batch_id").select(list(columns))

    def last_rows(self, count: int) -> list[LedgerRow]:
        """The rows of the last `count` batches. Raises PipelineError."""
        table = self._table()
        newest = pc.max(self._read(table, ["batch_id"])["batch_id"]).as_py()
        if newest is None:
            return []
        found = self._read(table, COLUMNS, f"batch_id > {newest - count}").to_pylist()
        return sorted((_row(values) for values in found), key=lambda row: row.batch_id)

    def _read(self, table: DeltaTable | None, columns: Sequence[str], where: str = "") -> pa.Table:
        if table is None:
            return SCHEMA.empty_table().select(list(columns))
        if any(one.name == "generation" for one in table.schema().fields):
            raise PipelineError(
                f"the ledger {self._place} is of an earlier version of the pipeline, which read by Spark's checkpoints",
                ANEW,
            )
        try:
            return read_table(table, columns, where)
        except (DeltaError, OSError, ValueError) as error:
            raise BrokenTable(self._place, error) from error

    def compact(self) -> None:
        """Makes few files of many. Readers of older versions have theirs for an hour. The caller holds COMPACT_LOCK:
        deltalake commits two compactions at a time, and every row is there twice. Raises DeltaError and OSError.
        """
        table = self._table()
        assert table is not None
        table.optimize.compact(max_concurrent_tasks=1)
        table.create_checkpoint()
        table.cleanup_metadata()
        table.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)

    def _table(self) -> DeltaTable | None:
        return table_at(self._place)


def _values(row: LedgerRow) -> dict[str, Any]:
    return asdict(row) | {
        "reasons": list(row.reasons.items()),
        "start_offsets": offsets_text(row.start_offsets),
        "end_offsets": offsets_text(row.end_offsets),
        "topics": known_topics_text(row.topics),
    }


def _row(values: Mapping[str, Any]) -> LedgerRow:
    read = {
        "reasons": dict(values["reasons"] or ()),
        "start_offsets": offsets_of(values["start_offsets"]),
        "end_offsets": offsets_of(values["end_offsets"]),
        "topics": known_topics_of(json.loads(values["topics"])),
    }
    return LedgerRow(**{**values, **read})
