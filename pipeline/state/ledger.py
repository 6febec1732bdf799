"""The ledger: a Delta table with a row for each committed batch. It is the last table that a batch writes.

Every batch in the ledger is complete in the tables. A batch that is in the tables but not in the ledger was killed
between two commits: when it is repeated, it finds its rows written, skips them, and writes the ledger's row. The
pipeline continues from the newest row: its offsets cover all partitions that were ever read, and its topics are those
with known ids.

The ledger has few files, however many batches there are: after every COMPACTED_EACH batches a job merges the small
files. So a hundred thousand batches are read in less than a second. Only the requested columns are read.
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
from odradek.pipeline.state.accounting import OPTIONAL
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import BrokenTable, has_batch, read_table, table_at
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.selection import REDRIVE

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
        ("superseded", pa.int64()),
        ("deletes", pa.int64()),
        ("filtered", pa.int64()),
        ("dropped", pa.int64()),
        ("warnings", pa.map_(pa.string(), pa.int64())),
        ("redriven", pa.int64()),
        ("redriven_reasons", pa.map_(pa.string(), pa.int64())),
    ]
)
COUNTED = (*OPTIONAL, "redriven")
NEWER = (*COUNTED, "warnings", "redriven_reasons")
"""The columns that a ledger of an earlier version lacks, or has as nulls."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One batch.

    `start_offsets`: inclusive. `end_offsets`: exclusive, for all partitions that were ever read. `watermark`: rows with
    an older event time were late. `newest_event_time`: of this and all earlier batches. A redrive reads no offsets, so
    that its start offsets are its end offsets.
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
    superseded: int = 0
    deletes: int = 0
    filtered: int = 0
    dropped: int = 0
    warnings: Mapping[str, int] = field(default_factory=dict)
    redriven: int = 0
    redriven_reasons: Mapping[str, int] = field(default_factory=dict)


COLUMNS = tuple(one.name for one in fields(LedgerRow))


class Ledger:
    """The ledger at `place`. The first row creates the table."""

    def __init__(self, place: Location) -> None:
        self._place = place

    def append(self, batch: BatchId, *rows: LedgerRow) -> None:
        """Appends a batch, unless the ledger has it. Several rows are appended in one commit: `batch` is the last.

        Raises deltalake's errors, also if another job appends the same batch."""
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
                lacks = not {one.name for one in table.schema().fields}.issuperset(SCHEMA.names)
                write_deltalake(
                    table,
                    content,
                    mode="append",
                    schema_mode="merge" if lacks else None,
                    commit_properties=commit,
                )
        except CommitFailedError:
            if self.newest() != rows[-1]:  # If equal, the commit succeeded and only the store's response was lost.
                raise

    def newest(self) -> LedgerRow | None:
        """Returns the row of the last batch. Raises PipelineError."""
        return next(iter(self.last_rows(1)), None)

    def rows(self, job: str | None = None) -> list[LedgerRow]:
        """Returns the rows of one job, or of all jobs, in batch order. Raises PipelineError."""
        return sorted(
            (_row(values) for values in self.content(COLUMNS).to_pylist() if job in (None, values["job"])),
            key=lambda row: row.batch_id,
        )

    def last_reading_job(self) -> str:
        """Returns the job of the newest batch that has read topics; "" if there is none. Raises PipelineError."""
        jobs = self.content(["job"])["job"]
        reading = jobs.filter(pc.not_equal(jobs, REDRIVE))
        return str(reading[-1].as_py()) if len(reading) else ""

    def content(self, columns: Sequence[str] = COLUMNS) -> pa.Table:
        """Returns columns of all rows, in batch order. Raises PipelineError."""
        wanted = list(dict.fromkeys([*columns, "batch_id"]))
        return self._read(self._table(), wanted).sort_by("batch_id").select(list(columns))

    def last_rows(self, count: int) -> list[LedgerRow]:
        """Returns the rows of the last `count` batches. Raises PipelineError."""
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
                f"the ledger {self._place} is from an earlier version of the pipeline, which used Spark's checkpoints",
                ANEW,
            )
        there = {one.name for one in table.schema().fields}
        try:
            return _completed(
                read_table(table, [one for one in columns if one in there or one not in NEWER], where), columns
            )
        except (DeltaError, OSError, ValueError) as error:
            raise BrokenTable(self._place, error) from error

    def compact(self) -> None:
        """Merges many files into few. Files of older versions are kept for an hour, for their readers.

        The caller must hold COMPACT_LOCK: deltalake would commit two concurrent compactions, and every row would be in
        the table twice. Raises DeltaError and OSError."""
        table = self._table()
        assert table is not None
        table.optimize.compact(max_concurrent_tasks=1)
        table.create_checkpoint()
        table.cleanup_metadata()
        table.vacuum(retention_hours=1, dry_run=False, enforce_retention_duration=False)

    def _table(self) -> DeltaTable | None:
        return table_at(self._place)


def _completed(found: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Adds the NEWER columns that are missing, with 0 for the counts."""
    arrays = {
        name: found[name] if name in found.column_names else pa.nulls(found.num_rows, SCHEMA.field(name).type)
        for name in columns
    }
    return pa.table({name: pc.fill_null(one, 0) if name in COUNTED else one for name, one in arrays.items()})


def _values(row: LedgerRow) -> dict[str, Any]:
    return asdict(row) | {
        "reasons": list(row.reasons.items()),
        "warnings": list(row.warnings.items()),
        "redriven_reasons": list(row.redriven_reasons.items()),
        "start_offsets": offsets_text(row.start_offsets),
        "end_offsets": offsets_text(row.end_offsets),
        "topics": known_topics_text(row.topics),
    }


def _row(values: Mapping[str, Any]) -> LedgerRow:
    read = {
        "reasons": dict(values["reasons"] or ()),
        "warnings": dict(values["warnings"] or ()),
        "redriven_reasons": dict(values["redriven_reasons"] or ()),
        "start_offsets": offsets_of(values["start_offsets"]),
        "end_offsets": offsets_of(values["end_offsets"]),
        "topics": known_topics_of(json.loads(values["topics"])),
    }
    return LedgerRow(**{**values, **read})
