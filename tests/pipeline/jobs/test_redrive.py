"""Dead letters go back into the tables after a fix: once, whatever is stopped, and the ledger stays true."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from kafka import KafkaProducer
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import compact, ingest, redrive, report
from odradek.pipeline.jobs.planning import redrive_plan
from odradek.pipeline.jobs.position import position_of
from odradek.pipeline.jobs.sql import queried
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import LedgerRow
from odradek.pipeline.state.lock import alone
from odradek.pipeline.state.places import JOB_LOCK, Places
from odradek.pipeline.state.plan import Plans
from odradek.pipeline.state.selection import Selection
from odradek.testing import BrokerThread
from tests.pipeline.ingest_state import findings_of, ingested, write
from tests.pipeline.jobs.test_changed_settings import WINDOWS, Killed
from tests.pipeline.lake import (
    check_ledger,
    check_windows,
    columns_of,
    order,
    read_by_arrow,
    read_by_spark,
    send,
    truth,
)
from tests.pipeline.ledger_rows import batch, enter
from tests.soak import rounds

PLACE = ("topic", "partition", "offset")
OPEN = """SELECT d.reason, d.topic, d.partition, d.offset FROM dead_letters d LEFT ANTI JOIN redriven r
    ON d.batch_id = r.dead_batch_id AND d.topic = r.topic AND d.partition = r.partition AND d.offset = r.offset"""
POINTS = (
    *("read", "redriven: files written", "redriven: committed", "windows: files written", "windows: committed"),
    *("rows: files written", "rows: committed", "ledger: committed"),
)


def strict(orders: Settings, **more: Any) -> Settings:
    """Settings by which records with a further field or a great amount die."""
    found = replace(orders, dedup_keys=("id",), unknown_fields="reject", rules={"amount": "amount < 30"}, **WINDOWS)
    return replace(found, **more)


def fixed(settings: Settings) -> Settings:
    return replace(settings, unknown_fields="ignore", rules={})


def wave(first: int = 0) -> list[bytes | None]:
    """27 records of 21 events from `first` on: 9 die by a rule, 4 by a further field, 2 always."""

    def small(number: int, **more: Any) -> bytes:
        return order(first + number, first + number, amount=number / 4, **more)

    values: list[bytes | None] = [small(number) for number in range(12)]
    great = [order(number, number, amount=100.0) for number in range(first + 12, first + 20)]
    values += [*great, great[0], b"{", None]
    values += [small(number, other=1) for number in (1, 2, 20, 20)]  # Two are good rows already.
    return values


def run(settings: Settings, **selection: Any) -> list[str]:
    """Runs a redrive; returns the lines that it prints."""
    out = io.StringIO()
    assert redrive.run(settings, out=out, **selection) == 0
    return out.getvalue().splitlines()


def stopped(settings: Settings, point: str, **selection: Any) -> bool:
    """Runs a redrive that is killed at the point; returns whether it reached it."""

    def reached(now: str) -> None:
        if now == point:
            raise Killed

    try:
        redrive.run(settings, reached=reached, out=io.StringIO(), **selection)
    except Killed:
        return True
    return False


def still_dead(settings: Settings) -> list[tuple[Any, ...]]:
    """The reason and the place of each letter that was not redriven."""
    return sorted(tuple(row.values()) for row in queried(settings, OPEN).to_pylist())


def check(spark: SparkSession, settings: Settings) -> list[LedgerRow]:
    """Fails unless the tables hold what a batch computation by these settings makes of the topics, by two readers, and
    the ledger adds up to it."""
    places, columns = Places.of(settings), columns_of(settings)
    judged = truth(spark, settings).persist()
    wanted = judged.where("reason is null").select("data.*").dropDuplicates(["id"])
    assertDataFrameEqual(read_by_spark(spark, places.rows, columns), wanted.select(*columns))
    found = read_by_arrow(places.rows, columns)
    assert len({row["id"] for row in found}) == len(found) == wanted.count()
    dead = sorted(tuple(row[name] for name in PLACE) for row in judged.where("reason is not null").collect())
    assert [row[1:] for row in sorted(still_dead(settings), key=lambda row: row[1:])] == dead
    check_windows(settings, found)
    rows = check_ledger(settings)
    letters = [tuple(row.values()) for row in read_by_arrow(places.dead_letters, PLACE)]
    marks = [tuple(row.values()) for row in read_by_arrow(places.redriven, PLACE)]
    assert len(set(letters)) == len(letters) == sum(row.dead for row in rows)
    assert len(set(marks)) == len(marks) == sum(row.redriven for row in rows)
    assert sum(row.rows_in for row in rows) == judged.count()
    assert sum(row.good for row in rows) == len(found)
    assert sum(row.duplicates for row in rows) == judged.count() - len(found) - len(dead)
    judged.unpersist()
    return rows


def test_letters_that_are_good_now_become_rows_and_the_others_stay_dead(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = strict(orders)
    send(broker.bootstrap, topic, wave())
    assert ingest.run(settings) == 0
    assert run(fixed(settings)) == [
        "selected    15 dead letters",
        "redriven    13: 9 rule:amount, 4 unknown_field",
        "            13 = 9 good + 4 duplicates + 0 late",
        "still dead  2: 1 not_json, 1 tombstone",
    ]
    rows = check(spark, fixed(settings))
    assert [(row.job, row.rows_in, row.redriven) for row in rows] == [("ingest", 27, 0), ("redrive", 0, 13)]
    assert rows[1].redriven_reasons == {"rule:amount": 9, "unknown_field": 4}
    assert rows[1].start_offsets == rows[1].end_offsets == rows[0].end_offsets
    versions = [DeltaTable(place.url).version() for place in Places.of(settings).tables.values() if place.is_there()]
    assert run(fixed(settings)) == [
        "selected    2 dead letters",
        "redriven    0",
        "still dead  2: 1 not_json, 1 tombstone",
    ]
    assert check_ledger(settings) == rows, "a batch that redrives nothing is not in the ledger"
    found = [DeltaTable(place.url).version() for place in Places.of(settings).tables.values() if place.is_there()]
    assert found == versions
    assert list(Places.of(settings).state.path.glob("plan-*")) == []
    send(broker.bootstrap, topic, [order(50, 50), order(12, 12, amount=100.0)])
    assert ingest.run(fixed(settings)) == 0, "a redriven event is known to the next batches"
    assert check(spark, fixed(settings))[-1].duplicates == 1
    check_report(fixed(settings))


def check_report(settings: Settings) -> None:
    out = io.StringIO()
    assert report.run(settings, out) == 0
    lines = out.getvalue().splitlines()
    assert "rows in    29 + 13 redriven = 22 good + 15 dead + 5 duplicates + 0 late, 0 lost" in lines
    assert lines[-50:].count("redriven   9 rule:amount") == 1
    assert "redriven   4 unknown_field" in lines
    assert "still dead 2 of 15 dead letters" in lines
    page = (Places.of(settings).state.path / "report.html").read_text()
    assert "redriven dead letters" in page


@pytest.mark.timeout(600)
def test_letters_are_selected_by_reason_and_time_and_a_dry_run_changes_nothing(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = strict(orders)
    send(broker.bootstrap, topic, wave())
    time.sleep(0.01)
    send(broker.bootstrap, topic, [order(60, 60, amount=60.0), order(61, 61, other=1)])
    assert ingest.run(settings) == 0
    times = sorted(row["timestamp"] for row in read_by_arrow(Places.of(settings).dead_letters, ["timestamp"]))
    files = {one: one.stat().st_mtime_ns for one in tmp_path.rglob("*") if one.is_file() and one.name != "job.lock"}
    assert run(fixed(settings), reasons=["unknown_field"], dry_run=True) == [
        "selected    5 dead letters",
        "redrivable  5: 5 unknown_field",
        "            5 = 2 good + 3 duplicates + 0 late",
        "still dead  0",
        "dry run     nothing was changed",
    ]
    assert {
        one: one.stat().st_mtime_ns for one in tmp_path.rglob("*") if one.is_file() and one.name != "job.lock"
    } == files
    later = times[-2].isoformat()  # The timestamp of the last two, or of the first of them.
    assert run(fixed(settings), reasons=["unknown_field", "tombstone"], until=later)[:2] == [
        "selected    5 dead letters",
        "redriven    4: 4 unknown_field",
    ]
    assert sorted({row[0] for row in still_dead(settings)}) == ["not_json", "rule:amount", "tombstone", "unknown_field"]
    assert run(fixed(settings), since=later)[:2] == [
        "selected    2 dead letters",
        "redriven    2: 1 rule:amount, 1 unknown_field",
    ]
    assert run(fixed(settings))[1] == "redriven    9: 9 rule:amount"
    check(spark, fixed(settings))


@pytest.mark.soak("a redrive stopped at each of 8 points, finished by an ingest or a redrive", minutes=3)
@pytest.mark.timeout(1800)
def test_a_redrive_stopped_at_any_point_is_finished_by_its_plan(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = strict(orders)
    points = POINTS if rounds(0, in_soak=1) else (POINTS[2], POINTS[6])
    edges = []
    for number in range(len(points)):
        edges.append(datetime.now(UTC).isoformat())
        send(broker.bootstrap, topic, wave(100 * number))
        time.sleep(0.01)
    assert ingest.run(settings) == 0
    for number, point in enumerate(points):
        until = edges[number + 1] if number + 1 < len(edges) else ""
        assert stopped(fixed(settings), point, since=edges[number], until=until), point
        if point in POINTS[2:-1]:
            says = (
                f"batch {number + 1}, a redrive, is in some of the tables, with its original settings (changed since: "
            )
            state, found, remedy = findings_of(settings, False)["state"]
            assert (state, remedy) == ("warning", "nothing to do: the next job handles it")
            assert found.startswith(says)
        if point == POINTS[2]:
            with pytest.raises(PipelineError, match="what is dead is not known yet; run the ingest, or the redrive"):
                run(settings, dry_run=True)
        if number % 2 == 0 and point in POINTS[2:]:
            assert ingest.run(settings) == 0, "by the settings and the selection of its plan, which are not these"
        else:
            run(fixed(settings), since=edges[number], until=until)
        assert [row.redriven for row in check_ledger(settings)] == [0, *[13] * (number + 1)], point
    check(spark, fixed(settings))


@pytest.mark.usefixtures("spark")
def test_a_compacted_table_of_dead_letters_is_redriven(broker: BrokerThread, orders: Settings, topic: str) -> None:
    """Its files are deltalake's then. Headers and keys come back, too."""
    columns = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
    settings = replace(orders, unknown_fields="reject", max_offsets_per_trigger=2, record_columns=columns)
    headers = [("a", b"1"), ("b", b"")]
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(6):
        producer.send(topic, order(number, number, other=1), key=b"%d" % number, headers=headers, partition=0)
    producer.flush()
    producer.close()
    assert ingest.run(settings) == 0
    assert compact.run(settings, io.StringIO()) == 0
    assert len(DeltaTable(Places.of(settings).dead_letters.url).file_uris()) == 1
    assert run(fixed(settings))[1] == "redriven    6: 6 unknown_field"
    found = sorted(
        read_by_arrow(Places.of(settings).rows, ["id", "_offset", "_key", "_headers"]), key=lambda r: r["id"]
    )
    wanted = [{"key": name, "value": value} for name, value in headers]
    assert [tuple(row.values()) for row in found] == [(n, n, b"%d" % n, wanted) for n in range(6)]
    assert compact.run(settings, io.StringIO()) == 0
    assert run(fixed(settings))[0] == "selected    0 dead letters"


