"""The ledger: a Delta table with a row for each batch that is committed, written last of all of the batch's tables.

What is here is in the tables. What is in the tables and not here is a batch that was killed between two commits: its
repetition finds its rows written, skips them, and writes the ledger's row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.delta_tables import BrokenTable, table_at
from odradek.pipeline.segments.options import EARLIEST

Offsets = Mapping[str, Mapping[int, int]]
"""The next offset to read, by topic and partition."""

SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("generation", pa.int32()),
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
        ("state_rows", pa.int64()),
        ("files_written", pa.int64()),
        ("bytes_written", pa.int64()),
        ("reasons", pa.map_(pa.string(), pa.int64())),
        ("start_offsets", pa.string()),
        ("end_offsets", pa.string()),
        ("job_version", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One batch. Offsets: the first that was read, and the first that was not."""

    job: str
    generation: int
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
    state_rows: int
    files_written: int
    bytes_written: int
    reasons: Mapping[str, int]
    start_offsets: Offsets
    end_offsets: Offsets
    job_version: str


class Ledger:
    """The table at `path`, which comes into being with its first row."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def last_batch(self, batch: BatchId) -> int | None:
        """The number of the last batch of this job and generation that is entered."""
        table = self._table()
        return None if table is None else table.transaction_version(batch.app("batches"))

    def append(self, batch: BatchId, row: LedgerRow) -> None:
        """Enters a batch, unless it is entered already."""
        last = self.last_batch(batch)
        if last is not None and last >= batch.number:
            return
        values = asdict(row) | {
            "reasons": list(row.reasons.items()),
            "start_offsets": offsets_text(row.start_offsets),
            "end_offsets": offsets_text(row.end_offsets),
        }
        properties = CommitProperties(app_transactions=[Transaction(batch.app("batches"), batch.number)])
        content = pa.Table.from_pylist([values], SCHEMA)
        write_deltalake(str(self._path), content, mode="append", commit_properties=properties)

    def rows(self, job: str | None = None) -> list[LedgerRow]:
        """The rows of one job, or of all, in the order of their batches. Raises PipelineError."""
        table = self._table()
        if table is None:
            return []
        columns = [one.name for one in fields(LedgerRow)]
        try:
            found = [_row(values) for values in table.to_pyarrow_table(columns=columns).to_pylist()]
        except (OSError, ValueError) as error:
            raise BrokenTable(self._path, error) from error
        chosen = [row for row in found if job in (None, row.job)]
        return sorted(chosen, key=lambda row: (row.job, row.generation, row.batch_id))

    def _table(self) -> DeltaTable | None:
        return table_at(self._path)


def _row(values: Mapping[str, Any]) -> LedgerRow:
    read = {
        "reasons": dict(values["reasons"] or ()),
        "start_offsets": offsets_of(values["start_offsets"]),
        "end_offsets": offsets_of(values["end_offsets"]),
    }
    return LedgerRow(**{**values, **read})


def offsets_text(offsets: Offsets) -> str:
    """Offsets as Spark writes them: {"topic":{"0":12}}."""
    content = {topic: {str(number): offsets[topic][number] for number in sorted(offsets[topic])} for topic in offsets}
    return json.dumps(content, sort_keys=True)


def by_partition(offsets: Offsets) -> dict[str, int]:
    """Offsets as logs tell them: {"topic-0": 12}."""
    return {f"{name}-{number}": offset for name, partitions in offsets.items() for number, offset in partitions.items()}


def offsets_of(text: str) -> dict[str, dict[int, int]]:
    """Offsets from their text. Raises ValueError."""
    content = json.loads(text)
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise ValueError(f"no offsets: {text[:80]}")
    strange = [
        at for partitions in content.values() for at in partitions.values() if type(at) is not int or at < EARLIEST
    ]
    if strange:
        raise ValueError(f"{strange[0]!r} is no offset")
    return {topic: {int(number): at for number, at in partitions.items()} for topic, partitions in content.items()}
