"""The session has the connector: a topic of ours is read by Spark."""

from kafka import KafkaProducer
from pyspark.sql import SparkSession

from broker.testing import BrokerThread


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
