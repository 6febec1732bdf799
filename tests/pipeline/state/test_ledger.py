"""The ledger, and the equation that holds for every batch."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.offsets import offsets_of, offsets_text
from odradek.pipeline.kafka.topics import KnownTopic
from odradek.pipeline.state.accounting import Counts
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import read_table
from odradek.pipeline.state.ledger import COMPACTED_EACH, NEWER, SCHEMA, Ledger, LedgerRow
from odradek.pipeline.state.location import Location

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def row(number: int, job: str = "ingest", **changes: Any) -> LedgerRow:
    usual: dict[str, Any] = {
        "job": job, "batch_id": number, "started_at": NOW, "finished_at": NOW + timedelta(seconds=1),
        "rows_in": 10, "good": 7, "dead": 1, "duplicates": 1, "late": 1, "lost": 5,
        "watermark": None, "newest_event_time": None, "files_written": 2, "bytes_written": 1000,
        "reasons": {"not_json": 1}, "topics": {"orders": KnownTopic("id-1", {0: 12, 11: 4})}, "job_version": "1",
        "start_offsets": {"orders": {0: 0, 11: 3}}, "end_offsets": {"orders": {0: 10, 11: 4}},
    }  # fmt: skip
    return LedgerRow(**{**usual, **changes})


def append(ledger: Ledger, *rows: LedgerRow) -> None:
    ledger.append(BatchId("orders", rows[-1].batch_id), *rows)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(Location(str(tmp_path / "batches")))


def test_rows_are_read_back_unchanged_in_the_order_of_batches(ledger: Ledger) -> None:
    assert ledger.rows() == []
    assert ledger.newest() is None
    assert ledger.last_rows(5) == []
    entered = [
        row(0, "backfill"),
        row(1, "backfill", reasons={}, topics={}),
        row(2, watermark=NOW, newest_event_time=NOW + timedelta(microseconds=1)),
        row(3, start_offsets={}),
    ]
    append(ledger, entered[1], entered[0])
    append(ledger, *entered[2:])
    assert ledger.rows() == entered
    assert ledger.rows("ingest") == entered[2:]
    assert ledger.newest() == entered[3]
    assert ledger.last_rows(3) == entered[1:]
    assert ledger.last_rows(99) == entered
    assert ledger.content(["good", "batch_id"]).to_pylist() == [{"good": 7, "batch_id": n} for n in range(4)]
    assert ledger.content(["job"]).column_names == ["job"]


def test_a_ledger_of_an_earlier_version_is_continued(ledger: Ledger, tmp_path: Path) -> None:
    entered = [row(0), row(1, superseded=1, deletes=5, filtered=3, dropped=2, warnings={"amount": 4})]
    append(ledger, entered[0])
    columns = [name for name in SCHEMA.names if name not in NEWER]
    old = read_table(DeltaTable(tmp_path / "batches"), columns)
    write_deltalake(tmp_path / "batches", old, mode="overwrite", schema_mode="overwrite")
    assert ledger.rows() == entered[:1]
    assert ledger.content(["deletes", "filtered"]).to_pylist() == [{"deletes": 0, "filtered": 0}]
    append(ledger, entered[1])
    assert ledger.rows() == entered
    assert ledger.content(["dropped"]).to_pylist() == [{"dropped": 0}, {"dropped": 2}]


def test_a_batch_is_entered_once_even_after_a_log_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(103):
        append(ledger, row(number))
    append(ledger, row(50))
    append(ledger, row(102))
    assert list((tmp_path / "batches/_delta_log").glob("*.checkpoint.parquet"))
    assert [one.batch_id for one in ledger.rows()] == list(range(103))


def test_many_batches_are_compacted_into_few_files_with_every_row(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(COMPACTED_EACH):
        append(ledger, row(number))
        assert pa.table(DeltaTable(tmp_path / "batches").get_add_actions()).num_rows == number + 1
    ledger.compact()
    assert pa.table(DeltaTable(tmp_path / "batches").get_add_actions()).num_rows == 1
    append(ledger, row(COMPACTED_EACH - 1))
    append(ledger, row(COMPACTED_EACH, good=8))
    assert ledger.rows() == [*(row(number) for number in range(COMPACTED_EACH)), row(COMPACTED_EACH, good=8)]
    assert ledger.newest() == row(COMPACTED_EACH, good=8)


def test_a_concurrent_entry_of_the_same_batch_fails(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both jobs read the ledger before either writes."""
    append(ledger, row(0))
    before = DeltaTable(ledger._place)
    append(ledger, row(1))
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_table", lambda _: before)
        with pytest.raises(Exception, match=r"(?i)transaction|conflict|concurrent"):
            append(ledger, row(1, job="backfill"))
    assert ledger.rows() == [row(0), row(1)]


def test_a_ledger_of_an_earlier_version_is_reported_with_a_remedy(ledger: Ledger, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "batches"), pa.table({"batch_id": [0], "generation": [1]}))
    for use in (ledger.rows, ledger.newest, lambda: ledger.last_rows(1)):
        with pytest.raises(PipelineError, match="is from an earlier version of the pipeline") as caught:
            use()
        assert caught.value.remedy


def test_offsets_are_written_in_sparks_format() -> None:
    assert offsets_text({"b": {1: 2, 0: 1}, "a": {10: 0}}) == '{"a": {"10": 0}, "b": {"0": 1, "1": 2}}'
    assert offsets_of('{"b":{"1":2}}') == {"b": {1: 2}}
    with pytest.raises(ValueError, match="not offsets"):
        offsets_of("[1]")


def test_the_error_of_a_wrong_sum_names_all_its_parts() -> None:
    Counts(10, 5, 2, 2, 1, lost=99).check("b")
    Counts(10, 4, 1, 1, 1, filtered=2, dropped=1).check("b")
    with pytest.raises(PipelineError, match=r"10 records in, but 5 good \+ 2 dead \+ 2 duplicates \+ 2 late are 11"):
        Counts(10, 5, 2, 2, 2).check("b")