@pytest.mark.parametrize("sink", ["iceberg", "parquet"])
def test_tables_of_other_formats_have_redriven_rows_once(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, sink: str
) -> None:
    settings = strict(orders, sink=sink, window="", window_by=(), window_sums=())
    send(broker.bootstrap, topic, wave())
    assert ingest.run(settings) == 0
    for point in ("redriven: committed", "rows: committed"):
        assert stopped(fixed(settings), point)
    assert run(fixed(settings))[:2] == ["selected    2 dead letters", "redriven    0"]
    rows = check_ledger(settings)
    assert [(row.good, row.duplicates, row.redriven) for row in rows] == [(12, 0, 0), (9, 4, 13)]
    if sink == "iceberg":
        ids = [row["id"] for row in read_by_arrow(Places.of(settings).rows, ["id"])]
    else:
        found = spark.read.parquet(*map(str, Places.of(settings).rows.path.glob("batch=*")))
        ids = [row["id"] for row in found.select("id").collect()]
    assert len(ids) == len(set(ids)) == 21


@pytest.mark.usefixtures("spark")
def test_a_redrive_needs_no_broker_and_no_topic(broker: BrokerThread, orders: Settings, topic: str) -> None:
    settings = strict(orders)
    send(broker.bootstrap, topic, wave())
    assert ingest.run(settings) == 0
    away = replace(fixed(settings), bootstrap_server="127.0.0.1:1")
    assert run(away)[1] == "redriven    13: 9 rule:amount, 4 unknown_field"
    assert check_ledger(settings)[-1].good == 9


