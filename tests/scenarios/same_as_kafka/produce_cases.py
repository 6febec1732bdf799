"""Produce: refused batches, idempotent producers, several partitions at once. And DescribeProducers."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.records import Compression, Record, build_batch
from tests.beside_kafka.documents import T, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
PRODUCE = range(3, 12)
PRODUCER = 7001
"""Brokers accept any producer id."""


def produce(b: Peer, topic: str, records: bytes | None, *, version: int | None = None, **more: Any) -> None:
    b.produce(topic, records, version=b.version if version is None else version, is_noted=True, **more)


def sequenced(sequence: int, *values: bytes, epoch: int = 0, producer: int = PRODUCER, **more: Any) -> bytes:
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **more)


def with_byte(data: bytes, position: int, value: int) -> bytes:
    return data[:position] + bytes([value]) + data[position + 1 :]


@CASES.of(PRODUCE)
def a_batch_is_appended_with_each_acks(b: Peer) -> None:
    topic = b.create()
    for acks in (-1, 1, 0):
        produce(b, topic, batch(b"one", b"two"), acks=acks)
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def invalid_acks(b: Peer) -> None:
    topic = b.create()
    for acks in (2, -2, 32767):
        produce(b, topic, batch(), acks=acks)
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def unknown_topics_and_partitions(b: Peer) -> None:
    topic = b.create()
    produce(b, b.name("none"), batch())
    produce(b, topic, batch(), partition=1)
    produce(b, topic, batch(), partition=-1)
    produce(b, "a/b", batch())
    produce(b, "", batch())


@CASES.of(PRODUCE)
def a_produce_request_without_batches(b: Peer) -> None:
    b.ask(ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 1000})
    b.ask(ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": b.create()}]})


@CASES.of(PRODUCE)
def batches_for_an_internal_topic(b: Peer) -> None:
    topic = b.create_internal()
    produce(b, topic, batch())
    produce(b, topic, batch(), partition=77)


@CASES.of(PRODUCE)
def damaged_batches(b: Peer) -> None:
    topic = b.create()
    good = batch(b"some value", b"another")
    for damaged in (
        with_byte(good, 17, good[17] ^ 1),  # the checksum
        with_byte(good, len(good) - 3, good[-3] ^ 1),
        with_byte(good, 16, 3),  # magic
        with_byte(good, 16, 1),
        good[:-1],
        good[:40],
        b"",
        good + good,
        good + b"\x00",
        with_byte(good, 11, good[11] - 1),  # the length
        with_byte(good, 7, 5),  # the base offset
    ):
        produce(b, topic, damaged)
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def control_and_transactional_batches_of_a_client(b: Peer) -> None:
    topic = b.create()
    produce(b, topic, sequenced(0, is_control=True))
    produce(b, topic, sequenced(0, is_transactional=True))
    produce(b, topic, batch(is_transactional=True))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def messages_too_large(b: Peer) -> None:
    topic = b.create("t", max_message_bytes="200", segment_bytes="1000")
    produce(b, topic, batch(b"x" * 300))
    produce(b, topic, batch(b"x" * 50))
    produce(b, topic, batch(b"x" * 900, compression=Compression.GZIP))
    larger_than_segments = b.create("s", segment_bytes="100")
    produce(b, larger_than_segments, batch(b"x" * 300))


@CASES.of(PRODUCE)
def codecs_by_version(b: Peer) -> None:
    topic = b.create()
    for codec in Compression:
        produce(b, topic, batch(b"x" * 300, compression=codec))


@CASES.of(PRODUCE)
def timestamps_too_far_in_the_past_or_the_future(b: Peer) -> None:
    now = int(time.time() * 1000)
    topic = b.create("t", 1, message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000")
    for first in (now, now - 120_000, now + 120_000, -1, 0):
        produce(b, topic, batch(b"a", b"b", first_time=first))
    mixed = [Record(0, now, b"k", b"a"), Record(1, now - 120_000, b"k", b"b"), Record(2, now + 120_000, b"k", b"c")]
    produce(b, topic, build_batch(mixed))
    produce(b, topic, build_batch(mixed, compression=Compression.LZ4))
    old = b.create("o", 1, message_timestamp_difference_max_ms="60000")
    produce(b, old, batch(first_time=now - 120_000))
    produce(b, old, batch(first_time=now + 120_000))
    produce(b, b.create("default"), batch(first_time=now + 7_200_000))


@CASES.of(PRODUCE)
def null_keys_on_a_compacted_topic(b: Peer) -> None:
    topic = b.create("t", 1, cleanup_policy="compact")
    produce(b, topic, batch(b"a", b"b", key=None))
    produce(b, topic, batch(b"a", b"b"))
    records = [Record(0, T, b"k", b"a"), Record(1, T, None, b"b"), Record(2, T, b"k", None), Record(3, T, None, b"c")]
    produce(b, topic, build_batch(records))
    produce(b, topic, build_batch(records, compression=Compression.SNAPPY))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def a_topic_with_log_append_time(b: Peer) -> None:
    topic = b.create("t", 1, message_timestamp_type="LogAppendTime")
    produce(b, topic, batch(b"a", b"b"))
    produce(b, topic, batch(b"a", b"b", compression=Compression.GZIP))
    produce(b, topic, batch(b"a", timestamp_type=1))


@CASES.of(PRODUCE)
def a_topic_with_a_compression_type(b: Peer) -> None:
    topic = b.create("t", 1, compression_type="gzip")
    produce(b, topic, batch(b"x" * 300))
    produce(b, topic, batch(b"x" * 300, compression=Compression.LZ4))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def partitions_fail_independently(b: Peer) -> None:
    first, second = b.create("a", 2), b.create("b")
    broken = with_byte(batch(), 17, 1)
    data = [
        {"name": first, "partition_data": [{"index": 0, "records": batch()}, {"index": 1, "records": broken}]},
        {"name": second, "partition_data": [{"index": 0, "records": batch()}, {"index": 7, "records": batch()}]},
        {"name": b.name("none"), "partition_data": [{"index": 0, "records": batch()}]},
    ]
    for acks in (1, -1):
        b.ask(ApiKey.PRODUCE, {"acks": acks, "timeout_ms": 1000, "topic_data": data})


@CASES.of(PRODUCE)
def an_invalid_batch_fails_the_whole_request(b: Peer) -> None:
    topic = b.create("a", 2)
    for bad in (batch() + batch(), with_byte(batch(), 16, 1), b""):
        parts = [{"index": 0, "records": batch()}, {"index": 1, "records": bad}]
        b.ask(
            ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": parts}]}
        )
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def a_partition_with_two_batches(b: Peer) -> None:
    topic = b.create()
    parts = [{"index": 0, "records": batch(b"a")}, {"index": 0, "records": batch(b"b")}]
    b.ask(ApiKey.PRODUCE, {"acks": -1, "timeout_ms": 1000, "topic_data": [{"name": topic, "partition_data": parts}]})
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def fewer_in_sync_replicas_than_required(b: Peer) -> None:
    topic = b.create("t", 1, min_insync_replicas="2")
    produce(b, topic, batch(), acks=-1)
    produce(b, topic, batch(), acks=1)


@CASES.of(PRODUCE)
def sequences_in_and_out_of_order(b: Peer) -> None:
    topic = b.create()
    for sequence in (5, 0, 2, 1, 1, 0, 3):
        produce(b, topic, sequenced(sequence, b"a"))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def duplicates_of_the_last_five_batches(b: Peer) -> None:
    topic = b.create()
    for sequence in range(0, 14, 2):
        produce(b, topic, sequenced(sequence, b"a", b"b"))
    for sequence in (12, 10, 8, 6, 4, 2, 0):
        produce(b, topic, sequenced(sequence, b"a", b"b"))
    produce(b, topic, sequenced(12, b"a"))
    produce(b, topic, sequenced(12, b"a", b"b", b"c"))
    produce(b, topic, sequenced(13, b"a"))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def producer_epochs(b: Peer) -> None:
    topic = b.create()
    produce(b, topic, sequenced(0, b"a", epoch=3))
    produce(b, topic, sequenced(1, b"a", epoch=4))
    produce(b, topic, sequenced(0, b"a", epoch=4))
    produce(b, topic, sequenced(0, b"a", epoch=4))
    produce(b, topic, sequenced(1, b"a", epoch=3))
    produce(b, topic, sequenced(0, b"a", epoch=3))
    produce(b, topic, sequenced(0, b"a", epoch=32767))
    produce(b, topic, sequenced(1, b"a", epoch=-1))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def sequences_wrap_around(b: Peer) -> None:
    topic = b.create()
    last = 2**31 - 1
    produce(b, topic, sequenced(last - 1, b"a", b"b"))
    produce(b, topic, sequenced(0, b"a"))
    produce(b, topic, sequenced(last - 1, b"a"))
    produce(b, b.create("w"), sequenced(last, b"a", b"b", b"c"))
    produce(b, b.name("w"), sequenced(2, b"a"))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def negative_producer_ids_epochs_and_sequences(b: Peer) -> None:
    topic = b.create()
    produce(b, topic, sequenced(-1, b"a"))
    produce(b, topic, sequenced(0, b"a", epoch=-2))
    produce(b, topic, sequenced(0, b"a", producer=-2))
    produce(b, topic, sequenced(0, b"a", producer=-1))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def a_recreated_topic_has_no_producers(b: Peer) -> None:
    topic = b.create()
    produce(b, topic, sequenced(0, b"a"))
    b.ask(ApiKey.DELETE_TOPICS, {"topic_names": [topic], "timeout_ms": 30000}, 5, is_noted=False)
    b.create()
    produce(b, topic, sequenced(1, b"a"))
    b.log_start_and_end(topic)


@CASES.of(PRODUCE)
def producers_are_kept_when_their_records_are_deleted(b: Peer) -> None:
    topic = b.create()
    for sequence in range(3):
        produce(b, topic, sequenced(sequence, b"a"))
    everything = {"name": topic, "partitions": [{"partition_index": 0, "offset": -1}]}
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [everything], "timeout_ms": 5000}, 1)
    for sequence in (2, 3, 5, 0):
        produce(b, topic, sequenced(sequence, b"a"))
    b.log_start_and_end(topic)


@CASES.of([9])
def settings_of_a_topic_change_between_batches(b: Peer) -> None:
    topic = b.create()
    for name, value in (
        ("max.message.bytes", "100"),
        ("max.message.bytes", "10000"),
        ("cleanup.policy", "compact"),
        ("message.timestamp.type", "LogAppendTime"),
        ("min.insync.replicas", "2"),
    ):
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resource = {"resource_type": 2, "resource_name": topic, "configs": configs}
        b.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}, 1)
        time.sleep(0.5)  # Kafka's brokers learn it later
        produce(b, topic, batch(b"x" * 200))
        produce(b, topic, batch(b"x", key=None))


@CASES.of([0, 1, 2])
def old_produce_versions_with_new_batches(b: Peer) -> None:
    topic = b.create()
    produce(b, topic, batch())


@CASES.of([0])
def producers_are_described(b: Peer) -> None:
    topic = b.create("t", 2)
    for sequence, epoch in ((0, 0), (1, 0), (0, 1)):
        b.produce(topic, sequenced(sequence, b"a", epoch=epoch))
    b.produce(topic, sequenced(4, b"a", b"b", producer=PRODUCER + 1))
    b.produce(topic, batch(), partition=1)
    for name, partitions in ((topic, [0, 1, 2, -1]), (b.name("none"), [0]), ("a/b", [0]), (topic, [0, 0]), (topic, [])):
        b.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": [{"name": name, "partition_indexes": partitions}]})
    b.ask(ApiKey.DESCRIBE_PRODUCERS, {})
