"""Requests by which one client without a login can slow down others: one row per attack, repeated for its duration.

Two attacks are missing, since they do not affect other clients: two throttles on one connection affect only that
connection, and an escape sequence in a client id affects only the reader of the log.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator
from enum import Enum
from random import Random
from typing import NamedTuple

from benchmarks import crowds, unfinished, wire
from benchmarks.wire import framed
from odradek.protocol.messages.configs import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.topics import CreateTopicsRequest
from odradek.protocol.records import Record, build_batch
from tests.base_requests import Known
from tests.large_requests import large_requests

TOPIC = "attacked"
LARGEST_MESSAGE = 60_000_000
ZSTD = 4
ANSWER_TIMEOUT_S = 60
OPEN_FILES = 1000
"""The broker's limit on descriptors, for the attack that exhausts them."""
TIMID_S = 0.2
"""How long an attacker waits for one of many connections."""
LISTED = "leader.replication.throttled.replicas"


class Ground(Enum):
    """The attacked port, and the work of the healthy client; the value is its name in the table."""

    BROKER = "none"
    FEW_FILES = f"none, {OPEN_FILES:,d} descriptors and small segments"
    NEIGHBOR = "none, up to 900 KB, another address"
    USER = "none, up to 900 KB, logged in at another listener"
    METRICS = "none, /health"
    """Only of Odradek: Kafka has no such port."""
    NEWCOMERS = "none, a new connection for each request"
    TLS_NEWCOMERS = "none, a new TLS connection for each request"


class Attack(NamedTuple):
    """`strike` sends the bytes of `prepare` once to a port, and returns the number of bytes sent. Attacks that hold
    connections hold them until the given time of the monotonic clock."""

    name: str
    prepare: Callable[[], bytes]
    strike: Callable[[int, bytes, float], int]
    ground: Ground = Ground.BROKER


def attacks() -> list[Attack]:
    return [
        Attack("one resource named 13,000 times in DescribeConfigs", describe_configs, send),
        Attack("60 batches of zstd that inflate to 127 MB each", inflating_batches, send),
        Attack("a header with 10 MB of tagged fields", lambda: large(3, 11, "a header with many tags"), send),
        Attack("10 MB of empty array elements in Fetch", lambda: large(1, 12, "Topics of empty elements"), send),
        Attack("20,000 settings in IncrementalAlterConfigs", alter_configs, send),
        Attack("10,000 names in CreateTopics, validate only", create_topics, send),
        Attack("40 connections with unfinished frames of 20 MB", lambda: bytes(20_000_000), leave_unfinished),
        Attack("APPEND to a list of 32 KB", append_to_list, send),
        Attack("a batch of 50 MB", large_batch, send),
        Attack("1,500 idle connections", bytes, stay_idle(1500), Ground.FEW_FILES),
        Attack("4 frames of 99 MB, unfinished", unfinished.unfinished_produce, unfinished.hold(4), Ground.NEIGHBOR),
        Attack("560 unfinished logins", unfinished.unfinished_login, unfinished.hold(560, "127.0.0.1"), Ground.USER),
        Attack("64 silent sockets on the metrics port", bytes, stay_idle(64), Ground.METRICS),
        Attack("connect and close", bytes, crowds.connect_and_close, Ground.NEWCOMERS),
        Attack("connect, a request, close", crowds.request, crowds.connect_and_close, Ground.NEWCOMERS),
        Attack("connect, a request, reset", crowds.request, crowds.connect_and_reset, Ground.NEWCOMERS),
        Attack("crowds of 400 that ask and leave", crowds.request, crowds.connect_in_crowds, Ground.NEWCOMERS),
        Attack("connect and close, TLS", bytes, crowds.connect_and_close, Ground.TLS_NEWCOMERS),
        Attack("connect, a hello, close", crowds.client_hello, crowds.connect_and_close, Ground.TLS_NEWCOMERS),
        Attack("connect, a hello, reset", crowds.client_hello, crowds.connect_and_reset, Ground.TLS_NEWCOMERS),
        Attack("connect, garbage, close", crowds.garbage, crowds.connect_and_close, Ground.TLS_NEWCOMERS),
        Attack("crowds of 400 hellos", crowds.client_hello, crowds.connect_in_crowds, Ground.TLS_NEWCOMERS),
    ]


def send(port: int, frame: bytes, until: float) -> int:
    """Sends a frame and waits for the response, or for the end of the connection."""
    connection = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
    with connection, contextlib.suppress(OSError):
        connection.sendall(frame)
        wire.receive(connection)
    return len(frame)


def stay_idle(connections: int) -> Callable[[int, bytes, float], int]:
    """Opens this number of idle connections."""

    def strike(port: int, _: bytes, until: float) -> int:
        with contextlib.ExitStack() as stack:
            for _number in range(connections):
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), TIMID_S))
                if time.monotonic() > until:
                    break
            time.sleep(max(until - time.monotonic(), 0))
        return 0

    return strike


def leave_unfinished(port: int, beginning: bytes, until: float, connections: int = 40, seconds: float = 1) -> int:
    """Sends frames that lack their last byte."""
    frame = struct.pack(">i", len(beginning) + 1) + beginning
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S))
            with contextlib.suppress(OSError):
                connection.settimeout(1)
                connection.sendall(frame)
        time.sleep(seconds)
    return connections * len(frame)


def large(api_key: int, version: int, name: str, size: int = 10_000_000) -> bytes:
    """Returns a case of the generator, as a frame."""
    cases: Iterator[bytes] = (
        case.payload()
        for case in large_requests(api_key, version, size, Random(0), Known(topic=TOPIC))
        if case.name == name
    )
    payload = next(cases)
    return struct.pack(">i", len(payload)) + payload


def describe_configs() -> bytes:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=2, resource_name=TOPIC, configuration_keys=None
    )
    return framed(DescribeConfigsRequest(resources=[resource] * 13_000), 4)


def alter_configs() -> bytes:
    setting = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=TOPIC, configs=[setting] * 20_000
    )
    return framed(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)


def append_to_list() -> bytes:
    """Appends the same items each time. Existing items are not added again, so the list keeps its length."""
    replicas = [f"{number}:0" for number in range(4_800)]
    setting = IncrementalAlterConfigsRequest.AlterableConfig(name=LISTED, config_operation=2, value=",".join(replicas))
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=2, resource_name=TOPIC, configs=[setting]
    )
    return framed(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def create_topics() -> bytes:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=f"many.{number}", num_partitions=1, replication_factor=1)
        for number in range(10_000)
    ]
    return framed(CreateTopicsRequest(topics=topics, validate_only=True), 5)


def inflating_batches() -> bytes:
    batch = _batch(bytes(127_000_000), ZSTD)
    partitions = [ProduceRequest.PartitionProduceData(index=index, records=batch) for index in range(60)]
    return _produce(partitions)


def large_batch() -> bytes:
    return _produce([ProduceRequest.PartitionProduceData(index=0, records=_batch(bytes(50_000_000), 0))])


def _batch(value: bytes, codec: int) -> bytes:
    records = [Record(offset=0, timestamp=1000, key=None, value=value, headers=[])]
    return bytes(build_batch(records, compression=codec))


def _produce(partitions: list[ProduceRequest.PartitionProduceData]) -> bytes:
    topic_data = [ProduceRequest.TopicProduceData(name=TOPIC, partition_data=partitions)]
    return framed(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topic_data), 9)
