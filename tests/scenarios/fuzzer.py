"""Seeded mutations of valid frames, sent to a broker; after each the broker must answer or close in time."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any, TypeVar
from uuid import UUID

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from tests.base_requests import Known
from tests.large_requests import small_request
from tests.protocol.vector_files import message_vectors, table
from tests.wire import requests
from tests.wire.blocking_client import RawClient
from tests.wire.frames import API_VERSIONS_V0, request_payload

M = TypeVar("M", bound=Message)
ApiVersion = tuple[int, int]
"""The key of an API, and a version."""
TOPIC = "fuzz"
EXTREMES = (-(2**31), -2, -1, 0, 1, 255, 65_535, 2**31 - 1)
LONGEST_WAIT_MS = 50


def seed_frames(served: set[ApiVersion], topic_id: UUID) -> list[bytes]:
    """Payloads (header and body) to start from: Kafka's frames of what is served, and real produces and fetches of the
    topic with this id.
    """
    payloads = frames_of_kafka(served)
    for version in (3, 7, 9, 11):
        for compression in range(5):
            payloads += [request_payload(_produce(compression), version)] * 4
    for version in (4, 7, 11, 12, 13, 18):
        payloads += [request_payload(_fetch(topic_id), version)] * 8
    return payloads


def newer_seed_frames(served: set[ApiVersion], known: Known) -> list[bytes]:
    """Payloads to start from of what Kafka 4.4 serves and 3.9 does not: Kafka's frames, requests that name what exists,
    and heartbeats of members that join, stay and leave. No markers: those of a stranger leave a transaction without an
    end, as in Kafka.
    """
    newer = served - served_by("3.9")
    answerable = sorted(pair for pair in newer if pair[0] != ApiKey.WRITE_TXN_MARKERS)
    named = [small_request(key, version, known).payload() for key, version in answerable]
    members = [request_payload(request, 1) for request in _heartbeats(known)]
    return [*frames_of_kafka(newer), *named * 4, *members * 8]


def frames_of_kafka(of: set[ApiVersion]) -> list[bytes]:
    """Kafka's frames of these versions."""
    frames = message_vectors("frames")
    requests_of_kafka = (frame for frame in frames if frame["type"] == "request")
    return [bytes.fromhex(frame["hex"])[4:] for frame in requests_of_kafka if (frame["apiKey"], frame["version"]) in of]


def served_by(release: str) -> set[ApiVersion]:
    """The versions that a release of Kafka serves."""
    ranges = table("api_versions_of_releases.json")[release].items()
    return {(int(key), version) for key, (lowest, highest) in ranges for version in range(lowest, highest + 1)}


def _heartbeats(known: Known) -> Iterator[ConsumerGroupHeartbeatRequest]:
    """As members of a group of the newer protocol send them, and one that converts a classic group."""
    own = ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=known.topic_id, partitions=[0])
    for group in ("newer-group", known.joined_group):
        who: dict[str, Any] = {"group_id": group, "member_id": "member-1"}
        join = {**who, "member_epoch": 0, "rebalance_timeout_ms": 6000, "topic_partitions": []}
        yield ConsumerGroupHeartbeatRequest(**join, subscribed_topic_names=[known.topic], server_assignor="range")
        yield ConsumerGroupHeartbeatRequest(**join, subscribed_topic_regex="k(n.*)+")
        yield ConsumerGroupHeartbeatRequest(**join, subscribed_topic_names=[known.topic], instance_id="i", rack_id="r")
        for epoch in (-2, -1, 1, 2, 3):
            yield ConsumerGroupHeartbeatRequest(**who, member_epoch=epoch, topic_partitions=[own])


def _produce(compression: int) -> ProduceRequest:
    records = [Record(offset=n, timestamp=1000 + n, key=b"k%d" % n, value=b"v" * n, headers=[]) for n in range(5)]
    batch = build_batch(records, compression=compression)
    return requests.produce(TOPIC, batch, acks=1)


def _fetch(topic_id: UUID) -> FetchRequest:
    partitions = [FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    topics = [FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=partitions)]
    state = FetchRequest.ReplicaState()
    return FetchRequest(max_wait_ms=10, min_bytes=1, max_bytes=10_000, replica_state=state, topics=topics)


class Mutator:
    """An endless sequence of damaged payloads from ``seeds``, the same for the same seed of the random source."""

    def __init__(self, seeds: list[bytes], random_source: random.Random) -> None:
        self.seeds = seeds
        self._random = random_source
        self._created = 0

    def payloads(self) -> Iterator[bytes]:
        while True:
            data = bytearray(self._random.choice(self.seeds))
            for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
                self._damage(data)
            if self._is_harmless(bytes(data)):
                yield bytes(data)

    def _damage(self, data: bytearray) -> None:
        source = self._random
        start = 4 if len(data) > 12 and source.random() < 0.9 else 0  # mostly keep the API key and version
        at = source.randrange(start, len(data)) if len(data) > start else 0
        length = source.randrange(1, 9)
        match source.randrange(7):
            case 0 if data:
                data[at % len(data)] ^= 1 << source.randrange(8)
            case 1 if data:
                data[at % len(data)] = source.randrange(256)
            case 2:
                del data[at : at + length]
            case 3:
                data[at:at] = source.randbytes(length)
            case 4:
                data[at : at + 4] = struct.pack(">i", source.choice(EXTREMES))
            case 5:
                del data[at:]
            case _:
                other = source.choice(self.seeds)
                data[at:] = other[min(at, len(other)) :]

    def _is_harmless(self, payload: bytes) -> bool:
        """Excludes what a broker rightly executes: long waits, and thousands of new topics."""
        if len(payload) < 8:
            return True
        api_key, version = struct.unpack_from(">hh", payload)
        try:
            match api_key:
                case 1 if 4 <= version <= 18:
                    return bool(_body(payload, FetchRequest, version).max_wait_ms <= LONGEST_WAIT_MS)
                case 19 if 0 <= version <= 7:
                    return self._may_create(_body(payload, CreateTopicsRequest, version))
                case 37 if 0 <= version <= 3:
                    return self._may_create(_body(payload, CreatePartitionsRequest, version))
        except MalformedMessage:
            pass
        return True

    def _may_create(self, request: CreateTopicsRequest | CreatePartitionsRequest) -> bool:
        self._created += 1
        small = all(getattr(topic, "num_partitions", 1) < 20 for topic in request.topics)
        return request.validate_only or (small and self._created < 100)


def _body(payload: bytes, message: type[M], version: int) -> M:
    api_key, _ = struct.unpack_from(">hh", payload)
    _, position = read(RequestHeader, request_header_version(api_key, version), payload)
    return decode(message, version, payload, position)


class Outcomes:
    """The outcomes of the frames: answered with the connection alive, or closed."""

    def __init__(self) -> None:
        self.answered = 0
        self.closed = 0

    def throw(self, bootstrap: str, payloads: Iterator[bytes], count: int) -> None:
        """Sends ``count`` payloads, each followed by a plain ApiVersions. Raises TimeoutError if the broker hangs."""
        client = RawClient(bootstrap, timeout=20)
        for _ in range(count):
            if not self._throw(client, next(payloads)):
                client.socket.close()
                client = RawClient(bootstrap, timeout=20)
        client.socket.close()

    def _throw(self, client: RawClient, payload: bytes) -> bool:
        try:
            client.send(payload)
            client.send(API_VERSIONS_V0)
            while client.receive()[:4] != API_VERSIONS_V0[4:8]:
                pass
        except ConnectionError:
            self.closed += 1
            return False
        self.answered += 1
        return True
