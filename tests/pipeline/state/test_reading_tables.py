"""Tables are read as by deltalake's own readers, in processes that exit cleanly."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from odradek.pipeline.state.delta_tables import open_table, read_table
from odradek.pipeline.state.location import Location
from tests.soak import rounds

READS = rounds(10, in_soak=200)
OURS = """
import sys
from odradek.pipeline.state.delta_tables import open_table, read_table
from odradek.pipeline.state.location import Location

assert read_table(open_table(Location(sys.argv[1]))).num_rows == 24_000
"""
THAT_OF_THE_DOCS = """
import sys
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

orders = DeltaTable(sys.argv[1])
assert pa.table(QueryBuilder().register("orders", orders).execute("SELECT * FROM orders")).num_rows == 24_000
"""
EVERY_TYPE = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        'a "Name", quoted': ["x", None],
        "bytes": [b"x", None],
        "list": [["a", None], []],
        "map": pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string())),
        "nested": [{"x": "a", "y": [{"z": "z"}]}, None],
        "price": [Decimal("1.50"), None],
        "at": pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "local": pa.array([-60_000_000, None], pa.timestamp("us")),
        "day": [date.min, date.max],
        "small": pa.array([1, None], pa.int8()),
        "ratio": pa.array([0.5, None], pa.float32()),
        "flag": [True, None],
        "part": ["a b", "ü/x"],
    }
)


@pytest.fixture
def every_type(tmp_path: Path) -> DeltaTable:
    """Two files that are older than the column `later`."""
    write_deltalake(tmp_path / "table", EVERY_TYPE, partition_by=["part"])
    DeltaTable(tmp_path / "table").alter.add_columns(Field("later", PrimitiveType("string")))
    return open_table(Location(str(tmp_path / "table")))


def test_every_type_is_read_back_unchanged(every_type: DeltaTable) -> None:
    read = read_table(every_type).sort_by("id")
    assert read.schema.types[:-1] == EVERY_TYPE.schema.types
    assert read.drop_columns("later").to_pylist() == EVERY_TYPE.to_pylist()
    assert read["later"].to_pylist() == [None, None]


def test_columns_are_read_in_the_given_order_and_rows_by_a_condition(every_type: DeltaTable) -> None:
    columns = ["part", "id", 'a "Name", quoted']
    assert read_table(every_type, columns, "id > 1").to_pylist() == [dict(zip(columns, ("ü/x", 2, None), strict=True))]
    assert read_table(every_type, columns, "part = 'nobody'").num_rows == 0
    with pytest.raises(KeyError):
        read_table(every_type, ["nobody"])


def test_a_missing_file_is_an_error(every_type: DeltaTable) -> None:
    for file in every_type.file_uris():
        Path(file).unlink()
    with pytest.raises(ValueError, match="Failed to fetch metadata"):
        read_table(every_type)


@pytest.mark.soak("200 readings by processes of their own", minutes=4)
@pytest.mark.parametrize("script", [OURS, THAT_OF_THE_DOCS], ids=["ours", "that of the docs"])
def test_a_process_that_reads_a_table_exits_with_0_each_time(tmp_path: Path, script: str) -> None:
    for batch in range(5):
        ids = range(batch * 4800, (batch + 1) * 4800)
        texts = {name: [f"{name}-{number % 300}" for number in ids] for name in ("customer", "country", "item")}
        write_deltalake(tmp_path / "orders", pa.table({"id": ids, **texts}), mode="append")
    for number in range(READS):
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "orders")], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), f"run {number}"
