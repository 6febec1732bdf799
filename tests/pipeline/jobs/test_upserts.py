"""An ingest with mode = upsert: whatever is killed, the table has the last state of each key."""

from __future__ import annotations

import io
import json
import random
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import compact, ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.jobs.test_changed_settings import Killed
from tests.pipeline.jobs.test_kills import finish, one_after_the_other
from tests.pipeline.lake import check_ledger, order, read_by_arrow, read_by_spark
from tests.soak import SOAK, rounds

Change = tuple[int, bytes | None]
"""A key, and the order or the tombstone."""
POINTS = [("rows: committed", 2)]
MORE_POINTS = [
    *(("read", 1), ("rows: files written", 1), ("dead_letters: committed", 1)),
    *(("ledger: committed", 2), ("rows: files written", 2)),
]


def upserting(orders: Settings, **more: Any) -> Settings:
    return replace(orders, mode="upsert", upsert_keys=("id",), max_offsets_per_trigger=100, **more)


def changes(count: int, keys: int, seed: int = 0, first: int = 0) -> list[Change]:
    """Changes of `keys` keys from `first` on, in random order; some delete, and some are broken."""
    source = random.Random(seed)
    found: list[Change] = []
    for number in range(count):
        key, chance = first + source.randrange(keys), source.random()
        value = None if chance < 0.2 else b"{" if chance < 0.25 else order(key, number, amount=float(number))
        found.append((key, value))
    return found


def send(broker: BrokerThread, topic: str, sent: Sequence[Change]) -> None:
    """Produces the changes, those of a key to one partition, and two more tombstones whose keys are not LONGs."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key, value in sent:
        producer.send(topic, value, key=str(key).encode(), partition=key % 2)
    producer.send(topic, None, key=b"", partition=0)
    producer.send(topic, None, key=b"one", partition=1)
    producer.flush()
    producer.close()


def state_of(sent: Sequence[Change]) -> dict[int, float]:
    """The amount of each order after all changes."""
    state: dict[int, float] = {}
    for key, value in sent:
        if value is None:
            state.pop(key, None)
        elif value != b"{":
            state[key] = json.loads(value)["amount"]
    return state


def check(spark: SparkSession, settings: Settings, sent: Sequence[Change], rounds: int = 1) -> None:
    """Fails unless two readers find the state, and the ledger has every record."""
    place, columns = Places.of(settings).rows, ["id", "amount"]
    wanted = sorted(state_of(sent).items())
    assert sorted((row["id"], row["amount"]) for row in read_by_arrow(place, columns)) == wanted
    assert sorted((row["id"], row["amount"]) for row in read_by_spark(spark, place, columns).collect()) == wanted
    rows = check_ledger(settings)
    assert sum(row.rows_in for row in rows) == len(sent) + 2 * rounds
    reasons: dict[str, int] = {}
    for row in rows:
        for reason, count in row.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    assert reasons == {"no_key": 2 * rounds, "not_json": sum(value == b"{" for _, value in sent)}
    changed = sum(row.good + row.deletes + row.superseded for row in rows)
    assert changed == sum(value != b"{" for _, value in sent)


@pytest.mark.soak("a kill at each of 6 places, for both sinks", minutes=4)
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("sink", ["delta", "iceberg"] if SOAK else ["delta"])
def test_kills_leave_the_last_state_of_each_key(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path, sink: str
) -> None:
    settings = upserting(orders, sink=sink)
    sent = changes(rounds(200, in_soak=1500), keys=40)
    send(broker, topic, sent)
    with one_after_the_other(settings, tmp_path, [*POINTS, *(MORE_POINTS if SOAK else [])]) as jobs:
        for job in jobs:
            finish(job, tmp_path, -signal.SIGKILL)
    assert ingest.run(settings) == 0
    check(spark, settings, sent)
    deletes = [row.deletes for row in Ledger(Places.of(settings).ledger).rows()]
    assert sum(deletes) > 0


@pytest.mark.usefixtures("spark")
def test_a_row_that_is_left_out_or_refused_changes_nothing(broker: BrokerThread, orders: Settings, topic: str) -> None:
    """Nor does it count as a change: `where` of one key, a rule of another, and a third key that is deleted."""
    settings = upserting(
        orders, columns={"twice": "amount * 2"}, where="amount < 50", rules={"even": "warn: amount < 3", "n": "id < 9"}
    )
    sent = [
        *((key, order(key, key, amount=float(amount))) for key, amount in ((2, 1), (2, 99), (4, 2), (4, 5), (9, 1))),
        *((6, one) for one in (order(6, 6, amount=3.0), order(6, 6, amount=60.0), None)),
    ]
    send(broker, topic, sent)
    assert ingest.run(settings) == 0
    found = read_by_arrow(Places.of(settings).rows, ["id", "amount", "twice"])
    assert sorted((row["id"], row["amount"], row["twice"]) for row in found) == [(2, 1.0, 2.0), (4, 5.0, 10.0)]
    (row,) = check_ledger(settings)
    assert (row.good, row.filtered, row.superseded, row.deletes) == (2, 2, 2, 1)
    assert (row.reasons, row.warnings) == ({"no_key": 2, "rule:n": 1}, {"even": 2})


@pytest.mark.parametrize("sink", ["delta", "iceberg"])
def test_a_compaction_amid_a_batch_loses_no_change_and_a_key_of_another_type_is_refused(
    broker: BrokerThread, orders: Settings, topic: str, spark: SparkSession, sink: str
) -> None:
    settings = upserting(orders, sink=sink)
    sent = [changes(60, keys=15), changes(60, keys=15, first=15), changes(60, keys=30, seed=1)]
    for some in sent[:2]:
        send(broker, topic, some)
        assert ingest.run(settings) == 0
    send(broker, topic, sent[2])
    merged: list[str] = []

    def reached(point: str) -> None:
        if point == "rows: files written":
            out = io.StringIO()
            compact.run(replace(settings, compact_retention="0 seconds"), out)
            merged.extend(line for line in out.getvalue().splitlines() if line.startswith("rows "))
            if len(merged) == 2:
                raise Killed

    with pytest.raises(Killed):
        ingest.run(settings, reached)
    assert "files 2 -> 1" in merged[0], "the keys of the first two batches are apart, and so are their files"
    assert ingest.run(settings) == 0
    check(spark, settings, [*sent[0], *sent[1], *sent[2]], rounds=3)
    with pytest.raises(PipelineError, match="has id long, but the settings have id string; keep the column's type"):
        ingest.run(replace(settings, schema="id STRING, customer STRING, amount DOUBLE, at TIMESTAMP"))
