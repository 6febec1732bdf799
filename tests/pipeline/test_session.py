"""The session has the connector: a topic of ours is read by Spark."""

import signal

import pytest
from kafka import KafkaProducer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from odradek.broker.testing import BrokerThread


def test_a_topic_is_read_by_sparks_own_connector(spark: SparkSession, broker: BrokerThread, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    for number in range(10):
        producer.send(topic, str(number).encode())
    producer.close()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", topic)
        .load()
        .selectExpr("cast(cast(value AS string) AS int) AS value")
        .collect()
    )
    assert sorted(row.value for row in rows) == list(range(10))


def test_what_pyspark_raises_it_does_not_print_too(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = spark.range(1).selectExpr("current_timestamp() AS event_time")
    with pytest.raises(PySparkException, match="CANNOT_PARSE_INTERVAL"):
        rows.groupBy(sf.window("event_time", "soon")).count()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("spark")
def test_an_interrupt_is_handled_as_it_was_before_spark() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
