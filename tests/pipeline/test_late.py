"""Late events: within the delay they count, beyond it they are dropped and counted; and no key is kept for ever."""

from __future__ import annotations

from dataclasses import replace

import pytest

from odradek.broker.testing import BrokerThread
from odradek.pipeline.jobs import ingest
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from tests.pipeline.lake import check_ledger, order, read_by_arrow, send


@pytest.mark.usefixtures("spark")
def test_within_the_delay_an_event_counts_and_beyond_it_is_dropped_and_counted(
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
def test_remembered_keys_are_bounded_over_an_hour_of_events(broker: BrokerThread, orders: Settings, topic: str) -> None:
    settings = replace(orders, dedup_keys=("id",), watermark_delay="1 minute", max_offsets_per_trigger=600)
    an_hour = [order(number, number) for number in range(3600)]
    send(broker.bootstrap, topic, [one for number, one in enumerate(an_hour) for _ in range(1 + (number % 9 == 0))])
    assert ingest.run(settings) == 0
    rows = check_ledger(settings)
    assert sum(row.good for row in rows) == 3600
    assert sum(row.duplicates for row in rows) == 400
    assert len(rows) >= 7
    # A key goes when the watermark is its minute past it; a watermark is that of the batch before: two batches of
    # 540 events, and two minutes.
    assert max(row.state_rows for row in rows) <= 2 * 540 + 120 + 10
    assert rows[-1].state_rows <= 130, "after the last batch what is left is as old as two minutes"
