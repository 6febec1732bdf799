"""Records that a test begins with."""

from __future__ import annotations

import random
from typing import Any

import kafka
import pytest
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.testing import BrokerThread, Record, Security, allow, in_process_broker
from odradek.testing.seeding import murmur2, partition_of
from tests.patience import PATIENCE_S


def read_all(bootstrap: str, topic: str, count: int, **settings: Any) -> list[Any]:
    consumer = kafka.KafkaConsumer(topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", **settings)
    try:
        return [next(consumer) for _ in range(count)]
    finally:
        consumer.close()


def test_a_record_has_key_value_headers_timestamp_and_partition() -> None:
    full = Record(b"value", key=b"key", headers=[("name", b"header"), ("none", None)], timestamp_ms=12345, partition=2)
    with BrokerThread() as broker:
        broker.seed({"orders": [full]}, partitions=3)
        (record,) = read_all(broker.bootstrap, "orders", 1)
        assert (record.partition, record.key, record.value, record.timestamp) == (2, b"key", b"value", 12345)
        assert record.headers == [("name", b"header"), ("none", None)]


def test_records_keep_their_order_and_keys_choose_partitions_as_kafkas_producers_do() -> None:
    with BrokerThread() as broker:
        broker.seed({"by-key": [(b"%d" % n, b"%d" % n) for n in range(2500)], "none": []}, partitions=4)
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
        for number in range(20):
            key = b"%d" % number
            there = producer.send("by-key", key=key, value=b"").get(timeout=PATIENCE_S).partition
            assert there == partition_of(key, 4)
        producer.close()
        seeded = [record for record in read_all(broker.bootstrap, "by-key", 2520) if record.value]
        for partition in range(4):
            found = [int(record.value) for record in seeded if record.partition == partition]
            assert found == [n for n in range(2500) if partition_of(b"%d" % n, 4) == partition]
        none = broker.broker.metadata.topic("none")
        assert none is not None
        assert len(none.partitions) == 4


def test_records_without_a_key_take_turns_and_an_existing_topic_is_appended_to() -> None:
    with BrokerThread() as broker:
        broker.seed({"turns": [b"0", b"1", b"2", b"3"]}, partitions=2)
        broker.seed({"turns": [b"4", (None, b"5")]})
        found = read_all(broker.bootstrap, "turns", 6)
        assert sorted((record.partition, record.offset, record.value) for record in found) == [
            (0, 0, b"0"),
            (0, 1, b"2"),
            (0, 2, b"4"),
            (1, 0, b"1"),
            (1, 1, b"3"),
            (1, 2, b"5"),
        ]


def test_the_hash_is_kafkas() -> None:
    source = random.Random(1)
    for length in range(40):
        data = source.randbytes(length)
        assert murmur2(data) == murmur2_of_kafka_python(data) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("text", "record 1 of topic orders is str, not bytes, a \\(key, value\\) or a Record"),
        (None, "is NoneType, not bytes"),
        ((b"key", b"value", b"more"), "is tuple, not bytes"),
        ((b"key", "text"), "has a value that is str, not bytes: encode it"),
        ((1, b"value"), "has a key that is int, not bytes"),
        (Record(b"value", headers=[("name", "text")]), "has a name that is str"),  # type: ignore[list-item]
        (Record(b"value", partition=1), "is for partition 1, but the topic has 1"),
    ],
)
async def test_a_bad_record_is_named_and_nothing_is_written(record: Any, why: str) -> None:
    async with in_process_broker() as broker:
        with pytest.raises(ValueError, match=why):
            await broker.seed({"orders": [b"good", record]})
        assert all(log.state.log_end_offset == 0 for log in broker.log_manager.logs.values())


@pytest.mark.parametrize("setting", ["log.segment.bytes", "message.max.bytes"])
def test_batches_are_as_small_as_the_topic_needs_them(setting: str) -> None:
    with BrokerThread({setting: 2000}) as broker:
        broker.seed({"orders": [b"%d" % number + bytes(500) for number in range(20)]})
        read = [record.value.rstrip(b"\0") for record in read_all(broker.bootstrap, "orders", 20)]
        assert read == [b"%d" % number for number in range(20)]


async def test_what_the_broker_refuses_is_an_error() -> None:
    async with in_process_broker(message_max_bytes=1000) as broker:
        with pytest.raises(ProtocolError) as raised:
            await broker.seed({"orders": [bytes(2000)]})
        assert raised.value.code == ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ProtocolError) as raised:
            await broker.seed({"no good name": []})
        assert raised.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_secured_broker_is_seeded_whatever_clients_may_do() -> None:
    security = Security("SASL_SSL", users={"alice": "secret"}, acls=[allow("alice", "READ", topic="orders")])
    async with in_process_broker(security=security) as broker:
        await broker.seed({"orders": [b"value"]})
        assert sum(log.state.log_end_offset for log in broker.log_manager.logs.values()) == 1
