"""The recordings of clients and applications of Apache Kafka 3.9.1 that tests/clients/test_recordings.py makes."""

from __future__ import annotations

from pathlib import Path

CLIENTS = ("kafka-python", "librdkafka", "java", "franz-go")
APPLICATIONS = ("spring", "streams", "faststream")
"""Those of tests/clients/applications."""
RECORDINGS = Path(__file__).parents[2] / "vectors" / "recordings"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Those of both brokers."""
