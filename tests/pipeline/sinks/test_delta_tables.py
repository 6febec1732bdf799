"""A damaged table is reported in one line by everything that opens it."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import report
from odradek.pipeline.settings import make_settings
from odradek.pipeline.sinks.delta import DeltaSink
from odradek.pipeline.sinks.delta_windows import DeltaWindows
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import open_table, table_at
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from tests.pipeline.ledger_rows import batch, enter

BATCH = BatchId("orders", 0)


@pytest.fixture
def torn(tmp_path: Path) -> Location:
    """A table whose log is truncated."""
    write_deltalake(str(tmp_path / "t"), pa.table({"a": [1]}))
    log = tmp_path / "t" / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text()[:50])
    return Location(str(tmp_path / "t"))


@pytest.mark.parametrize(
    "use",
    [
        table_at,
        open_table,
        lambda place: Ledger(place).rows(),
        lambda place: Ledger(place).newest(),
        lambda place: DeltaSink(place, "rows").last_batch(BATCH),
        lambda place: DeltaSink(place, "rows").files("at", [(0, 1)]),
        lambda place: DeltaWindows(place, ()).last_batch(BATCH),
    ],
)
def test_a_torn_log_is_one_line_that_names_the_table(torn: Location, use: Callable[[Location], object]) -> None:
    with pytest.raises(PipelineError) as caught:
        use(torn)
    assert caught.value.problem.startswith(f"the table {torn} cannot be read: ")
    assert "\n" not in str(caught.value.problem)
    assert "restore it" in caught.value.remedy


def test_a_missing_table_is_none_or_an_error_if_it_must_exist(tmp_path: Path) -> None:
    place = Location(str(tmp_path))
    assert table_at(place) is None
    assert table_at(place / "none") is None
    with pytest.raises(PipelineError, match="is not a Delta table"):
        open_table(place)


def test_the_report_names_a_missing_file_of_the_ledger(tmp_path: Path) -> None:
    settings = make_settings({"name": "orders", "lake": str(tmp_path), "bootstrap_server": "127.0.0.1:1"})
    ledger = Places.of(settings).ledger
    enter(settings, batch(0, {"orders": {0: 10}}))
    next(ledger.path.glob("*.parquet")).unlink()
    with pytest.raises(PipelineError, match=f"the table {ledger} cannot be read: .* not found"):
        report.run(settings)
