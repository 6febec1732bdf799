"""Requests that brokers refuse, some with other codes than later releases. All are in versions that Kafka 1.0 has."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.registry import request_class
from odradek.protocol.records import Compression
from tests.beside_kafka.documents import Document, batch, message_of
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

CREATE_TOPICS, PRODUCE, LIST_OFFSETS, ALTER_CONFIGS = 1, 3, 1, 0
TOPIC = 2
"""A resource of AlterConfigs."""
MAX_TIMESTAMP = -3
UNKNOWN_PRODUCER: dict[str, Any] = {"producer_id": 700, "producer_epoch": 0, "base_sequence": 3}
TOPICS: dict[str, Document] = {
    "plain": {},
    "keyed": {"configs": [{"name": "cleanup.policy", "value": "compact"}]},
    "lonely": {"configs": [{"name": "min.insync.replicas", "value": "2"}]},
    "default-partitions": {"num_partitions": -1},
    "default-replicas": {"replication_factor": -1},
    "no-partitions": {"num_partitions": 0},
    "a name": {},
    "of-later": {"configs": [{"name": "message.timestamp.before.max.ms", "value": "1000"}]},
    "never": {"configs": [{"name": "retention.ms", "value": "soon"}]},
}
BATCHES = [
    ("plain", batch(b"v")),
    ("plain", batch(b"v" * 100, compression=Compression.ZSTD)),
    ("plain", batch(b"v", **UNKNOWN_PRODUCER)),
    ("keyed", batch(b"v", key=None)),
    ("lonely", batch(b"v")),
    ("nowhere", batch(b"v")),
]


def refusals(bootstrap: str) -> None:
    """Sends the requests, one after the other."""
    with RawClient(bootstrap) as client:

        def ask(api: ApiKey, document: Document, version: int) -> None:
            client.call(request_payload(message_of(request_class(api), document), version))

        for name, more in TOPICS.items():
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1, **more}
            ask(ApiKey.CREATE_TOPICS, {"topics": [topic], "timeout_ms": 30_000}, CREATE_TOPICS)
        for name, records in BATCHES:
            data = [{"name": name, "partition_data": [{"index": 0, "records": records}]}]
            ask(ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 5000, "topic_data": data}, PRODUCE)
        for name, timestamp in (("plain", MAX_TIMESTAMP), ("plain", -1), ("nowhere", -1)):
            asked = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
            ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": asked}, LIST_OFFSETS)
        for name, value in (("retention.ms", "soon"), ("no.such.setting", "1"), ("retention.ms", "1000")):
            changed = {"resource_type": TOPIC, "resource_name": "plain", "configs": [{"name": name, "value": value}]}
            ask(ApiKey.ALTER_CONFIGS, {"resources": [changed]}, ALTER_CONFIGS)