def upserting(orders: Settings) -> Settings:
    return replace(orders, mode="upsert", upsert_keys=("id",), unknown_fields="reject")


def amounts(settings: Settings) -> dict[int, float]:
    return {row["id"]: row["amount"] for row in read_by_arrow(Places.of(settings).rows, ["id", "amount"])}


def change(broker: BrokerThread, topic: str, *changes: tuple[int, float | None, bool]) -> None:
    """Produces orders: the id, the amount (None: a tombstone), and whether the record dies. One partition."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number, amount, dies in changes:
        value = None if amount is None else order(number, number, amount=amount, **({"other": 1} if dies else {}))
        producer.send(topic, value, key=str(number).encode(), partition=0)
    producer.flush()
    producer.close()


@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_letter_of_an_upsert_replaces_older_rows_only(
    broker: BrokerThread, orders: Settings, topic: str, sink: str
) -> None:
    """1: the row is newer. 2: the row is older. 3: there is no row. 4: the second of two letters. 5: a tombstone, and a
    later letter of its batch."""
    settings = replace(upserting(orders), sink=sink)
    change(broker, topic, (2, 1.0, False), (1, 1.0, True), (2, 2.0, True), (3, 3.0, True), (4, 1.0, True))
    change(broker, topic, (4, 4.0, True), (1, 9.0, False))
    assert ingest.run(settings) == 0
    assert amounts(settings) == {1: 9.0, 2: 1.0}
    for point in ("redriven: committed", "rows: committed"):
        assert stopped(fixed(settings), point), point
    assert run(fixed(settings))[0] == "selected    0 dead letters"
    assert amounts(settings) == {1: 9.0, 2: 2.0, 3: 3.0, 4: 4.0}
    rows = check_ledger(settings)
    assert [(row.good, row.superseded, row.redriven) for row in rows] == [(2, 0, 0), (3, 2, 5)]


@pytest.mark.usefixtures("spark")
def test_a_letter_whose_row_may_have_been_deleted_is_refused(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = upserting(orders)
    change(broker, topic, (1, 1.0, True), (2, 2.0, False), (3, 3.0, False), (2, None, False))
    time.sleep(0.01)
    change(broker, topic, (3, 4.0, True))
    assert ingest.run(settings) == 0
    wanted = "1 dead letters are of keys that have no row, and batch 0 was the last to delete rows"
    with pytest.raises(PipelineError, match=wanted):
        run(fixed(settings))
    before = check_ledger(settings)
    (later,) = [row["timestamp"] for row in read_by_arrow(Places.of(settings).dead_letters, ["timestamp", "offset"])
                if row["offset"] == 4]  # fmt: skip
    assert amounts(settings) == {3: 3.0}
    assert run(fixed(settings), since=later.isoformat())[1] == "redriven    1: 1 unknown_field"
    assert amounts(settings) == {3: 4.0}
    assert len(check_ledger(settings)) == len(before) + 1


@pytest.mark.parametrize(
    ("selection", "problem"),
    [
        ({"reasons": ["wrong"]}, "--reason 'wrong' is no reason of dead letters; the reasons are tombstone, no_key"),
        ({"reasons": ["rule:"]}, "--reason 'rule:' is no reason"),
        ({"since": "yesterday"}, "--from 'yesterday' is not a time with a time zone; write it as in 2026-"),
        ({"until": "2026-11-29T08:30:00"}, "--to '2026-11-29T08:30:00' is not a time with a time zone"),
        ({"since": "2026-11-30T00:00Z", "until": "2026-11-29T00:00Z"}, "is not before --to"),
    ],
)
def test_a_selection_that_means_nothing_is_refused(orders: Settings, selection: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineError, match=problem):
        run(orders, **selection)
    assert not Path(orders.lake).exists()


def test_a_pipeline_without_a_batch_has_no_dead_letters(orders: Settings) -> None:
    with pytest.raises(
        PipelineError, match="no batch of the pipeline 'other', so it has no dead letters; run `odradek"
    ):
        run(replace(orders, name="other"))
    assert not Path(orders.lake).exists()


def test_a_redrive_waits_for_no_other_job(orders: Settings) -> None:
    ingested(orders)
    held = "another ingest, backfill or redrive is running here: it holds .*; stop it first"
    with alone(Places.of(orders).state, JOB_LOCK, "busy"), pytest.raises(PipelineError, match=held):
        run(orders)


def test_an_upsert_whose_rows_have_no_offsets_is_refused(orders: Settings) -> None:
    settings = replace(upserting(orders), record_columns=("_topic", "_timestamp"))
    ingested(settings)
    with pytest.raises(PipelineError, match="record-columns lacks _partition, _offset, without which a redrive cannot"):
        run(settings)


def test_a_lost_table_of_redriven_letters_is_refused(orders: Settings) -> None:
    """Without it, letters would be redriven twice."""
    ingested(orders)
    enter(orders, batch(2, {}, job="redrive", rows_in=0, dead=0, reasons={}, redriven=8, redriven_reasons={"x": 8}))
    write(orders, 2)
    assert findings_of(orders, False)["state"][1].startswith("the ledger has batch 2 of the redriven letters in ")


@pytest.mark.parametrize("job", ["ingest", "backfill"])
def test_a_redrive_does_not_change_which_job_reads_topics(orders: Settings, job: str) -> None:
    ingested(orders, job=job)
    places = Places.of(orders)
    write_deltalake(
        places.redriven.url,
        pa.table({"batch_id": [2]}),
        commit_properties=CommitProperties(app_transactions=[Transaction("orders/redriven", 2)]),
    )
    row = batch(2, {orders.topics[0]: {0: 10, 1: 10}}, job="redrive", redriven=10, rows_in=0, good=0, dead=0)
    enter(orders, row)
    assert position_of(orders, places).job == job


def test_a_planned_redrive_that_wrote_nothing_is_reported(orders: Settings) -> None:
    ingested(orders)
    now = datetime(2026, 3, 1, tzinfo=UTC)
    selection = Selection(("not_json", "rule:x"), now, None)
    plans = Plans(Places.of(orders).state)
    plan = plans.create(redrive_plan(position_of(orders, Places.of(orders)), orders, selection, now))
    assert plans.read(2) == plan
    assert (plan.redrive, plan.start) == (selection, {})
    says = "batch 2, a redrive, was planned but not started; its letters are still dead, and wait for another redrive"
    assert findings_of(orders, False)["state"][:2] == ("warning", says)
