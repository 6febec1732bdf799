"""Records of topics: as a stream and as a batch, by the connector's options."""

import dataclasses
import json

import pytest
from kafka import KafkaProducer
from pyspark.sql import DataFrame, Row, SparkSession

from odradek.broker.testing import BrokerThread
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.sources import TUNED, connector_options, records_batch, records_stream
from tests.pipeline.parsing_records import COLUMNS


def produce(broker: BrokerThread, topic: str, count: int, partition: int = 0) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, key=b"k", headers=[("h", b"1")], partition=partition)
    producer.close()


def read(stream: DataFrame, name: str) -> list[Row]:
    """All rows of a stream up to now."""
    query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    rows = stream.sparkSession.table(name).orderBy("topic", "partition", "offset").collect()
    assert len({row["batchId"] for row in query.recentProgress}) == len(query.recentProgress)
    return rows


def test_a_batch_is_bounded_by_offsets(spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str) -> None:
    produce(broker, topic, 10)
    rows = records_batch(spark, orders, json.dumps({topic: {"0": 2, "1": 0}}), json.dumps({topic: {"0": 5, "1": 0}}))
    assert rows.schema.simpleString() == spark.createDataFrame([], COLUMNS).schema.simpleString()
    assert [(row.offset, row.value, row.key, row.headers) for row in rows.orderBy("offset").collect()] == [
        (offset, b"%d" % offset, b"k", [Row(key="h", value=b"1")]) for offset in (2, 3, 4)
    ]


def test_a_stream_begins_where_it_is_told(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    produce(broker, topic, 4)
    produce(broker, topic, 2, partition=1)
    name = topic.replace("-", "_")
    assert len(read(records_stream(spark, orders), f"{name}_all")) == 6
    some = read(records_stream(spark, orders, json.dumps({topic: {"0": 3, "1": 1}})), f"{name}_some")
    assert [(row.partition, row.offset) for row in some] == [(0, 3), (1, 1)]
    latest = dataclasses.replace(orders, starting_offsets="latest")
    assert read(records_stream(spark, latest), f"{name}_none") == []


def test_topics_may_be_a_pattern_and_batches_bounded(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}x"):
        produce(broker, name, 4)
    pattern = dataclasses.replace(orders, topics=(), topics_pattern=rf"{topic}\.[ab]", max_offsets_per_trigger=4)
    stream = records_stream(spark, pattern)
    sizes: list[int] = []
    query = (
        stream.writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count())).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    assert sizes == [4, 4]


def test_the_connector_is_told_what_the_settings_say(spark: SparkSession) -> None:
    settings = make_settings(
        {
            "topics": ["a", "b"],
            "bootstrap_server": "one:9092,two:9092",
            "on_data_loss": "continue",
            "isolation_level": "read_uncommitted",
            "kafka": {"max.poll.records": "5", "security.protocol": "SSL"},
        }
    )
    options = connector_options(spark, settings)
    assert (
        options.items()
        >= {
            "kafka.bootstrap.servers": "one:9092,two:9092",
            "subscribe": "a,b",
            "failOnDataLoss": "false",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_uncommitted",
            "kafka.max.poll.records": "5",
            "kafka.security.protocol": "SSL",
        }.items()
    )
    assert options["kafka.fetch.max.bytes"] == TUNED["fetch.max.bytes"]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "no topics are given; set topics or topics-pattern"),
        (
            {"topics": ["a"], "kafka": {"isolation.level": "x"}},
            "isolation.level has a setting of its own; set isolation-level",
        ),
        ({"topics": ["a"], "kafka": {"enable.auto.commit": "x"}}, "connector says: .*enable.auto.commit"),
        ({"topics": ["a,b"]}, "topic 'a,b' is no name of a topic"),
        ({"topics": ["a", "b"], "results_topic": "b"}, "results-topic b is one of the topics that are read"),
        ({"topics_pattern": "b.*", "results_topic": "bc"}, "results-topic bc is one of the topics that are read"),
        ({"topics_pattern": "*"}, r"topics-pattern '\*' is no regular expression"),
        (
            {"topics": ["a"], "starting_offsets": "yesterday"},
            "starting-offsets 'yesterday' is neither earliest nor latest",
        ),
        ({"topics": ["a"], "starting_offsets": '{"a":[1]}'}, "starting-offsets .* is neither earliest nor latest"),
    ],
)
def test_what_the_connector_would_choke_on_is_told(spark: SparkSession, given: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        records_stream(spark, make_settings(given))
