"""One producer and many consumers that wait for its records, each on its own connection, in one small process.

    python -m benchmarks.fan_out PORT TOPIC CONSUMERS RECORDS WARM_UP [--by-id]

Each consumer has a fetch session (KIP-227), with --by-id one that names the topic by its id (KIP-516). It fetches again
as soon as it has a response. A record is sent when all consumers wait. Prints "measuring" after the warm-up, and at the
end one JSON object: the time from sending a record with acks=all until each consumer has received it, in microseconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import socket
import sys
import time
from uuid import UUID

from benchmarks.parked import connect, raise_open_files
from benchmarks.wire import call, framed, receive
from odradek.protocol.compiler import decode, read
from odradek.protocol.errors import ErrorCode
from odradek.protocol.headers import ResponseHeader, response_header_version
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import ZERO_UUID

FETCH, PRODUCE = 1, 0
BY_NAME, BY_ID, PRODUCE_VERSION = 11, 13, 7
"""Versions of Fetch and of Produce."""
METADATA_VERSION = 10
FINAL_EPOCH = -1
"""The session epoch that ends a fetch session."""
WAIT_MS = 60_000
RECORD_BYTES = 100
PAUSE_S = 0.01
"""Between the consumers' requests and the record, so that all consumers wait."""


class Consumer:
    """One connection with its fetch session."""

    def __init__(self, connection: socket.socket, topic: str, topic_id: UUID | None) -> None:
        """`topic_id`: None to fetch by name."""
        self.connection = connection
        self.topic = topic
        self.topic_id = topic_id or ZERO_UUID
        self.version = BY_NAME if topic_id is None else BY_ID
        self.epoch = 0
        self.session_id = 0

    def open_session(self) -> None:
        self.ask(0, 0)
        body = receive(self.connection)
        _, position = read(ResponseHeader, response_header_version(FETCH, self.version), body)
        self.session_id = decode(FetchResponse, self.version, body, position).session_id
        if not self.session_id:
            raise RuntimeError("the broker opened no fetch session")

    def close_session(self) -> None:
        """The broker keeps only so many sessions, and each round opens new ones."""
        self.epoch = FINAL_EPOCH
        self.ask(0, 0)
        receive(self.connection)

    def ask(self, offset: int, wait_ms: int = WAIT_MS) -> None:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchRequest.FetchTopic(topic=self.topic, topic_id=self.topic_id, partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        self.epoch += 1
        self.connection.sendall(framed(request, self.version))


class Producer:
    """Sends the same record repeatedly."""

    def __init__(self, connection: socket.socket, topic: str) -> None:
        self.connection = connection
        now_ms = time.time_ns() // 1_000_000
        batch = build_batch([Record(offset=0, timestamp=now_ms, key=None, value=b"x" * RECORD_BYTES)])
        data = ProduceRequest.PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        self.frame = framed(request, PRODUCE_VERSION)

    def produce(self) -> None:
        """Sends the record and waits for its acknowledgement. Raises RuntimeError."""
        self.connection.sendall(self.frame)
        self.answered()

    def answered(self) -> int:
        """Returns the record's offset. Raises RuntimeError."""
        body = receive(self.connection)
        _, position = read(ResponseHeader, response_header_version(PRODUCE, PRODUCE_VERSION), body)
        (topic,) = decode(ProduceResponse, PRODUCE_VERSION, body, position).responses
        (partition,) = topic.partition_responses
        if partition.error_code:
            raise RuntimeError(f"record refused: {ErrorCode.of(partition.error_code).name}")
        return partition.base_offset


def deliver(producer: Producer, consumers: list[Consumer]) -> list[float]:
    """Sends one record when all consumers wait; returns after how many us each received it, ascending."""
    by_descriptor = {consumer.connection.fileno(): consumer.connection for consumer in consumers}
    with select.epoll() as poll:
        for descriptor in by_descriptor:
            poll.register(descriptor, select.EPOLLIN)
        time.sleep(PAUSE_S)
        begin = time.perf_counter()
        producer.connection.sendall(producer.frame)
        took: list[float] = []
        while len(took) < len(consumers):
            for descriptor, _ in poll.poll():
                body = receive(by_descriptor[descriptor])
                took.append((time.perf_counter() - begin) * 1e6)
                if len(body) < RECORD_BYTES:
                    raise RuntimeError("a consumer got a response without the record")
    producer.answered()
    return took


def id_of(port: int, topic: str) -> UUID:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    return call(port, request, MetadataResponse, METADATA_VERSION).topics[0].topic_id


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fan_out")
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    for name in ("consumers", "records", "warm_up"):
        parser.add_argument(name, type=int)
    parser.add_argument("--by-id", action="store_true")
    arguments = parser.parse_args()
    raise_open_files()
    gc.disable()
    producer = Producer(connect(arguments.port, 1)[0], arguments.topic)
    topic_id = id_of(arguments.port, arguments.topic) if arguments.by_id else None
    consumers = [Consumer(one, arguments.topic, topic_id) for one in connect(arguments.port, arguments.consumers)]
    for consumer in consumers:
        consumer.open_session()
    took: list[float] = []
    for offset in range(-arguments.warm_up, arguments.records):
        if offset == 0:
            print("measuring", flush=True)
            took.clear()
        for consumer in consumers:
            consumer.ask(offset + arguments.warm_up)
        took += deliver(producer, consumers)
    for consumer in consumers:
        consumer.close_session()
    took.sort()
    quantiles = {name: took[int(len(took) * part)] for name, part in (("p50_us", 0.5), ("p99_us", 0.99))}
    print(json.dumps({"deliveries": len(took), **quantiles}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
