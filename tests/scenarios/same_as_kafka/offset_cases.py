"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import time
from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import T, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
LIST, BY_TIME, EPOCH, TRIM = range(10), range(1, 10), range(5), range(3)


def list_offsets(b: Peer, topic: str, *times: int, partition: int = 0, replica_id: int = -1, **more: Any) -> None:
    """One request for each time."""
    for timestamp in times:
        asked = {"partition_index": partition, "timestamp": timestamp, **more}
        b.ask(ApiKey.LIST_OFFSETS, {"replica_id": replica_id, "topics": [{"name": topic, "partitions": [asked]}]})


def unordered_timestamps(b: Peer) -> str:
    """Six records whose largest timestamp is not the last."""
    topic = b.create()
    for first in (T, T + 100, T + 50):
        b.produce(topic, batch(b"a", b"b", first_time=first))
    return topic


@CASES.of(LIST)
def special_timestamps(b: Peer) -> None:
    topic = unordered_timestamps(b)
    list_offsets(b, topic, -1, -2, -3, -4, -5, -6, -(2**63))
    empty = b.create("empty")
    list_offsets(b, empty, -1, -2, -3, -4, -5, 0, T)


@CASES.of(LIST)
def timestamps_before_between_and_after_the_records(b: Peer) -> None:
    topic = unordered_timestamps(b)
    list_offsets(b, topic, 0, T - 1, T, T + 1, T + 2, T + 51, T + 99, T + 101, T + 102, 2**63 - 1)


@CASES.of(LIST)
def log_append_times(b: Peer) -> None:
    topic = b.create("t", 1, message_timestamp_type="LogAppendTime")
    for _ in range(2):
        b.produce(topic, batch(b"a", b"b"))
        time.sleep(0.01)
    list_offsets(b, topic, -1, -2, -3, 0, 2**63 - 1)


@CASES.of(BY_TIME)
def timestamps_in_several_segments(b: Peer) -> None:
    topic = b.create("t", 1, segment_bytes="300", index_interval_bytes="1")
    for number in range(6):
        b.produce(topic, batch(b"x" * 100, b"y", first_time=T + number * 1000))
    list_offsets(b, topic, *range(T - 1000, T + 7000, 500))


@CASES.of(BY_TIME)
def timestamps_of_deleted_records(b: Peer) -> None:
    topic = b.create("t", 1, segment_bytes="300")
    for number in range(3):
        b.produce(topic, batch(b"x" * 100, b"y", first_time=T + number * 1000))
    trim_to = {"name": topic, "partitions": [{"partition_index": 0, "offset": 5}]}
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [trim_to], "timeout_ms": 5000}, 1)
    list_offsets(b, topic, -2, -4, -5, 0, T, T + 2001, T + 3000)


@CASES.of([0])
def max_num_offsets_of_version_0(b: Peer) -> None:
    topic = b.create("t", 1, segment_bytes="300")
    for _ in range(5):
        b.produce(topic, batch(b"x" * 150))
    for most in (1, 2, 100, 0):
        list_offsets(b, topic, -1, -2, 2**62, max_num_offsets=most)
    list_offsets(b, topic, -1, max_num_offsets=-1)
    list_offsets(b, topic, 0, -1, max_num_offsets=5, replica_id=-2)


@CASES.of(LIST)
def offsets_of_unknown_partitions(b: Peer) -> None:
    topic = unordered_timestamps(b)
    list_offsets(b, topic, -1, T, partition=1)
    list_offsets(b, topic, -1, partition=-1)
    list_offsets(b, b.name("none"), -1, -4, -5)
    list_offsets(b, "a/b", -1)


@CASES.of(LIST)
def a_partition_whose_offset_is_listed_twice(b: Peer) -> None:
    topic = unordered_timestamps(b)
    one = {"partition_index": 0, "timestamp": -1}
    other = {"partition_index": 0, "timestamp": -2}
    b.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": topic, "partitions": [one, other]}]})
    twice = [{"name": topic, "partitions": [one]}, {"name": topic, "partitions": [other]}]
    b.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": twice})
    b.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": []})
    b.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "topics": [{"name": topic, "partitions": []}]})


