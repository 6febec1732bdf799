"""The recordings of clients and applications that tests/clients/test_recordings.py makes: of Apache Kafka 3.9.1, and of
4.4.0 those that use the protocols of Kafka 4.
"""

from __future__ import annotations

from pathlib import Path

CLIENTS = ("kafka-python", "librdkafka", "java", "franz-go")
APPLICATIONS = ("spring", "streams", "faststream")
"""Those of tests/clients/applications."""
NEWER = ("librdkafka-4.4", "java-4.4")
"""Those of Kafka 4.4.0: groups whose assignments the broker makes, transactions that raise the epoch."""
RECORDINGS = Path(__file__).parents[2] / "vectors" / "recordings"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
"""Those of both brokers."""
