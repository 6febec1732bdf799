"""The report on the ledger, the tables and the broker, as JSON, as a page, and as a summary."""

import dataclasses
import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kafka import KafkaProducer
from pyarrow import parquet

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import report
from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.report.page import page_of
from odradek.pipeline.report.plots import grouped, plots, size_text
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.places import Places
from tests.pipeline.ledger_rows import batch, enter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
VOID = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta"}


@pytest.fixture
def away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Settings:
    """A pipeline whose broker is unreachable."""
    caplog.set_level("CRITICAL", "kafka")
    return make_settings({"name": "orders", "lake": str(tmp_path / "lake"), "bootstrap_server": "127.0.0.1:1"})


def run(settings: Settings) -> tuple[dict[str, Any], str, list[str]]:
    """The facts, the page, and the printed text."""
    out = io.StringIO()
    patience_ms = 300 if settings.bootstrap_server.endswith(":1") else 5000
    status = report.run(settings, out, lambda: NOON, patience_ms)
    state = Places.of(settings).state
    facts = json.loads((state.path / "report.json").read_text(encoding="utf-8"))
    assert status == (3 if facts["alarms"] else 0)
    return facts, (state.path / "report.html").read_text(encoding="utf-8"), out.getvalue().splitlines()


class Page(HTMLParser):
    """Checks that every element is closed, and collects every attribute and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_facts_are_reported_as_text_json_and_a_page(orders: Settings, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=orders.bootstrap_server)
    for number in range(10):
        producer.send(topic, b"{}", partition=number % 2).get(10)
    producer.close()
    places = Places.of(orders)
    for number in range(3):
        write_deltalake(str(places.rows), pa.table({"id": list(range(number + 1))}), mode="append")
    enter(orders, batch(0, {topic: {0: 2, 1: 2}}), batch(1, {topic: {0: 4, 1: 5}}, reasons={"tombstone": 2}))
    shadow_group.commit(orders, {topic: {0: 4, 1: 5}})
    facts, page, printed = run(orders)
    assert facts["totals"] == {
        "batches": 2, "rows_in": 20, "redriven": 0, "good": 10, "dead": 4, "duplicates": 4, "late": 2, "superseded": 0,
        "deletes": 0, "filtered": 0, "dropped": 0, "lost": 0, "files_written": 4, "bytes_written": 4000,
    }  # fmt: skip
    assert facts["is_balanced"]
    assert facts["rate"] == {"last": 5.0, "mean": 5.0}
    assert facts["reasons"] == {"tombstone": 3, "not_json": 1}
    assert (facts["watermark"], facts["newest_event_time"]) == (
        "2026-03-01T08:51:00.000+00:00",
        "2026-03-01T09:01:00.000+00:00",
    )
    rows = facts["tables"]["rows"]
    assert (rows["files"], rows["rows"], rows["version"], rows["format"]) == (3, 6, 2, "delta")
    assert sum(files for _, files in rows["sizes"]) == 3
    assert rows["smallest"] <= rows["median"] <= rows["largest"] <= rows["bytes"]
    lag = facts["lag"]
    assert (lag["problem"], lag["total"], lag["group"]) == (None, 1, "odradek-orders")
    assert [(one["processed"], one["end_offset"], one["lag"], one["committed"]) for one in lag["partitions"]] == [
        (4, 5, 1, 4),
        (5, 5, 0, 5),
    ]
    assert [one["batch_id"] for one in facts["batches"]] == [0, 1]
    assert "rows in    20 = 10 good + 4 dead + 4 duplicates + 2 late, 0 lost" in printed
    assert "lag        1, shown by the group odradek-orders" in printed
    assert [line.split() for line in printed if line.startswith(f"  {topic}")] == [
        [topic, "0", "4", "5", "1"],
        [topic, "1", "5", "5", "0"],
    ]
    assert f"{topic}-1" in Page(page).texts


def test_the_page_needs_no_external_resources(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2}}))
    _, page, _ = run(away)
    attributes = Page(page).attributes
    assert not [pair for pair in attributes if pair[0] in ("src", "srcset", "data", "action")]
    links = [value or "" for name, value in attributes if name.endswith("href")]
    assert all(value.startswith("#") for value in links)
    assert "url(http" not in page
    assert "@import" not in page
    assert "<script" not in page


def test_the_plots_are_well_formed_and_use_the_pages_colors(away: Settings) -> None:
    enter(away, *(batch(number, {"orders": {0: number}}) for number in range(3)))
    facts, page, _ = run(away)
    facts["lag"]["partitions"][0]["lag"] = 12
    drawn = dict(plots(facts))
    assert list(drawn) == [
        "Rows per batch", "Rows per second, by batch", "Lag per partition", "Rejected, by reason",
    ]  # fmt: skip
    ids: set[str] = set()
    for title, svg in drawn.items():
        root = ElementTree.fromstring(svg)
        assert "var(--" in svg, title
        assert "viewBox" in root.attrib
        own = {each.attrib["id"] for each in root.iter() if "id" in each.attrib}
        assert not own & ids, "two plots of a page share an id"
        ids |= own
    assert "12" in [each.text for each in ElementTree.fromstring(drawn["Lag per partition"]).iter()]
    assert "@media (prefers-color-scheme: dark)" in page


def test_the_same_facts_render_the_same_page(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2}}))
    facts, page, _ = run(away)
    assert page_of(facts) == page == page_of(facts)


def test_an_unreachable_broker_is_reported_with_the_rest_of_the_facts(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2, 1: 9}}))
    facts, page, printed = run(away)
    assert "127.0.0.1:1 does not return the end offsets" in facts["lag"]["problem"]
    assert facts["lag"]["total"] is None
    assert [(one["processed"], one["lag"], one["problem"]) for one in facts["lag"]["partitions"]] == [
        (2, None, None),
        (9, None, None),
    ]
    assert facts["totals"]["good"] == 5
    assert any(line.startswith("! The lag is unknown") for line in printed)
    assert "does not return the end offsets" in page


def test_lost_offsets_and_wrong_sums_are_alarms(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2}}, lost=1200, good=4))
    facts, page, printed = run(away)
    assert not facts["is_balanced"]
    assert "! 1,200 offsets were deleted before they could be read, within 1 day." in printed
    assert "note       1 rows were too late; the newest event time is 2026-03-01T09:00:00.000+00:00." in printed
    assert "The counts do not add up" in page
    facts, _, _ = run(dataclasses.replace(away, alarm_period="2 hours"))
    assert not [text for text in facts["alarms"] if "deleted" in text], "an alarm about records ends"
    assert "1,200 offsets in all were deleted before they could be read." in facts["notes"]


def test_a_report_is_alarmed_by_its_limits_alone(orders: Settings, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=orders.bootstrap_server)
    for _ in range(10):
        producer.send(topic, b"{}", partition=0).get(10)
    producer.close()
    enter(orders, *(batch(number, {topic: {0: 2 * number + 2, 1: 0}}) for number in range(3)))
    for limits, alarms in [
        ({}, []),
        ({"max_lag": "4", "max_dead": "6"}, []),
        ({"max_dead": "20%"}, []),
        ({"max_lag": "3"}, ["The lag is 4, more than max-lag: 3."]),
        *(
            ({"max_dead": limit}, [f"6 records (20.00%) were dead letters within 1 day, {more}"])
            for limit, more in [("5", "more than max-dead: 5."), ("19.9%", "more than max-dead: 19.9%.")]
        ),
        ({"max_dead": "4", "alarm_period": "179 minutes"}, []),
    ]:
        facts, page, printed = run(dataclasses.replace(orders, **limits))  # type: ignore[arg-type]
        assert facts["alarms"] == alarms, limits
        assert [line[2:] for line in printed if line.startswith("! ")] == alarms
        assert all(text in Page(page).texts for text in alarms)


def test_future_events_are_noted(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2}}, reasons={"in_future": 2}, late=0, duplicates=3))
    facts, _, printed = run(away)
    assert facts["is_balanced"]
    notes = [line for line in printed if line.startswith("note ")]
    assert notes == ["note       2 events were in the future, and are dead letters: check the clocks of the producers."]


def test_external_text_is_escaped(away: Settings) -> None:
    reason = "<b>$x$ & \x07\N{GREEK SMALL LETTER ALPHA} " + "long " * 20
    enter(away, batch(0, {"orders": {0: 2}}, reasons={reason: 2}))
    facts, page, _ = run(away)
    assert list(facts["reasons"]) == [reason]
    assert "<b>$x$" not in page
    assert reason.replace("\x07", "") in [text.replace("\x07", "") for text in Page(page).texts]
    drawn = ElementTree.fromstring(dict(plots(facts))["Rejected, by reason"])
    label = "<b>$x$ & \N{REPLACEMENT CHARACTER}\N{GREEK SMALL LETTER ALPHA} long "
    assert any((each.text or "").startswith(label) for each in drawn.iter())


def test_without_a_batch_there_is_an_error_with_a_remedy(away: Settings) -> None:
    with pytest.raises(PipelineError, match=r"has no batch of the pipeline 'orders'; run `odradek pipeline ingest`"):
        report.run(away)


def test_many_batches_are_plotted_in_groups_and_the_newest_are_listed(away: Settings) -> None:
    rows = [batch(number, {"orders": {0: number}}) for number in range(201)]
    facts = {"batches": [{**dataclasses.asdict(row), "seconds": 2.0} for row in rows]}
    groups = grouped(facts["batches"], 80)
    assert len(groups) == 67
    assert sum(group["good"] for group in groups) == 5 * 201
    assert (groups[-1]["label"], groups[0]["rate"]) == ("198", 5.0)
    assert grouped([], 80) == []


def test_a_parquet_tables_size_excludes_staged_files(away: Settings) -> None:
    places = Places.of(away)
    for place in ("batch=00000000", "batch=00000001/day=1", "_staging/00000002"):
        (places.rows.path / place).mkdir(parents=True)
        parquet.write_table(pa.table({"id": [1, 2]}), places.rows.path / place / "part-0.parquet")
    enter(away, batch(0, {"orders": {0: 2}}))
    facts, _, printed = run(away)
    rows = facts["tables"]["rows"]
    assert (rows["format"], rows["files"], rows["rows"], rows["version"]) == ("parquet", 2, 4, None)
    assert any(line.startswith("table      rows: 2 files") for line in printed)


def test_the_report_starts_no_spark(away: Settings) -> None:
    enter(away, batch(0, {"orders": {0: 2}}))
    code = (
        "import sys; from odradek.pipeline.jobs import report; from odradek.pipeline.settings import make_settings\n"
        f"report.run(make_settings({{'name': 'orders', 'lake': {away.lake!r}, 'bootstrap_server': '127.0.0.1:1'}}),"
        " patience_ms=100)\n"
        "assert 'py4j' not in sys.modules and 'pyspark' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 27, "128 MiB"), (5 << 40, "5.0 TiB")]
)
def test_sizes_are_printed_in_binary_units(size: int, text: str) -> None:
    assert size_text(size) == text
