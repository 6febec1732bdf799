"""The clients' requests have the bytes that Kafka's own serializer wrote for the same fields."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.protocol.compiler import decode, encode
from odradek.protocol.framing import frame
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.registry import request_class
from odradek.protocol.topic_partition import TopicPartition
from tests.protocol.vector_files import message_vectors
from tests.simulation.client.requests import VERSIONS, FetchFrom, Session, fetch_request, in_rounds
from tests.simulation.client.wire import Exchange
from tests.wire.requests import produce_batches

TOPICS = ("TopicData", "Topics", "ForgottenTopicsData")


def vectors_of(message: type[Any]) -> list[bytes]:
    """Kafka's bytes of the vectors that a client could send, in the version that the clients speak: without unknown
    tags, and with topics that name partitions, each once."""
    return [
        bytes.fromhex(vector["hex"])
        for vector in message_vectors(message.__name__)
        if vector["version"] == VERSIONS[message]
        and vector["style"] != "tags"
        and all(_names_each_once(vector["fields"].get(name) or ()) for name in TOPICS)
    ]


def _names_each_once(topics: Sequence[dict[str, Any]]) -> bool:
    named = []
    for topic in topics:
        name, partitions = list(topic.values())[:2]
        if not partitions:
            return False
        named += [(name, next(iter(each.values())) if isinstance(each, dict) else each) for each in partitions]
    return len(set(named)) == len(named)


@pytest.mark.parametrize("data", vectors_of(ProduceRequest))
def test_a_produce_request_has_kafkas_bytes(data: bytes) -> None:
    read = decode(ProduceRequest, VERSIONS[ProduceRequest], data)
    batches = {
        TopicPartition(topic.name, partition.index): partition.records
        for topic in read.topic_data
        for partition in topic.partition_data
    }
    request = produce_batches(
        batches, acks=read.acks, timeout_ms=read.timeout_ms, transactional_id=read.transactional_id
    )
    assert encode(request, VERSIONS[ProduceRequest]) == data


@pytest.mark.parametrize("data", vectors_of(FetchRequest))
def test_a_fetch_request_has_kafkas_bytes(data: bytes) -> None:
    read = decode(FetchRequest, VERSIONS[FetchRequest], data)
    wanted = {
        TopicPartition(topic.topic, partition.partition): FetchFrom(
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.last_fetched_epoch,
            partition.log_start_offset,
        )
        for topic in read.topics
        for partition in topic.partitions
    }
    request = fetch_request(
        wanted,
        max_wait_ms=read.max_wait_ms,
        min_bytes=read.min_bytes,
        max_bytes=read.max_bytes,
        isolation_level=read.isolation_level,
        session=Session(read.session_id, read.session_epoch),
        forgotten=[
            TopicPartition(topic.topic, number) for topic in read.forgotten_topics_data for number in topic.partitions
        ],
        rack_id=read.rack_id,
    )
    # What only followers and later versions of clients send.
    request.replica_id, request.cluster_id = read.replica_id, read.cluster_id
    assert encode(request, VERSIONS[FetchRequest]) == data


def test_there_are_vectors_with_partitions_for_both_requests() -> None:
    for message in (ProduceRequest, FetchRequest):
        assert sum(len(data) > 60 for data in vectors_of(message)) >= 2


@pytest.mark.parametrize("message", VERSIONS)
def test_the_codec_knows_every_version_that_the_clients_speak(message: type[Any]) -> None:
    schema = message.__schema__
    assert request_class(schema.api_key) is message
    assert schema.versions.lowest <= VERSIONS[message] <= schema.versions.highest


def test_an_exchange_frames_requests_and_finds_their_responses() -> None:
    exchange = Exchange("client")
    _, api_key, version, data = exchange.request(MetadataRequest(topics=[]))
    assert (api_key, version) == (3, VERSIONS[MetadataRequest])
    assert data[:4] == (len(data) - 4).to_bytes(4, "big")
    assert data[4:8] == b"\x00\x03\x00" + bytes([version])
    assert exchange.feed(frame(b"")[:3], deque()) == []


def test_partitions_are_assigned_in_turn() -> None:
    partitions = [TopicPartition("t", number) for number in (2, 0, 1)]
    assigned = in_rounds(partitions, ["a", "b"])
    assert {member: [partition.partition for partition in found] for member, found in assigned.items()} == {
        "a": [0, 2],
        "b": [1],
    }
