"""History into tables, and the ingest that begins where it ends: no gap, no offset twice."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import Any

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from broker.testing import BrokerThread
from pipeline.jobs import backfill, ingest
from pipeline.ledger import Ledger, LedgerRow
from pipeline.places import Places
from pipeline.settings import Settings
from tests.pipeline.lake import check_tables, order, read_by_arrow, send, send_transaction

PLACE = ["_topic", "_partition", "_offset"]
DEAD = ["reason", "key", "value", "topic", "partition", "offset", "timestamp", "batch_id"]


def every_kind(broker: BrokerThread, topic: str) -> None:
    """Orders a second apart, compressed in all ways, repeated, broken, in transactions that commit and that abort."""
    for number, codec in enumerate((None, "gzip", "lz4", "snappy", "zstd")):
        values = [order(one, one) for one in range(40 * number, 40 * number + 40)]
        send(broker.bootstrap, topic, values, compression_type=codec, linger_ms=5)
    send(broker.bootstrap, topic, [order(number, number) for number in range(0, 200, 10)])
    send(broker.bootstrap, topic, [b"{broken", None, b"[1]", b"", b'{"id": null}', order(1, 1, amount="much")])
    send_transaction(broker.bootstrap, topic, [order(number, 0) for number in range(1000, 1030)], commit=False)
    send_transaction(broker.bootstrap, topic, [order(number, 200) for number in range(200, 210)], commit=True)


class Producing:
    """Sends orders from the moment that a job has read its first chunk, at most so many."""

    def __init__(self, broker: BrokerThread, topic: str, first: int, most: int = 300) -> None:
        self._broker, self._topic = broker, topic
        self._numbers = range(first, first + most)
        self._thread: threading.Thread | None = None

    def reached(self, _point: str) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._produce)
            self._thread.start()

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join()

    def _produce(self) -> None:
        producer = KafkaProducer(bootstrap_servers=self._broker.bootstrap)
        for number in self._numbers:
            producer.send(self._topic, order(number, number), partition=number % 2)
            if number % 10 == 0:
                producer.flush()
                time.sleep(0.1)
        producer.close()


def rows_of(settings: Settings, job: str) -> list[LedgerRow]:
    return Ledger(Places.of(settings).ledger).rows(job)


def record_of(settings: Settings) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(Places.of(settings).handover.read_text())
    return record


def offsets_in(settings: Settings) -> dict[int, list[int]]:
    """The offsets of good and dead rows, by partition."""
    found: dict[int, list[int]] = {}
    for _, partition, offset in (tuple(row.values()) for row in read_by_arrow(Places.of(settings).rows, PLACE)):
        found.setdefault(partition, []).append(offset)
    for row in read_by_arrow(Places.of(settings).dead_letters, ["partition", "offset"]):
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def test_history_and_what_comes_meanwhile_are_in_the_tables_once(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), max_offsets_per_trigger=130, watermark_delay="1 hour")
    every_kind(broker, topic)
    producing = Producing(broker, topic, 300)
    assert backfill.run(settings, producing.reached) == 0
    producing.join()
    send(broker.bootstrap, topic, [order(number, number) for number in range(0, 210, 30)])
    assert ingest.run(settings) == 0
    history, stream = rows_of(settings, "backfill"), rows_of(settings, "ingest")
    assert len(history) > 2
    ends = record_of(settings)["end_offsets"][topic]
    assert stream[0].start_offsets == {topic: {int(number): offset for number, offset in ends.items()}}
    assert sum(row.rows_in for row in stream) == 300 + 7
    assert sum(row.duplicates for row in history) == 20
    assert sum(row.duplicates for row in stream) == 7
    check_tables(spark, settings)
