"""In Spark, the segment source gives the rows of Spark's Kafka connector, on topics of an Odradek broker."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertSchemaEqual

from odradek.pipeline.segments.columns import arrow_schema
from odradek.pipeline.sinks.arrow_types import arrow_schema as sinks_schema
from odradek.testing import BrokerThread
from pyspark_odradek import DefaultSource
from tests.patience import block_until
from tests.pipeline.segments.batch_builder import batch
from tests.pipeline.segments.log_files import write_log


@pytest.fixture(scope="module")
def quick() -> Iterator[BrokerThread]:
    """A broker that cleans logs and writes log start offsets at once."""
    settings = {"log.cleaner.backoff.ms": 100, "log.flush.start.offset.checkpoint.interval.ms": 100}
    with BrokerThread(settings, num_partitions=2, log_retention_ms=-1) as running:
        yield running


COMMITTED = "read_committed"


def create(broker: BrokerThread, topic: str, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"segment.bytes": "4096", **config})])[topic].result()
    return admin


def producer(broker: BrokerThread, **config: object) -> Producer:
    """A producer of batches that fit into the small segments."""
    return Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 20, "batch.num.messages": 10, **config})


def read(spark: SparkSession, broker: BrokerThread, topic: str, level: str) -> tuple[DataFrame, DataFrame]:
    """Reads with the source and with the connector."""
    ours = spark.read.format("odradek").option("topic", topic).option("isolationLevel", level)
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return (
        ours.option("includeHeaders", "true").load(str(broker.data_dir)),
        theirs.option("includeHeaders", "true").option("kafka.isolation.level", level).load(),
    )


def require_equal(spark: SparkSession, broker: BrokerThread, topic: str, level: str) -> int:
    ours, theirs = (frame.sort("partition", "offset").collect() for frame in read(spark, broker, topic, level))
    assert ours == theirs
    return len(ours)


def segments(broker: BrokerThread, topic: str) -> set[tuple[str, int]]:
    """The files of the topic's segments: the cleaner writes others."""
    entries = (entry for folder in broker.data_dir.glob(f"{topic}-*") for entry in os.scandir(folder))
    return {(entry.path, entry.inode()) for entry in entries if entry.name.endswith(".log")}


def test_the_schema_is_that_of_the_connector(spark: SparkSession, quick: BrokerThread, topic: str) -> None:
    create(quick, topic)
    ours, theirs = read(spark, quick, topic, "read_committed")
    assertSchemaEqual(ours.schema, theirs.schema)
    assert ours.schema == theirs.schema
    for with_headers in (True, False):
        given = {"path": "/", "topic": "t", "includeHeaders": str(with_headers)}
        assert arrow_schema(with_headers=with_headers) == sinks_schema(DefaultSource(given).schema())
    assert ours.count() == 0


@pytest.mark.parametrize("append_time", ["CreateTime", "LogAppendTime"])
def test_every_codec_headers_and_nulls_are_read_as_by_the_connector(
    spark: SparkSession, quick: BrokerThread, topic: str, append_time: str
) -> None:
    create(quick, topic, **{"message.timestamp.type": append_time})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        client = producer(quick, **{"compression.type": codec})
        for number in range(200):
            headers: list[tuple[str, str | bytes | None]]
            headers = [("h", b"%d" % number), ("empty", b""), ("null", None), ("h", b"again")]
            value = None if number % 13 == 0 else b"%s %d " % (codec.encode(), number) * (number % 7)
            key = None if number % 3 == 0 else b"%d" % number
            client.produce(topic, value, key, headers=headers[: number % 5], timestamp=1_700_000_000_000 + number)
        client.flush()
    assert require_equal(spark, quick, topic, "read_committed") == 1000
    assert len(list((quick.data_dir / f"{topic}-0").glob("*.log"))) > 3


def test_aborted_and_open_transactions_are_read_as_by_the_connector(
    spark: SparkSession, quick: BrokerThread, topic: str
) -> None:
    create(quick, topic)
    clients = [producer(quick, **{"transactional.id": f"{topic}-{one}"}) for one in range(2)]
    for client in clients:
        client.init_transactions()
    for turn in range(6):
        client = clients[turn % 2]
        client.begin_transaction()
        for number in range(20):
            client.produce(topic, b"%d %d" % (turn, number) * 20, partition=number % 2)
        client.flush()
        if turn % 3 == 0:
            client.abort_transaction()
        else:
            client.commit_transaction()
    clients[0].begin_transaction()
    clients[0].produce(topic, b"open", partition=0)
    clients[0].flush()
    plain = producer(quick)
    for partition in range(2):
        plain.produce(topic, b"behind", partition=partition)
    plain.flush()
    assert require_equal(spark, quick, topic, "read_committed") == 81
    assert require_equal(spark, quick, topic, "read_uncommitted") == 123
    clients[0].abort_transaction()
    assert require_equal(spark, quick, topic, "read_committed") == 82


def test_a_compacted_topic_is_read_as_by_the_connector(spark: SparkSession, quick: BrokerThread, topic: str) -> None:
    create(quick, topic, **{"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    client = producer(quick, **{"compression.type": "lz4"})
    for number in range(2000):
        client.produce(topic, b"%d" % number * 20, b"%d" % (number % 50), partition=number % 2)
    client.flush()
    checkpoint = quick.data_dir / "cleaner-offset-checkpoint"
    block_until(lambda: checkpoint.exists() and checkpoint.read_text().count(topic) == 2)
    block_until(lambda: not list(quick.data_dir.glob(f"{topic}-*/*.swap")))
    for _ in range(10):
        before = segments(quick, topic)
        ours, theirs = (frame.sort("partition", "offset").collect() for frame in read(spark, quick, topic, COMMITTED))
        if segments(quick, topic) == before:
            break
    assert segments(quick, topic) == before, "the cleaner does not come to rest"
    assert ours == theirs
    assert 50 <= len(ours) < 2000


def test_deleted_records_are_skipped_as_by_the_connector(spark: SparkSession, quick: BrokerThread, topic: str) -> None:
    admin = create(quick, topic)
    client = producer(quick)
    for number in range(300):
        client.produce(topic, b"%d" % number * 10, partition=number % 2)
    client.flush()
    admin.delete_records([TopicPartition(topic, 0, 77)])[TopicPartition(topic, 0)].result()
    checkpoint = quick.data_dir / "log-start-offset-checkpoint"
    block_until(lambda: checkpoint.exists() and f"{topic} 0 77" in checkpoint.read_text())
    assert require_equal(spark, quick, topic, "read_committed") == 300 - 77


def test_errors_reach_the_user(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    log = write_log(tmp_path_factory.mktemp("log"), batch(0, [b"a"], attributes=5), (1, batch(1, [b"b"])))
    source = spark.read.format("odradek").option("topic", "t")
    with pytest.raises(PySparkException, match=r"0.log has a batch at position 0, offset 0, .*: codec 5 is unknown"):
        source.load(str(log)).collect()
    with pytest.raises(PySparkException, match="needs either topics or a pattern"):
        spark.read.format("odradek").load(str(log))
    with pytest.raises(PySparkException, match="has a fixed schema"):
        source.schema("value STRING").load(str(log)).collect()
