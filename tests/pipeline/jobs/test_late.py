"""Events with wrong times: late events are dropped or kept, future events are dead letters without side effects."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from odradek.pipeline.jobs import backfill, ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import BASE, check_ledger, order, read_by_arrow, send


@pytest.mark.usefixtures("spark")
def test_events_later_than_the_delay_are_dropped_and_counted(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), watermark_delay="1 minute")
    send(broker.bootstrap, topic, [order(number, 600 + number) for number in range(20)])
    assert ingest.run(settings) == 0
    in_time = [order(number, 560 + number % 10) for number in range(100, 110)]  # The watermark is at 559.
    too_late = [order(number, 500) for number in range(200, 207)]
    again = [order(number, 600 + number) for number in range(5)]
    send(broker.bootstrap, topic, [*in_time, *too_late, *again, b"{", None])
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    found = {row["id"] for row in read_by_arrow(Places.of(settings).rows, ["id"])}
    assert found == {*range(20), *range(100, 110)}
    assert [sum(getattr(row, name) for row in rows) for name in ("late", "duplicates", "dead")] == [7, 5, 2]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_late_rows_are_kept_in_a_table_if_configured(
    broker: BrokerThread, orders: Settings, topic: str, sink: str
) -> None:
    settings = replace(orders, sink=sink, dedup_keys=("id",), watermark_delay="1 minute", late_rows="keep")
    send(broker.bootstrap, topic, [order(number, 600 + number) for number in range(20)])
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(number, 500) for number in range(200, 207)])
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    assert [row.late for row in rows] == [0, 7]
    late = read_by_arrow(Places.of(settings).late, ["id", "_partition", "_offset", "batch_id"])
    assert sorted(row["id"] for row in late) == list(range(200, 207))
    assert {row["batch_id"] for row in late} == {1}


@pytest.mark.usefixtures("spark")
def test_an_event_of_the_year_2999_is_a_dead_letter_and_does_not_move_the_watermark(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), watermark_delay="1 minute")
    the_year_2999 = (datetime(2999, 1, 1, tzinfo=UTC) - datetime.fromtimestamp(BASE, UTC)).total_seconds()
    send(broker.bootstrap, topic, [order(1, 1), order(2, the_year_2999)])
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(3, 2), order(4, 3)])
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    assert [(row.good, row.dead, row.late) for row in rows] == [(1, 1, 0), (2, 0, 0)]
    (letter,) = read_by_arrow(Places.of(settings).dead_letters, ["reason", "detail"])
    assert letter["reason"] == "in_future"
    assert letter["detail"].startswith("at is 2999-01-01 00:00:00, more than 1 hour after 20")
    accepting = replace(settings, name="accepting", max_future="")
    assert ingest.run(accepting) == 0
    assert sum(row.good for row in check_ledger(accepting)) == 4, "in one batch, so nothing is late"


@pytest.mark.usefixtures("spark")
def test_events_of_1970_and_before_are_ordinary_rows(broker: BrokerThread, orders: Settings, topic: str) -> None:
    settings = replace(orders, dedup_keys=("id",), max_offsets_per_trigger=0)
    old = [order(number, -BASE - 86_400 * number) for number in range(5)]
    send(broker.bootstrap, topic, [*old, *old[:2], order(9, 1)])
    assert ingest.run(settings) == 0
    (row,) = check_ledger(settings)
    assert (row.good, row.duplicates, row.late) == (6, 2, 0)


@pytest.mark.usefixtures("spark")
def test_ingest_and_backfill_drop_the_same_duplicates(broker: BrokerThread, orders: Settings, topic: str) -> None:
    """Keys repeat within the delay and after it, in batches of different sizes."""
    values = [order(number % 7, 40 * (number // 7)) for number in range(70)]
    send(broker.bootstrap, topic, values, partitions=1)
    found = []
    for name, job, size in (("a", ingest, 16), ("b", backfill, 23), ("c", ingest, 1000)):
        settings = replace(
            orders, name=name, dedup_keys=("id",), watermark_delay="1 minute", max_offsets_per_trigger=size
        )
        assert job.run(settings) == 0
        found.append(sorted(row["_offset"] for row in read_by_arrow(Places.of(settings).rows, ["_offset"])))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 35, "each second one, which is 80 seconds after the one before"
