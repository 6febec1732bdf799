"""Ledgers written by hand: rows of batches as an ingest writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from odradek.pipeline.settings import Settings
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.places import Places

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
"""When batch 0 begins. Each batch takes two seconds, and the next begins a minute later."""


def batch(number: int, end: dict[str, dict[int, int]], **changes: Any) -> LedgerRow:
    """A batch of ten rows that add up; `end` are its end offsets."""
    begin = START + timedelta(minutes=number)
    usual: dict[str, Any] = {
        "job": "ingest", "batch_id": number,
        "started_at": begin, "finished_at": begin + timedelta(seconds=2),
        "rows_in": 10, "good": 5, "dead": 2, "duplicates": 2, "late": 1, "lost": 0,
        "watermark": begin - timedelta(minutes=10), "newest_event_time": begin,
        "files_written": 2, "bytes_written": 2000, "reasons": {"not_json": 1, "tombstone": 1},
        "start_offsets": {}, "end_offsets": end, "job_version": "1",
    }  # fmt: skip
    return LedgerRow(**{**usual, **changes})


def enter(settings: Settings, *rows: LedgerRow) -> None:
    """Appends rows to the pipeline's ledger."""
    ledger = Ledger(Places.of(settings).ledger)
    for row in rows:
        ledger.append(BatchId(settings.name, row.batch_id), row)
