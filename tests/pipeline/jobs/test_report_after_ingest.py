"""Report and compact after a real ingest, and during one."""

from __future__ import annotations

import io
import json
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer
from pyspark.sql import SparkSession

from odradek.pipeline.jobs import batch as batch_job
from odradek.pipeline.jobs import compact, ingest, report
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.lock import alone
from odradek.pipeline.state.places import COMPACT_LOCK, Places
from odradek.testing import BrokerThread
from tests.pipeline.kafka.test_lag import kafkas_lags
from tests.pipeline.lake import (
    BASE,
    check_ledger,
    check_tables,
    open_iceberg,
    order,
    read_by_arrow,
    send,
    send_transaction,
)

DAY = 86_400


def reported(settings: Settings) -> dict[str, Any]:
    assert report.run(settings, io.StringIO()) == 0
    facts: dict[str, Any] = json.loads((Places.of(settings).state.path / "report.json").read_text())
    return facts


def lags(facts: dict[str, Any]) -> list[Any]:
    return [one["lag"] for one in facts["lag"]["partitions"]]


def test_the_lag_is_exact_when_idle_and_equals_what_kafkas_tool_prints(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, java_tools: list[str]
) -> None:
    settings = replace(orders, dedup_keys=("id",), watermark_delay="1 hour", shadow_group=f"group-{topic}")
    send(broker.bootstrap, topic, [order(number, number) for number in [*range(20), *range(4)]])
    send(broker.bootstrap, topic, [b"{broken", None])
    send_transaction(broker.bootstrap, topic, [order(number, 0) for number in range(50, 60)], commit=False)
    assert ingest.run(settings) == 0
    facts = reported(settings)
    assert lags(facts) == [0, 0], "an aborted transaction and its markers are no lag"
    totals = facts["totals"]
    assert [totals[name] for name in ("rows_in", "good", "dead", "duplicates", "late", "lost")] == [26, 20, 2, 4, 0, 0]
    assert facts["reasons"] == {"not_json": 1, "tombstone": 1}
    assert facts["tables"]["rows"]["rows"] == 20
    send(broker.bootstrap, topic, [order(number, number) for number in range(100, 107)])
    facts = reported(settings)
    assert lags(facts) == [4, 3]
    partitions = facts["lag"]["partitions"]
    assert all(one["committed"] == one["processed"] for one in partitions)
    assert kafkas_lags(java_tools, settings) == {
        (one["topic"], one["partition"]): (one["processed"], one["end_offset"], one["lag"]) for one in partitions
    }
    assert ingest.run(settings) == 0
    assert lags(reported(settings)) == [0, 0]


def test_an_ingest_continues_while_its_group_has_members(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, shadow_group=f"group-{topic}")
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
    member = KafkaConsumer(topic, group_id=settings.group, enable_auto_commit=False, **options)
    try:
        assert member.poll(20_000), "no record, so perhaps no member"
        assert ingest.run(settings) == 0
        facts = reported(settings)
    finally:
        member.close()
    assert lags(facts) == [0, 0]
    assert facts["totals"]["good"] == 10
    assert [one["committed"] for one in facts["lag"]["partitions"]] == [None, None]


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_compact_during_an_ingest_changes_no_row(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, sink: str
) -> None:
    settings = replace(
        orders,
        sink=sink,
        schema=f"{orders.schema}, day DATE",
        partition_by=("day",),
        dedup_keys=("id",),
        max_offsets_per_trigger=45,
        window="1 minute",
        window_by=("customer",),
        window_sums=("amount",),
    )
    days = [datetime.fromtimestamp(BASE + number * DAY, UTC).date().isoformat() for number in range(2)]
    records = [order(number, number // 60 * DAY + number, day=days[number // 60]) for number in range(120)]
    send(broker.bootstrap, topic, [*records, b"{broken"])
    failures: list[BaseException] = []
    ended = threading.Event()

    def keep_compacting() -> None:
        try:
            while not ended.is_set():
                if DeltaTable.is_deltatable(str(Places.of(settings).ledger)):
                    compact.run(settings, io.StringIO())
                ended.wait(0.2)
        except BaseException as failure:
            failures.append(failure)

    beside = threading.Thread(target=keep_compacting)
    beside.start()
    try:
        assert ingest.run(settings) == 0
    finally:
        ended.set()
        beside.join()
    assert not failures
    assert compact.run(settings, io.StringIO()) == 0
    rows = check_tables(spark, settings)
    places = Places.of(settings)
    windows = [row["count"] for row in read_by_arrow(places.windows, ["count"])]
    assert sum(windows) == sum(row.good for row in rows) == 120
    if sink == "delta":
        assert "OPTIMIZE" in [commit["operation"] for commit in DeltaTable(places.rows).history()]
        files = files_by_day(DeltaTable(places.rows))
    else:
        files = Counter(str(task.file.partition[0]) for task in open_iceberg(places.rows).scan().plan_files())
        days = [str((date.fromisoformat(day) - date(1970, 1, 1)).days) for day in days]
    assert files[days[0]] == 1, "a closed day is one file"
    assert files[days[1]] > 1, "the open day is left alone"


@pytest.mark.usefixtures("spark")
def test_the_ingest_compacts_the_ledger_unless_compact_is_running(
    broker: BrokerThread, orders: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """deltalake lets two concurrent compactions commit, which duplicates every row."""
    monkeypatch.setattr(batch_job, "COMPACTED_EACH", 2)
    settings = replace(orders, max_offsets_per_trigger=4)
    state = Places.of(settings).state
    send(broker.bootstrap, topic, [order(number, number) for number in range(16)])
    with alone(state, COMPACT_LOCK, "held"):
        assert ingest.run(settings) == 0
    assert len(DeltaTable(state / "batches").file_uris()) == 4
    send(broker.bootstrap, topic, [order(number, number) for number in range(8)])
    assert ingest.run(settings) == 0
    assert len(DeltaTable(state / "batches").file_uris()) == 1
    assert [row.batch_id for row in check_ledger(settings)] == list(range(6))


def files_by_day(table: DeltaTable) -> dict[str, int]:
    listed: Sequence[Any] = pa.table(table.get_add_actions(flatten=True))["partition.day"].to_pylist()
    return {str(day): listed.count(day) for day in listed}
