"""A batch that was stopped between two commits and is repeated with changed settings."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.lake import check_ledger, order, read_by_arrow, send
from tests.soak import rounds

ROUNDS = rounds(3, in_soak=100)
POINTS = (
    *("read", "dead_letters: files written", "dead_letters: committed", "windows: files written"),
    *("windows: committed", "rows: files written", "rows: committed", "ledger: committed"),
)
CHANGES: tuple[dict[str, Any], ...] = (
    {"required": ("id", "at", "customer")},
    {"schema": "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP, note STRING"},
    {"unknown_fields": "reject"},
    {"dedup_keys": ("id",)},
    {"dedup_keys": ("id", "customer"), "late_rows": "keep", "watermark_delay": "2 minutes"},
    {"event_time": ""},
    {"isolation_level": "read_uncommitted"},
    {"max_future": ""},
    {"job_version": "2"},
    {"format": "raw", "schema": "", "event_time": "", "required": (), "window_by": (), "window_sums": ()},
)
WINDOWS: dict[str, Any] = {"window": "1 minute", "window_by": ("customer",), "window_sums": ("amount",)}


class Killed(BaseException):
    """Stands for a kill of the process: no code handles it."""


def records(count: int, source: random.Random) -> list[bytes | None]:
    """Orders, some without a customer, duplicated, with an additional field, broken, or in the year 2999."""
    values: list[bytes | None] = []
    for number in range(count):
        more: dict[str, Any] = {}
        if number % 7 == 0:
            more["customer"] = None
        if number % 11 == 0:
            more["other"] = 1
        values.append(order(number, 3e10 if number % 29 == 0 else number, **more))
        if number % 5 == 0:
            values.append(values[-1])
        if number % 13 == 0:
            values += [b"{", None]
    source.shuffle(values)
    return values


def stopped(settings: Settings, point: str, times: int) -> bool:
    """Runs an ingest that is killed at the point; returns whether it reached it."""
    left = times

    def reached(now: str) -> None:
        nonlocal left
        left -= now == point
        if now == point and left == 0:
            raise Killed

    try:
        ingest.run(settings, reached)
    except Killed:
        return True
    return False


@pytest.mark.usefixtures("spark")
@pytest.mark.soak("100 batches stopped at random points, and settings changed before they are repeated", minutes=25)
@pytest.mark.timeout(2400)
def test_settings_changed_between_two_attempts_lose_and_duplicate_no_record(
    broker: BrokerThread, orders: Settings, topic: str
) -> None:
    for number in range(ROUNDS):
        source = random.Random(number)
        name = f"{topic}.{number}"
        values = records(60, source)
        send(broker.bootstrap, name, values)
        before, after = source.sample(({}, *CHANGES), 2)
        base = replace(orders, name=f"round-{number}", topics=(name,), max_offsets_per_trigger=50, **WINDOWS)
        base = replace(base, sink=("delta", "iceberg")[number % 2])
        if "format" in before or "format" in after:  # The table of rows then has different columns.
            before, after = {}, {"unknown_fields": "reject"}
        first, second = replace(base, **before), replace(base, **after)
        point = source.choice(POINTS)
        was_stopped = stopped(first, point, source.randint(1, 2))
        assert ingest.run(second if was_stopped else first) == 0
        check_every_record(second, len(values), f"round {number}: {point}, {before} then {after}")


def check_every_record(settings: Settings, count: int, round_name: str) -> None:
    """Each offset is in one table once, or counted as duplicate or late; the windows count the good rows."""
    places, rows = Places.of(settings), check_ledger(settings)
    assert sum(row.rows_in for row in rows) == count, round_name
    good = [tuple(row.values()) for row in read_by_arrow(places.rows, ["_topic", "_partition", "_offset"])]
    dead = [tuple(row.values()) for row in read_by_arrow(places.dead_letters, ["topic", "partition", "offset"])]
    assert max(Counter([*good, *dead]).values()) == 1, round_name
    assert (len(good), len(dead)) == (sum(row.good for row in rows), sum(row.dead for row in rows)), round_name
    left_out = sum(row.duplicates + row.late for row in rows)
    assert len(good) + len(dead) + left_out == count, round_name
    assert sum(row["count"] for row in read_by_arrow(places.windows, ["count"])) == len(good), round_name
