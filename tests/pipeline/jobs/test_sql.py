"""`odradek pipeline sql`: the pipeline's tables are queried by their names, and every error is one line."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from odradek.cli.__main__ import main
from odradek.pipeline.demo.shop import Record, by_country
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import sql
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.places import Places
from tests.pipeline.ledger_rows import batch, enter


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A pipeline with rows, windows and a ledger."""
    settings = make_settings({"name": "orders", "lake": str(tmp_path / "lake"), "topics": ["orders"]})
    places = Places.of(settings)
    late = pa.array([0, 253_402_300_800_000_000], pa.timestamp("us", "UTC"))  # 1970, and the year 10000
    write_deltalake(places.rows.url, pa.table({"id": [1, 2], "amount": [0.5, 1234.25], "at": late}))
    write_deltalake(places.windows.url, pa.table({"count": [2]}))
    enter(settings, batch(0, {}), batch(1, {}))
    return settings


def printed(settings: Settings, query: str) -> list[str]:
    out = io.StringIO()
    assert sql.run(settings, query, out) == 0
    return out.getvalue().splitlines()


def test_the_tables_are_queried_by_their_names(settings: Settings) -> None:
    assert printed(settings, "SELECT id, amount FROM rows ORDER BY id DESC") == [
        *("  id  amount", "  2   1,234.25", "  1   0.50")
    ]
    joined = "SELECT sum(l.good) AS good, (SELECT max(count) FROM windows) AS most FROM ledger l"
    assert printed(settings, joined) == ["  good  most", "  10    2"]
    assert printed(settings, "SELECT id FROM rows WHERE id > 2") == ["  id"]


def test_times_that_python_lacks_are_shown(settings: Settings) -> None:
    assert [line.split()[0] for line in printed(settings, "SELECT at FROM rows ORDER BY id")] == [
        *("at", "1970-01-01", "10000-01-01")
    ]


def test_a_long_result_is_cut_and_says_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql, "MOST_ROWS", 1)
    lines = printed(settings, "SELECT id FROM rows ORDER BY id")
    assert lines == ["  id", "  1", "  ... the result has more than 1 rows: set a LIMIT, or aggregate"]
    assert len(sql.queried(settings, "SELECT id FROM rows")) == 2


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT", "the query failed: .*; the tables are rows, windows, ledger"),
        ("SELECT nothing FROM rows", "the query failed: .*nothing.*; the tables are"),
        ("SELECT * FROM late", "the query failed: .*late.*; the tables are rows, windows, ledger"),
        ("SELECT 1; INSERT INTO windows VALUES (1)", "the query failed"),
        ("WITH w AS (SELECT 1 AS count) INSERT INTO windows SELECT count FROM w", "the query failed"),
        ("INSERT INTO windows VALUES (1)", "begins with none of SELECT, WITH; `sql` changes no table"),
        ("", "begins with none of SELECT, WITH"),
    ],
)
def test_a_query_that_fails_is_an_error_of_one_line(settings: Settings, query: str, problem: str) -> None:
    with pytest.raises(PipelineError, match=problem) as caught:
        sql.run(settings, query)
    assert "\n" not in str(caught.value)
    assert printed(settings, "SELECT count(*) AS n FROM windows") == ["  n", "  1"]


def test_plain_parquet_is_named_if_a_query_asks_for_it(settings: Settings) -> None:
    late = Places.of(settings).late.path / "batch=00000000"
    late.mkdir(parents=True)
    parquet.write_table(pa.table({"id": [1]}), late / "part.parquet")
    with pytest.raises(PipelineError, match=r"orders_late is plain Parquet, which `sql` does not read; the tables are"):
        sql.run(settings, "SELECT * FROM late")


def test_without_tables_there_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    nowhere = make_settings({"name": "orders", "lake": str(tmp_path)})
    with pytest.raises(PipelineError, match=r"has no tables in .*; run `odradek pipeline ingest`"):
        sql.run(nowhere, "SELECT 1")


def test_the_command_prints_the_result(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--name", "orders", "--lake", settings.lake]
    assert main(["pipeline", "sql", "SELECT count(*) AS n FROM rows", *flags]) == 0
    assert capsys.readouterr().out == "  n\n  2\n"


def test_the_demo_counts_each_good_order_once() -> None:
    def order(number: object, amount: object, at: str) -> Record:
        fields = f'{{"id": {number}, "country": "AT", "amount": {amount}, "at": "2026-01-01T{at}Z"}}'
        return Record(b"", fields.encode())

    good, late = order(1, 1.5, "12:00:00"), order(4, 7, "10:00:00")
    broken = [order("null", 1, "12:00:00"), order(2, '"much"', "12:00:00"), Record(b"", None), Record(b"", b"{")]
    records = [good, good, *broken, late, order(3, 2, "11:59:59"), order(9, 1, "x")]
    assert by_country(records) == [("AT", 2, 3.5)]
