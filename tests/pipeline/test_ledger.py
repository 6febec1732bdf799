"""The ledger, and the sum that every batch must come to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from odradek.pipeline.accounting import Counts
from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.ledger import Ledger, LedgerRow, offsets_of, offsets_text

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, job: str = "ingest", generation: int = 1, watermark: datetime | None = None) -> LedgerRow:
    return LedgerRow(
        job, generation, number, NOW, NOW, 10, 7, 1, 1, 1, 5, watermark, 4, 2, 1000, {"not_json": 1},
        {"orders": {0: 0, 11: 3}}, {"orders": {0: 10, 11: 4}}, "1",
    )  # fmt: skip


def test_rows_come_back_as_they_were_in_the_order_of_batches(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "batches")
    assert ledger.rows() == []
    entered = [row(0), row(1, watermark=NOW), row(0, generation=2), row(0, "backfill")]
    for one in (entered[1:] + entered[:1])[::-1]:
        ledger.append(BatchId("orders", one.job, one.generation, one.batch_id), one)
    assert ledger.rows("ingest") == entered[:3]
    assert ledger.rows() == [entered[3], *entered[:3]]


def test_a_batch_is_entered_once_also_past_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "batches")
    for number in range(103):
        ledger.append(BatchId("orders", "ingest", 1, number), row(number))
    ledger.append(BatchId("orders", "ingest", 1, 50), row(50))
    assert list((tmp_path / "batches/_delta_log").glob("*.checkpoint.parquet"))
    assert [one.batch_id for one in ledger.rows()] == list(range(103))
    assert ledger.last_batch(BatchId("orders", "ingest", 1, 0)) == 102
    assert ledger.last_batch(BatchId("orders", "ingest", 2, 0)) is None


def test_offsets_are_written_as_spark_writes_them() -> None:
    assert offsets_text({"b": {1: 2, 0: 1}, "a": {10: 0}}) == '{"a": {"10": 0}, "b": {"0": 1, "1": 2}}'
    assert offsets_of('{"b":{"1":2}}') == {"b": {1: 2}}
    with pytest.raises(ValueError, match="no offsets"):
        offsets_of("[1]")


def test_a_sum_that_is_off_by_one_names_all_its_parts() -> None:
    Counts(10, 5, 2, 2, 1, lost=99).check("b")
    with pytest.raises(PipelineError, match=r"10 records in, but 5 good \+ 2 dead \+ 2 duplicates \+ 2 late are 11"):
        Counts(10, 5, 2, 2, 2).check("b")
