"""A backfill of history, and the ingest that begins where it ends: no gap, no offset twice."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import TopicPartition
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import backfill, ingest
from odradek.pipeline.jobs.history import NAME
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import Ledger, LedgerRow
from odradek.pipeline.state.places import Places
from odradek.testing import BrokerThread
from tests.pipeline.jobs.test_kills import finish, lively, one_after_the_other, settings_of
from tests.pipeline.lake import check_tables, order, read_by_arrow, same_rows, send, send_transaction
from tests.soak import SOAK

POINTS = [("rows: committed", 2)]  # Between two tables of the second chunk.
ORDERS = 250  # Two chunks.
if SOAK:
    ORDERS = 400
    POINTS += [
        *[("read", 1), ("dead_letters: committed", 1), ("windows: committed", 1), ("rows: files written", 1)],
        ("ledger: committed", 1),
    ]
PLACE = ["_topic", "_partition", "_offset"]
DEAD = ["reason", "key", "value", "topic", "partition", "offset", "timestamp", "batch_id"]


def every_kind(broker: BrokerThread, topic: str) -> None:
    """Orders a second apart with all codecs, some repeated or broken, in committed and aborted transactions."""
    for number, codec in enumerate((None, "gzip", "lz4", "snappy", "zstd")):
        values = [order(one, one) for one in range(40 * number, 40 * number + 40)]
        send(broker.bootstrap, topic, values, compression_type=codec, linger_ms=5)
    send(broker.bootstrap, topic, [order(number, number) for number in range(0, 200, 10)])
    send(broker.bootstrap, topic, [b"{broken", None, b"[1]", b"", b'{"id": null}', order(1, 1, amount="much")])
    send_transaction(broker.bootstrap, topic, [order(number, 0) for number in range(1000, 1030)], commit=False)
    send_transaction(broker.bootstrap, topic, [order(number, 200) for number in range(200, 210)], commit=True)


class Producing:
    """Sends at most `most` orders, from when a job has read its first chunk."""

    def __init__(self, broker: BrokerThread, topic: str, first: int, most: int = 100) -> None:
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
    record: dict[str, Any] = json.loads((Places.of(settings).state.path / NAME).read_text())
    return record


def offsets_in(settings: Settings) -> dict[int, list[int]]:
    """The offsets of good and dead rows, by partition."""
    found: dict[int, list[int]] = {}
    for _, partition, offset in (tuple(row.values()) for row in read_by_arrow(Places.of(settings).rows, PLACE)):
        found.setdefault(partition, []).append(offset)
    for row in read_by_arrow(Places.of(settings).dead_letters, ["partition", "offset"]):
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(offsets) for partition, offsets in found.items()}


def test_history_and_concurrent_records_are_in_the_tables_once(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), max_offsets_per_trigger=200, watermark_delay="1 hour")
    every_kind(broker, topic)
    producing = Producing(broker, topic, 300)
    assert backfill.run(settings, producing.reached) == 0
    producing.join()
    send(broker.bootstrap, topic, [order(number, number) for number in range(0, 210, 30)])
    assert ingest.run(settings) == 0
    history, stream = rows_of(settings, "backfill"), rows_of(settings, "ingest")
    assert len(history) == 2
    ends = record_of(settings)["end_offsets"][topic]
    assert stream[0].start_offsets == {topic: {int(number): offset for number, offset in ends.items()}}
    assert sum(row.rows_in for row in stream) == 100 + 7
    assert sum(row.duplicates for row in history) == 20
    assert sum(row.duplicates for row in stream) == 7
    check_tables(spark, settings)


def test_a_backfill_from_segments_writes_the_same_tables_as_from_topics(
    spark: SparkSession, orders: Settings, topic: str, tmp_path: Path
) -> None:
    compacted = f"{topic}.compacted"
    with BrokerThread({"log.cleaner.backoff.ms": 100}, num_partitions=2, log_retention_ms=-1) as broker:
        small = {"segment.bytes": "4096"}
        create(broker, topic, small)
        create(broker, compacted, {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
        every_kind(broker, topic)
        repeated = [order(number, number) for number in range(2000, 2030)] * 10
        send(broker.bootstrap, compacted, repeated, batch_size=800)
        wait_for_cleaner(broker.data_dir, compacted)
        both = replace(orders, bootstrap_server=broker.bootstrap, topics=(topic, compacted), dedup_keys=("id",))
        by_topics = replace(both, max_offsets_per_trigger=400)
        by_segments = replace(by_topics, name="segments", backfill_from="segments", log_dirs=(str(broker.data_dir),))
        for settings in (by_topics, by_segments):
            assert backfill.run(settings) == 0
        check_tables(spark, by_segments)
    for table, names in (("rows", ["id", "customer", "amount", "at", *PLACE]), ("dead_letters", DEAD)):
        one, other = (read_by_arrow(getattr(Places.of(each), table), names) for each in (by_topics, by_segments))
        assert one
        same_rows(one, other)
    history = [counts_of(row) for row in rows_of(by_topics, "backfill")]
    assert history == [counts_of(row) for row in rows_of(by_segments, "backfill")]
    assert len(history) == 2


def test_segments_of_another_topic_id_are_refused(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = replace(orders, backfill_from="segments", log_dirs=(str(tmp_path),))
    send(broker.bootstrap, topic, [order(1, 1), order(2, 2)])
    with pytest.raises(PipelineError, match=f"has no partition of {topic}"):
        backfill.run(settings)
    with BrokerThread(num_partitions=2) as another:
        send(another.bootstrap, topic, [order(1, 1), order(3, 3)])
        with pytest.raises(PipelineError, match=rf"is not of the brokers' topic {topic}: its topic id is"):
            backfill.run(replace(settings, log_dirs=(str(another.data_dir),)))
    assert rows_of(settings, "backfill") == []
    assert backfill.run(replace(settings, log_dirs=(str(broker.data_dir),))) == 0
    assert [row.rows_in for row in rows_of(settings, "backfill")] == [2]


def create(broker: BrokerThread, topic: str, config: dict[str, str], partitions: int = 2) -> None:
    with admin_of(broker) as admin:
        admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])


@contextmanager
def admin_of(broker: BrokerThread) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        yield admin
    finally:
        admin.close()


def wait_for_cleaner(data: Path, topic: str) -> None:
    """Waits until both partitions were cleaned once."""
    checkpoint, until = data / "cleaner-offset-checkpoint", time.monotonic() + 30
    while not (
        checkpoint.exists() and checkpoint.read_text().count(topic) == 2 and not list(data.glob(f"{topic}-*/*.swap"))
    ):
        assert time.monotonic() < until
        time.sleep(0.05)


def counts_of(row: LedgerRow) -> tuple[object, ...]:
    return row.batch_id, row.rows_in, row.good, row.dead, row.duplicates, row.lost, row.start_offsets, row.end_offsets


@pytest.mark.soak("a kill at each of 6 places", minutes=3)
@pytest.mark.timeout(1200)
def test_kills_leave_the_tables_of_a_batch_computation(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = settings_of(orders)
    send(broker.bootstrap, topic, lively(ORDERS))
    with one_after_the_other(settings, tmp_path, POINTS, "backfill") as jobs:
        for job in jobs:
            finish(job, tmp_path, -signal.SIGKILL)
            with pytest.raises(PipelineError, match=r"the backfill is at \d+ of \d+ offsets"):
                ingest.run(settings)
    assert backfill.run(settings) == 0
    send(broker.bootstrap, topic, lively(60, ORDERS - 20))
    assert ingest.run(settings) == 0
    history = rows_of(settings, "backfill")
    assert [row.batch_id for row in history] == list(range(len(history)))
    assert sum(row.rows_in for row in history) == len(lively(ORDERS))
    check_tables(spark, settings)


def record_only(settings: Settings) -> None:
    """Records where the history ends, and reads nothing."""
    stopped = threading.Event()
    stopped.set()
    assert backfill.run(settings, stopping=stopped) == 0
    assert rows_of(settings, "backfill") == []


def test_the_ingest_reads_added_partitions_and_the_backfill_commits_its_offsets(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    create(broker, topic, {})
    send(broker.bootstrap, topic, [b"{", b"{", *(order(number, number) for number in range(18))])
    record_only(orders)
    with admin_of(broker) as admin:
        admin.create_partitions({topic: 3})
    send(broker.bootstrap, topic, [order(number, number) for number in range(20, 50)], 3)
    assert backfill.run(orders) == 0
    assert [(row.rows_in, row.end_offsets) for row in rows_of(orders, "backfill")] == [(20, {topic: {0: 10, 1: 10}})]
    with admin_of(broker) as admin:
        shown = admin.list_group_offsets({orders.group: None})[orders.group]
    assert {place.partition: committed.offset for place, committed in shown.items()} == {0: 10, 1: 10}
    assert ingest.run(orders) == 0
    check_tables(spark, orders)
    assert offsets_in(orders) == {0: list(range(20)), 1: list(range(20)), 2: list(range(10))}
    assert backfill.run(orders) == 0, "it was done before"
    assert len(rows_of(orders, "ingest")) + len(rows_of(orders, "backfill")) == len(check_tables(spark, orders))


def test_a_backfill_after_an_ingest_is_refused(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [b"{", *(order(number, number) for number in range(20))])
    assert ingest.run(orders) == 0
    with pytest.raises(PipelineError, match="the ingest of orders has started"):
        backfill.run(orders)
    check_tables(spark, orders)


def test_deleted_offsets_are_an_error_or_counted(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    send(broker.bootstrap, topic, [order(number, number) for number in range(40)])
    record_only(orders)
    with admin_of(broker) as admin:
        admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(PipelineError, match=rf"{topic}-0: offsets 0 to 6 were deleted; set on-data-loss"):
        backfill.run(orders)
    assert rows_of(orders, "backfill") == []
    assert backfill.run(replace(orders, on_data_loss="continue")) == 0
    (row,) = rows_of(orders, "backfill")
    assert (row.rows_in, row.good, row.lost) == (33, 33, 7)
    assert offsets_in(orders) == {0: list(range(7, 20)), 1: list(range(20))}


def test_a_recreated_topic_ends_its_history(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    kept = f"{topic}.kept"
    settings = replace(orders, topics=(topic, kept))
    for name in (topic, kept):
        send(broker.bootstrap, name, [order(number, number) for number in range(20)])
    record_only(settings)
    with admin_of(broker) as admin:
        admin.delete_topics([topic])
    with pytest.raises(PipelineError, match=rf"{topic}: read before, but deleted now"):
        backfill.run(settings)
    create(broker, topic, {})
    send(broker.bootstrap, topic, [order(number, number) for number in range(100, 106)])
    with pytest.raises(PipelineError, match=rf"{topic}: deleted and recreated"):
        backfill.run(settings)
    settings = replace(settings, on_recreated_topic="continue")
    assert backfill.run(settings) == 0
    (row,) = rows_of(settings, "backfill")
    assert (row.rows_in, row.lost) == (20, 20)
    assert ingest.run(settings) == 0
    found = read_by_arrow(Places.of(settings).rows, ["id", "_topic"])
    assert sorted(one["id"] for one in found if one["_topic"] == kept) == list(range(20))
    assert sorted(one["id"] for one in found if one["_topic"] == topic) == list(range(100, 106))


def test_a_torn_record_of_a_backfill_that_did_not_begin_is_recreated(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, sink="parquet", dedup_keys=("customer",))
    send(broker.bootstrap, topic, [order(number, number) for number in range(20)])
    record_only(settings)
    record = Places.of(settings).state.path / NAME
    whole = record.read_text()
    record.write_text(whole[:30])
    assert backfill.run(replace(settings, max_offsets_per_trigger=10)) == 0
    assert [(row.good, row.duplicates) for row in rows_of(settings, "backfill")] == [(5, 5), (0, 10)]
    send(broker.bootstrap, topic, [order(number, number) for number in range(10)])
    assert ingest.run(settings) == 0
    assert sum(row.good for row in rows_of(settings, "ingest")) == 0
    assert backfill.run(settings) == 0, "it was done before"


def test_a_full_disk_is_reported_and_the_chunk_is_repeated(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",))
    send(broker.bootstrap, topic, [b"{", *(order(number % 15, number % 15) for number in range(20))])

    def full(point: str) -> None:
        if point == "rows: files written":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(PipelineError, match=r"the backfill failed: the disk is full .* no data is lost"):
        backfill.run(settings, full)
    assert rows_of(settings, "backfill") == []
    assert backfill.run(settings) == 0
    check_tables(spark, settings)
