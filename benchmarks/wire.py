"""Requests to a broker over a plain blocking socket, for operations that Kafka's tools do not offer."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from odradek.protocol.compiler import decode, encode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import RequestHeader, ResponseHeader, request_header_version, response_header_version
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.registry import response_class
from odradek.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.schema import Message

R = TypeVar("R", bound=Message)

METADATA_VERSION = 4
CREATE_TOPICS_VERSION = 2
DELETE_TOPICS_VERSION = 1
FETCH_VERSION = 4
CLIENT_ID = "odradek-benchmarks"
GOES_SOON = {"file.delete.delay.ms": "1000"}
"""The files of a topic with this setting are removed soon after its deletion."""


def framed(request: Message, version: int, correlation_id: int = 1) -> bytes:
    """Returns a whole request with its length."""
    key = request.__schema__.api_key
    assert key is not None
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=CLIENT_ID
    )
    body = encode(header, request_header_version(key, version)) + encode(request, version)
    return struct.pack(">i", len(body)) + body


def receive(connection: socket.socket) -> bytes:
    """Returns the next response without its length. Raises ConnectionError at the end of the stream."""
    (size,) = struct.unpack(">i", _receive_exactly(connection, 4))
    return _receive_exactly(connection, size)


@contextmanager
def connected(port: int, timeout_s: float = 60) -> Iterator[socket.socket]:
    """Yields a connection that sends small requests at once (TCP_NODELAY)."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def call(port: int, request: Message, response: type[R], version: int, timeout_s: float = 30) -> R:
    """Sends one request on a new connection; returns its response."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        return call_on(connection, request, response, version)


def call_on(connection: socket.socket, request: Message, response: type[R], version: int) -> R:
    key = request.__schema__.api_key
    assert key is not None
    connection.sendall(framed(request, version))
    answer = decoded(receive(connection), key, version)
    assert isinstance(answer, response)
    return answer


def decoded(answer: bytes, api_key: int, version: int) -> Message:
    """Decodes a response with its header."""
    _, position = read(ResponseHeader, response_header_version(api_key, version), answer)
    return decode(response_class(api_key), version, answer, position)


def highest_version(port: int, api_key: int) -> int:
    """Returns the highest version of the API that the broker lists; -1 if none."""
    listed = call(port, ApiVersionsRequest(), ApiVersionsResponse, 0).api_keys
    return next((each.max_version for each in listed if each.api_key == api_key), -1)


def errors_in(message: Message) -> set[int]:
    """Returns all error codes in a message and its structures except NONE."""
    found = set()
    for name in message.__slots__:
        value = getattr(message, name, None)
        if name.endswith("error_code"):
            found.add(value)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Message):
                found |= errors_in(each)
    return {error for error in found if error}


def metadata(port: int, topics: list[str] | None = None, timeout_s: float = 30) -> MetadataResponse:
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics or []]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return call(port, request, MetadataResponse, METADATA_VERSION, timeout_s)


def until_metadata(port: int, give_up_s: float = 60, expect_running: Callable[[], None] = lambda: None) -> None:
    """Retries until Metadata is served. Raises TimeoutError, and what `expect_running` raises."""
    give_up = time.monotonic() + give_up_s
    while time.monotonic() < give_up:
        expect_running()
        try:
            if metadata(port, timeout_s=5).brokers:
                return
        except OSError:
            pass
        time.sleep(0.002)
    raise TimeoutError(f"no Metadata from port {port} within {give_up_s} s")


def create_topic(
    port: int,
    name: str,
    partitions: int = 1,
    settings: Mapping[str, str] = GOES_SOON,
    *,
    replicas: int = 1,
    timeout_s: float = 30,
) -> None:
    """Creates a topic and waits until it has a leader."""
    configs = [CreateTopicsRequest.CreatableTopicConfig(name=each, value=value) for each, value in settings.items()]
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, configs=configs
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout_s * 1000))
    answer = call(port, request, CreateTopicsResponse, CREATE_TOPICS_VERSION, timeout_s)
    error = answer.topics[0].error_code
    if error:
        raise RuntimeError(f"creating {name}: {ErrorCode.of(error).name}")
    for _ in range(1000):
        described = metadata(port, [name]).topics[0]
        if described.error_code == ErrorCode.NONE and all(p.leader_id >= 0 for p in described.partitions):
            return
        time.sleep(0.01)
    raise TimeoutError(f"{name} has no leader")


def delete_topic(port: int, name: str) -> None:
    request = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
    call(port, request, DeleteTopicsResponse, DELETE_TOPICS_VERSION)


def waiting_fetch(topic: str, max_wait_ms: int) -> bytes:
    """Returns a framed fetch from the beginning of an empty partition, which waits for its first byte."""
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
    )
    return framed(request, FETCH_VERSION)


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(size)
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
