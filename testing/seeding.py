"""Records for a test, written by the broker's own protocol: what a producer of the same cluster would leave behind.

    await broker.seed({
        "orders": [b"a value", (b"a key", b"a value"), Record(b"a value", key=b"a key", partition=0)],
    })

(A) Missing topics are created. Records are appended in their order, each partition's in batches, which are no larger
    than the topic takes.
(B) A record goes to its `partition`; otherwise its key decides, as with Kafka's producers: murmur2 of the key, without
    the sign (source: Kafka's `BuiltInPartitioner`, `Utils.murmur2`). Without a key, partitions take turns.
(C) Nothing is written unless all records can be read. What the broker refuses is a ProtocolError.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NoReturn

from odradek.broker.metadata.new_topic import NewTopic
from odradek.clients.admin.client import AdminClient, check
from odradek.protocol import records as wire
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.produce import ProduceRequest

DEFAULT_OF_THE_BROKER = -1
BATCH_RECORDS = 1000
BATCH_BYTES = 256 << 10
ALL_REPLICAS = -1
TIMEOUT_MS = 30_000
HASH_SEED = 0x9747B28C
FACTOR, SHIFT = 0x5BD1E995, 24
MASK = 0xFFFFFFFF
TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


@dataclasses.dataclass(frozen=True)
class Record:
    """A record of a seed. Without `timestamp_ms` it has the time of the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


Seed = bytes | tuple[bytes | None, bytes | None] | Record
"""A value, a key with a value, or a record."""


async def seed(admin: AdminClient, topics: Mapping[str, Iterable[Seed]], partitions: int | None, now_ms: int) -> None:
    """Writes the records of each topic. `partitions` is the number for topics that are created. Raises ValueError,
    ProtocolError and NetworkError.
    """
    read = {topic: [_record(topic, number, given) for number, given in enumerate(of)] for topic, of in topics.items()}
    counts = await _partition_counts(admin, list(read), partitions)
    for topic, of_topic in read.items():
        for partition, of_partition in _by_partition(topic, of_topic, counts[topic]).items():
            for batch in _batches(of_partition):
                await _append(admin, topic, partition, batch, now_ms)


def _record(topic: str, number: int, given: object) -> Record:
    record = given
    if isinstance(given, tuple) and len(given) == 2:
        record = Record(key=given[0], value=given[1])
    elif isinstance(given, bytes):
        record = Record(given)
    if not isinstance(record, Record):
        _refuse(topic, number, f"is {type(given).__name__}, not bytes, a (key, value) or a Record")
    for what, found in (("value", record.value), ("key", record.key), *((name, data) for name, data in record.headers)):
        if found is not None and not isinstance(found, bytes):
            _refuse(topic, number, f"has a {what} that is {type(found).__name__}, not bytes: encode it")
    return record


def _refuse(topic: str, number: int, why: str) -> NoReturn:
    raise ValueError(f"record {number} of topic {topic} {why}")


async def _partition_counts(admin: AdminClient, topics: list[str], partitions: int | None) -> dict[str, int]:
    """Returns the number of partitions of each topic, after creating those that are missing."""
    known = {topic.name: topic for topic in await admin.topics(topics)}
    for name in topics:
        if known[name].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            await _create(admin, NewTopic(name, DEFAULT_OF_THE_BROKER if partitions is None else partitions))
        else:
            check(known[name].error_code)
    return {topic.name or "": len(topic.partitions) for topic in await admin.topics(topics)}


async def _create(admin: AdminClient, topic: NewTopic) -> None:
    """A client may create the topic at the same time."""
    try:
        await admin.create_topic(topic)
    except ProtocolError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


def _by_partition(topic: str, records: Iterable[Record], partitions: int) -> dict[int, list[Record]]:
    """(B). Raises ValueError."""
    found: dict[int, list[Record]] = {}
    turns = count()
    for number, record in enumerate(records):
        partition = record.partition
        if partition is None:
            partition = next(turns) % partitions if record.key is None else partition_of(record.key, partitions)
        elif not 0 <= partition < partitions:
            _refuse(topic, number, f"is for partition {partition}, but the topic has {partitions}")
        found.setdefault(partition, []).append(record)
    return found


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key, of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Returns the hash as an unsigned number of 32 bits."""
    found = HASH_SEED ^ len(data)
    end = len(data) - len(data) % 4
    for position in range(0, end, 4):
        word = int.from_bytes(data[position : position + 4], "little") * FACTOR & MASK
        word = (word ^ word >> SHIFT) * FACTOR & MASK
        found = found * FACTOR & MASK ^ word
    if end < len(data):
        found = (found ^ int.from_bytes(data[end:], "little")) * FACTOR & MASK
    found = (found ^ found >> 13) * FACTOR & MASK
    return found ^ found >> 15


def _batches(records: Iterable[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        length = len(record.value or b"") + len(record.key or b"")
        if batch and (len(batch) == BATCH_RECORDS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += length
    if batch:
        yield batch


async def _append(admin: AdminClient, topic: str, partition: int, batch: Sequence[Record], now_ms: int) -> None:
    """Appends a batch, in parts if it is too large for the topic."""
    data = ProduceRequest.PartitionProduceData(
        index=partition,
        records=wire.build_batch(
            [
                wire.Record(
                    offset=number,
                    timestamp=now_ms if record.timestamp_ms is None else record.timestamp_ms,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                )
                for number, record in enumerate(batch)
            ]
        ),
    )
    of_topic = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    response = await admin.ask_any(ProduceRequest(acks=ALL_REPLICAS, timeout_ms=TIMEOUT_MS, topic_data=[of_topic]))
    result = response.responses[0].partition_responses[0]
    if result.error_code in TOO_LARGE and len(batch) > 1:
        for part in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
            await _append(admin, topic, partition, part, now_ms)
        return
    check(result.error_code, result.error_message and f"{topic}-{partition}: {result.error_message}")
