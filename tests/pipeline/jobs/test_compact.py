"""Compact: fewer files, the same rows, no disturbed reader or writer."""

import dataclasses
import fcntl
import io
import os
import threading
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyarrow import parquet

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import compact
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sinks import compaction
from odradek.pipeline.sinks.compaction import compact_table
from odradek.pipeline.state import delta_tables
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from tests.pipeline.ledger_rows import batch, enter

WEEK = timedelta(days=7)
BIG = 1 << 27
OLD = time.time() - 30 * 86_400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return make_settings({"name": "orders", "lake": str(tmp_path / "lake")})


def append(path: os.PathLike[str], ids: Iterable[int], **columns: Any) -> None:
    """Commits one file, or one per partition; the batch number is the first id."""
    values = list(ids)
    table = pa.table({"id": values, **{name: [value] * len(values) for name, value in columns.items()}})
    commit = CommitProperties(app_transactions=[Transaction("orders/rows", values[0])])
    write_deltalake(os.fspath(path), table, mode="append", partition_by=list(columns), commit_properties=commit)


def ids(table: DeltaTable) -> list[int]:
    return sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist())


def run(settings: Settings) -> list[str]:
    out = io.StringIO()
    assert compact.run(settings, out) == 0
    return out.getvalue().splitlines()


def compacted(path: Path, **changes: Any) -> compaction.Compacted:
    given: dict[str, Any] = {"target_size": BIG, "retention": WEEK, "closed_before": None, **changes}
    return compact_table("rows", Location(str(path)), **given)


