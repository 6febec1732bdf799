"""Produces and reads single records at single brokers of a cluster."""

from __future__ import annotations

from typing import Any

from odradek.clients.network_client import NetworkClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Record, build_batch, iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.wire import requests

PRODUCE_VERSION = 8
FETCH_VERSION = 11


async def connect(bootstrap: str, **options: Any) -> NetworkClient:
    """`options`: of NetworkClient."""
    host, port = bootstrap.split(":")
    return await NetworkClient.connect(host, int(port), **options)


def produce_request(topic: str, value: bytes, *, acks: int = -1, timeout_ms: int = 10_000) -> ProduceRequest:
    """A request with one record for partition 0."""
    batch = build_batch([Record(0, 1_700_000_000_000, None, value)])
    return requests.produce(topic, batch, acks=acks, timeout_ms=timeout_ms)


async def produce_on(
    client: NetworkClient, topic: str, value: bytes, *, acks: int = -1, timeout_ms: int = 10_000
) -> ErrorCode:
    """Produces one record to partition 0 and returns the error code."""
    request = produce_request(topic, value, acks=acks, timeout_ms=timeout_ms)
    response = await client.send(request, version=PRODUCE_VERSION, timeout_ms=60_000)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


async def produce(bootstrap: str, topic: str, value: bytes, *, acks: int = -1, timeout_ms: int = 10_000) -> ErrorCode:
    """As `produce_on`, over a new connection."""
    async with await connect(bootstrap) as client:
        return await produce_on(client, topic, value, acks=acks, timeout_ms=timeout_ms)


def codes(response: Any) -> dict[tuple[str, int], int]:
    """The error code of each partition of a response to Produce."""
    return {
        (topic.name, partition.index): partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    }


async def values(bootstrap: str, topic: str) -> list[bytes]:
    """Returns what a consumer reads from the leader of partition 0: all records below the high watermark."""
    async with await connect(bootstrap) as client:
        return await values_on(client, topic)


async def values_on(client: NetworkClient, topic: str) -> list[bytes]:
    """As `values`, over a connection."""
    request = requests.fetch((TopicPartition(topic, 0), 0), min_bytes=0, session_epoch=-1)
    response = await client.send(request, version=FETCH_VERSION)
    (data,) = response.responses[0].partitions
    assert data.error_code == ErrorCode.NONE, ErrorCode.of(data.error_code)
    batches = bytes(data.records or b"")
    return [record.value or b"" for at, header in iter_batches(batches) for record in read_records(batches, at, header)]