@CASES.of(range(4, 10))
def leader_epochs_with_timestamps(b: Peer) -> None:
    topic = unordered_timestamps(b)
    for epoch in (-1, 0, 1, -2):
        list_offsets(b, topic, -1, -2, -4, -5, T, current_leader_epoch=epoch)


@CASES.of(LIST)
def offsets_for_replica_ids(b: Peer) -> None:
    topic = unordered_timestamps(b)
    for replica in (-2, -3, 0, 5):
        list_offsets(b, topic, -1, -2, -4, -5, T, replica_id=replica)


@CASES.of(range(2, 10))
def isolation_levels_of_offsets(b: Peer) -> None:
    topic = unordered_timestamps(b)
    asked = {"partition_index": 0, "timestamp": -1}
    for level in (0, 1, 2):
        document = {"replica_id": -1, "isolation_level": level, "topics": [{"name": topic, "partitions": [asked]}]}
        b.ask(ApiKey.LIST_OFFSETS, document)


@CASES.of(EPOCH)
def end_offsets_of_leader_epochs(b: Peer) -> None:
    topic = unordered_timestamps(b)
    empty = b.create("empty")

    def asked(name: str, partition: int, epoch: int, current: int = -1) -> None:
        partitions = [{"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}]
        b.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": [{"topic": name, "partitions": partitions}]})

    for epoch in (0, 1, -1, -2, 100):
        asked(topic, 0, epoch)
        asked(empty, 0, epoch)
    for current in (0, 1, -2):
        asked(topic, 0, 0, current)
    asked(topic, 1, 0)
    asked(b.name("none"), 0, 0)
    b.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, {})
    twice = [{"partition": 0, "leader_epoch": 0}, {"partition": 0, "leader_epoch": 7}]
    b.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, {"topics": [{"topic": topic, "partitions": twice}]})


def trim(b: Peer, topic: str, *offsets: int, partition: int = 0, timeout_ms: int = 5000) -> None:
    """One request for each offset."""
    for offset in offsets:
        asked = {"name": topic, "partitions": [{"partition_index": partition, "offset": offset}]}
        b.ask(ApiKey.DELETE_RECORDS, {"topics": [asked], "timeout_ms": timeout_ms})


@CASES.of(TRIM)
def records_are_deleted_up_to_an_offset(b: Peer) -> None:
    topic = unordered_timestamps(b)
    trim(b, topic, 0, 3, 2, 3, 7, -2, 6, -1, -1, 6)
    b.log_start_and_end(topic)


@CASES.of(TRIM)
def all_records_are_deleted(b: Peer) -> None:
    topic = unordered_timestamps(b)
    trim(b, topic, -1, timeout_ms=0)
    b.log_start_and_end(topic)
    trim(b, b.create("empty"), -1, 0, 1)


@CASES.of(TRIM)
def records_that_cannot_be_deleted(b: Peer) -> None:
    compacted = b.create("c", 1, cleanup_policy="compact")
    b.produce(compacted, batch())
    trim(b, compacted, 1)
    both = b.create("d", 1, cleanup_policy="compact,delete")
    b.produce(both, batch())
    trim(b, both, 1)
    topic = unordered_timestamps(b)
    trim(b, topic, 1, partition=1)
    trim(b, b.name("none"), 1)
    trim(b, b.create_internal(), 0, partition=77)
    trim(b, b.create_internal(), 0)
    b.log_start_and_end(compacted)


@CASES.of(TRIM)
def a_partition_whose_records_are_deleted_twice(b: Peer) -> None:
    topic = unordered_timestamps(b)
    twice = [{"partition_index": 0, "offset": 1}, {"partition_index": 0, "offset": 2}]
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [{"name": topic, "partitions": twice}], "timeout_ms": 5000})
    b.ask(ApiKey.DELETE_RECORDS, {"topics": [], "timeout_ms": 5000})
    b.log_start_and_end(topic)