def test_files_are_merged_and_keep_their_rows_and_batch_numbers(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(10):
        append(places.rows, range(number * 10, number * 10 + 10))
    append(places.dead_letters, [1])
    enter(settings, *(batch(number, {"orders": {0: number}}) for number in range(5)))
    before = Ledger(places.ledger).rows()
    rows, dead, batches = run(settings)
    assert rows.startswith("rows          files 10 -> 1, bytes ")
    assert dead.startswith("dead_letters  files 1 -> 1, ")
    assert batches.startswith("batches       files 5 -> 1, ")
    table = DeltaTable(places.rows)
    assert ids(table) == list(range(100))
    assert table.transaction_version("orders/rows") == 90
    assert Ledger(places.ledger).rows() == before
    version = table.version()
    run(settings)
    assert DeltaTable(places.rows).version() == version, "nothing was to be done, and a version was made"


def test_merged_files_do_not_exceed_the_target_size(tmp_path: Path) -> None:
    for number in range(6):
        table = pa.table({"id": [number] * 50, "text": [os.urandom(400) for _ in range(50)]})
        write_deltalake(str(tmp_path), table, mode="append")
    untouched = compacted(tmp_path, target_size=10)
    assert untouched.files_after == 6
    done = compacted(tmp_path, target_size=untouched.bytes_before * 5 // 12)
    assert done.files_before == 6
    assert done.files_after == 3


def test_days_before_the_watermark_are_compacted_and_the_open_day_is_not(tmp_path: Path) -> None:
    for number in range(9):
        append(tmp_path, [number], day=date(2026, 3, 1 + number // 3))
    append(tmp_path, [9], day=None)
    append(tmp_path, [10], day=None)
    assert compacted(tmp_path).files_after == 11, "no day is known to be over"
    done = compacted(tmp_path, closed_before=datetime(2026, 3, 3, 0, 0, 1, tzinfo=UTC))
    files = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True))["partition.day"].to_pylist()
    assert sorted(map(str, files)) == ["2026-03-01", "2026-03-02", *["2026-03-03"] * 3, *["None"] * 2]
    assert done.files_after == 7
    assert ids(DeltaTable(tmp_path)) == list(range(11))


def test_the_watermark_of_the_newest_batch_decides_which_days_are_complete(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(4):
        append(places.rows, [number], day=date(2026, 2, 28 + number // 2) if number < 2 else date(2026, 3, 1))
    enter(settings, batch(0, {}, watermark=datetime(2026, 2, 28, 23, tzinfo=UTC)))
    assert run(settings)[0].startswith("rows          files 4 -> 4")
    enter(settings, batch(1, {}, watermark=None))  # Begins on the first of March at 9:01.
    assert run(settings)[0].startswith("rows          files 4 -> 3")


def test_partitions_other_than_days_are_compacted_one_by_one(tmp_path: Path) -> None:
    for number in range(8):
        append(tmp_path, [number], customer=f"a b/{number % 2}%")
    assert compacted(tmp_path).files_after == 2
    assert ids(DeltaTable(tmp_path)) == list(range(8))


def test_a_reader_of_an_old_version_continues_during_a_compaction(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(10):
        append(places.rows, [number])
    reader = DeltaTable(places.rows)
    scan = reader.to_pyarrow_dataset().scanner(batch_size=1).to_batches()
    first = next(scan)
    run(settings)
    rest = pa.Table.from_batches([first, *scan])
    assert sorted(rest["id"].to_pylist()) == list(range(10))
    assert ids(reader) == list(range(10))
    assert ids(DeltaTable(places.rows, version=4)) == list(range(5))


def test_old_versions_are_removed_after_the_retention(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(3):
        append(places.rows, [number])
    files = set(places.rows.path.glob("*.parquet"))
    run(settings)
    assert files < set(places.rows.path.glob("*.parquet"))
    printed = run(dataclasses.replace(settings, compact_retention="0 seconds"))
    assert "removed 3 old files" in printed[0]
    assert not files & set(places.rows.path.glob("*.parquet"))
    assert ids(DeltaTable(places.rows)) == [0, 1, 2]
    assert "removed 0 old files" in run(dataclasses.replace(settings, compact_retention="0 seconds"))[0]


def test_old_files_of_killed_attempts_are_removed_and_staged_files_are_kept(tmp_path: Path) -> None:
    append(tmp_path, [1])
    places = [tmp_path / "young.parquet", tmp_path / "old.parquet", tmp_path / "_staging" / "ingest" / "part.parquet"]
    places[2].parent.mkdir(parents=True)
    for place in places:
        parquet.write_table(pa.table({"id": [7]}), place)
    os.utime(places[1], (OLD, OLD))
    os.utime(places[2], (OLD, OLD))
    assert compacted(tmp_path, retention=timedelta(0)).vacuumed == 1
    assert [place.exists() for place in places] == [True, False, True]
    assert ids(DeltaTable(tmp_path)) == [1]


def test_a_concurrent_writer_loses_and_duplicates_no_row(tmp_path: Path) -> None:
    append(tmp_path, [0])

    def write() -> None:
        for number in range(1, 40):
            append(tmp_path, [number])

    writer = threading.Thread(target=write)
    writer.start()
    runs = 0
    while writer.is_alive():
        compacted(tmp_path)
        runs += 1
    writer.join()
    assert runs > 1
    assert ids(DeltaTable(tmp_path)) == list(range(40))
    assert DeltaTable(tmp_path).transaction_version("orders/rows") == 39


def merge(path: Path) -> None:
    """Rewrites the file that contains a row, as the merge of windows does."""
    source = pa.table({"id": [1], "count": [1]})
    table = DeltaTable(path).merge(source, "t.id = s.id", "s", "t")
    table.when_matched_update({"count": "t.count + s.count"}).when_not_matched_insert_all().execute()


def counts(path: Path) -> dict[int, int]:
    rows = DeltaTable(path).to_pyarrow_table()
    assert rows.num_rows == 5
    return dict(zip(rows["id"].to_pylist(), rows["count"].to_pylist(), strict=True))


def test_a_conflicting_merge_makes_compact_retry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write_deltalake(str(tmp_path), pa.table({"id": [number], "count": [1]}), mode="append")
    merges, pauses = [1, 1], list[float]()

    class Overtaken(DeltaTable):
        @property
        def optimize(self) -> Any:
            if merges:
                merges.pop()
                merge(tmp_path)
            return super().optimize

    monkeypatch.setattr(delta_tables, "DeltaTable", Overtaken)
    assert compacted(tmp_path, sleep=pauses.append).files_after == 1
    assert len(pauses) == 2
    assert counts(tmp_path) == {0: 1, 1: 3, 2: 1, 3: 1, 4: 1}


def test_compact_gives_up_after_repeated_conflicts_and_keeps_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write_deltalake(str(tmp_path), pa.table({"id": [number], "count": [1]}), mode="append")

    class Overtaken(DeltaTable):
        @property
        def optimize(self) -> Any:
            merge(tmp_path)
            return super().optimize

    monkeypatch.setattr(delta_tables, "DeltaTable", Overtaken)
    with pytest.raises(PipelineError, match="could not be compacted"):
        compacted(tmp_path, sleep=lambda _: None)
    assert counts(tmp_path)[1] == 1 + compaction.ATTEMPTS


def test_a_concurrent_compaction_is_refused(settings: Settings) -> None:
    places = Places.of(settings)
    append(places.rows, [1])
    append(places.rows, [2])
    places.state.path.mkdir(parents=True)
    with (places.state.path / "compact.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(PipelineError, match="another compact is running"):
            compact.run(settings)
    assert len(DeltaTable(places.rows).file_uris()) == 2
    run(settings)


def test_plain_parquet_tables_are_refused_and_the_ledger_is_compacted(settings: Settings) -> None:
    places = Places.of(settings)
    for number in range(3):
        place = places.rows.path / f"batch={number:08d}"
        place.mkdir(parents=True)
        parquet.write_table(pa.table({"id": [number]}), place / "part-0.parquet")
    enter(settings, batch(0, {}), batch(1, {}))
    with pytest.raises(PipelineError, match=r"plain Parquet files cannot be merged .*; use sink = delta"):
        compact.run(settings, io.StringIO())
    assert len(list(places.rows.path.rglob("*.parquet"))) == 3
    assert len(DeltaTable(places.ledger).file_uris()) == 1


def test_without_tables_there_is_an_error_with_a_remedy(settings: Settings) -> None:
    with pytest.raises(PipelineError, match=r"has no tables in .*; run `odradek pipeline ingest`"):
        compact.run(settings)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7 days", 604_800), ("1 hour 30 minutes", 5400), ("interval 1 Week", 604_800), ("0 seconds", 0)],
)
def test_durations_are_parsed_as_by_spark(text: str, seconds: int) -> None:
    assert duration(text, "x").total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "7", "days", "7 fortnights", "7 days or so", "-1 days", "1.5 days"])
def test_an_invalid_duration_is_an_error_that_names_its_setting(text: str) -> None:
    with pytest.raises(PipelineError, match=r"compact-retention is .*not a duration"):
        duration(text, "compact-retention")


def test_times_beyond_pythons_range_are_compacted(tmp_path: Path) -> None:
    years = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))  # the year 10000
    for _ in range(2):
        write_deltalake(tmp_path, pa.table({"window_end": years}), mode="append")
    assert compact_table("windows", Location(str(tmp_path)), BIG, WEEK, None).files_after == 1
