"""Transactions in a log: isolation levels, markers, batches that belong to no open transaction."""

from __future__ import annotations

import base64
import time
from typing import Any, NamedTuple

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.records import iter_batches, read_control_type, read_coordinator_epoch, read_records
from tests.beside_kafka.documents import Document, T, batch
from tests.scenarios.same_as_kafka.case import Cases
from tests.scenarios.same_as_kafka.peer import Peer

CASES = Cases()
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
DEADLINE_SECONDS = 20
TIMES = (-1, -2, -3, T, T + 1, T + 2)
WITHOUT_THE_LARGEST = (-1, -2, T, T + 1, T + 2)
"""For logs with two markers that may or may not have the same millisecond."""


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


def new_producer(b: Peer, name: str = "producer") -> Producer:
    """A producer with a transactional id; retries while the coordinator is loading."""
    asked = {"transactional_id": b.name(name), "transaction_timeout_ms": 60000}
    coordinator = {"key": b.name(name), "key_type": 1, "coordinator_keys": [b.name(name)]}
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        b.ask(ApiKey.FIND_COORDINATOR, coordinator, 3, is_noted=False)
        answer = b.ask(ApiKey.INIT_PRODUCER_ID, asked, 1, is_noted=False)
        if answer.get("ErrorCode") == 0 or time.monotonic() > deadline:
            return Producer(answer["ProducerId"], answer["ProducerEpoch"])
        time.sleep(0.1)


def add(b: Peer, producer: Producer, topic: str, partition: int = 0) -> None:
    """Adds a partition to the producer's transaction; waits while its previous one is being completed."""
    document = {
        "v3_and_below_transactional_id": b.name("producer"),
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [partition]}],
    }
    until(
        lambda: (
            b.ask(ApiKey.ADD_PARTITIONS_TO_TXN, document, 1, is_noted=False)["ResultsByTopicV3AndBelow"][0][
                "ResultsByPartition"
            ][0]["PartitionErrorCode"]
            != ErrorCode.CONCURRENT_TRANSACTIONS
        )
    )


def until(condition: Any) -> None:
    """Retries until the condition holds; the comparison reports it if it never does."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def write(b: Peer, producer: Producer, topic: str, sequence: int, *, about: str = "", **more: Any) -> None:
    """Notes what a batch of two records of the producer's transaction is answered with. It is sent again, as clients
    do, as long as the broker could not ask the coordinator about it, which Kafka does over a connection of its own.
    """
    options = {"is_transactional": True, "base_sequence": sequence, **producer._asdict()}
    transactional_id = more.pop("transactional_id", b.name("producer"))
    partition = more.pop("partition", 0)
    records = batch(b"a", b"b", **(options | more))
    answer: Document = {}

    def is_settled() -> bool:
        nonlocal answer
        answer = b.produce(topic, records, partition=partition, transactional_id=transactional_id)
        return bool(answer.get("ErrorCode", ErrorCode.NOT_ENOUGH_REPLICAS) != ErrorCode.NOT_ENOUGH_REPLICAS)

    until(is_settled)
    b.note(f"PRODUCE {about}".strip(), answer)


def end(b: Peer, producer: Producer, topic: str, committed: bool) -> None:
    """Ends the transaction, the only one that is open in the partition, and waits until consumers of both isolation
    levels are past its marker: in Kafka the last stable offset moves a moment after the high watermark.
    """
    before = latest(b, topic, READ_UNCOMMITTED)
    document = {"transactional_id": b.name("producer"), "committed": committed, **producer._asdict()}
    b.ask(ApiKey.END_TXN, document, 1)
    until(lambda: before < latest(b, topic, READ_UNCOMMITTED) == latest(b, topic, READ_COMMITTED))


def latest(b: Peer, topic: str, isolation_level: int) -> int:
    return int(list_offset(b, topic, -1, isolation_level, is_noted=False)["Topics"][0]["Partitions"][0]["Offset"])


def list_offset(b: Peer, topic: str, timestamp: int, isolation_level: int, *, is_noted: bool = True) -> Document:
    asked = {"partition_index": 0, "timestamp": timestamp}
    document = {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [{"name": topic, "partitions": [asked]}],
    }
    return b.ask(ApiKey.LIST_OFFSETS, document, 7, is_noted=is_noted, about=f"at {timestamp}, {isolation_level}")


def look(b: Peer, topic: str, offset: int = 0, version: int = 11, times: tuple[int, ...] = TIMES) -> None:
    """Notes what consumers of both isolation levels see from an offset on, and what they find by time."""
    for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED):
        for timestamp in times:
            list_offset(b, topic, timestamp, isolation_level)
        asked = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        document = {
            "max_bytes": 1 << 20,
            "isolation_level": isolation_level,
            "topics": [{"topic": topic, "partitions": [asked]}],
        }
        answer = b.ask(ApiKey.FETCH, document, version, is_noted=False)
        partition = answer["Responses"][0]["Partitions"][0]
        partition["Batches"] = described(partition.pop("Records"))
        b.note(f"FETCH {isolation_level}", partition)


def described(records: str | None) -> Any:
    """Batches without what is each broker's own: producer ids, and the time of markers."""
    if records is None:
        return None
    data = base64.b64decode(records)
    found = []
    for position, header in iter_batches(data):
        control = [
            (read_control_type(record.key).name, read_coordinator_epoch(record.value))
            for record in (read_records(data, position, header) if header.is_control else ())
        ]
        found.append(
            (
                header.base_offset,
                header.last_offset,
                header.attributes,
                header.producer_epoch,
                header.base_sequence,
                header.partition_leader_epoch,
                control,
            )
        )
    return found


def producers(b: Peer, topic: str) -> None:
    b.ask(ApiKey.DESCRIBE_PRODUCERS, {"topics": [{"name": topic, "partition_indexes": [0, 1]}]}, 0)


def mark(
    b: Peer, producer: Producer, topic: str, coordinator_epoch: int, committed: bool = True, epoch: int | None = None
) -> None:
    """A coordinator's marker for a partition that exists and one that does not."""
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch if epoch is None else epoch,
        "transaction_result": committed,
        "topics": [{"name": topic, "partition_indexes": [0, 5]}],
        "coordinator_epoch": coordinator_epoch,
    }
    b.ask(
        ApiKey.WRITE_TXN_MARKERS,
        {"markers": [marker]},
        min(b.version, 1),
        about=f"of epochs {coordinator_epoch}, {epoch}",
    )


@CASES.of([4, 8, 12])
def an_aborted_and_a_committed_transaction(b: Peer) -> None:
    topic = b.create()
    producer = new_producer(b)
    b.produce(topic, batch(b"before"))
    for number, committed in enumerate((False, True)):
        add(b, producer, topic)
        write(b, producer, topic, 4 * number)
        b.produce(topic, batch(b"between"))
        write(b, producer, topic, 4 * number + 2)
        look(b, topic, version=b.version)
        producers(b, topic)
        end(b, producer, topic, committed)
        for offset in (0, 2, 5, 7):
            look(b, topic, offset, version=b.version)
        producers(b, topic)


@CASES.of([8])
def batches_outside_an_open_transaction(b: Peer) -> None:
    topic = b.create(partitions=2)
    producer = new_producer(b)
    write(b, producer, topic, 0)
    add(b, producer, topic)
    write(b, producer, topic, 0)
    write(b, producer, topic, 0, partition=1)
    write(b, producer, topic, 2, is_transactional=False)
    write(b, producer, topic, 0)
    write(b, producer, topic, 9)
    write(b, producer, topic, 2, about="of a newer epoch", producer_epoch=5)
    write(b, producer, topic, 0, producer_id=producer.producer_id + 5_000)
    write(b, producer, topic, 0, transactional_id=b.name("nobody"), partition=1)
    end(b, producer, topic, committed=True)
    write(b, producer, topic, 2)
    write(b, producer, topic, 2, is_transactional=False)
    look(b, topic)


@CASES.of([8])
def a_sequence_after_a_refused_batch(b: Peer) -> None:
    topic = b.create()
    producer = new_producer(b)
    write(b, producer, topic, 0)
    add(b, producer, topic)
    write(b, producer, topic, 2)
    write(b, producer, topic, 0)
    write(b, producer, topic, 2)
    end(b, producer, topic, committed=False)
    look(b, topic)


@CASES.of([1])
def records_of_an_open_transaction_are_deleted(b: Peer) -> None:
    topic = b.create()
    producer = new_producer(b)
    b.produce(topic, batch(b"before"))
    add(b, producer, topic)
    write(b, producer, topic, 0)
    b.produce(topic, batch(b"behind"))
    for before in (2, 99, -1):
        offsets = {"name": topic, "partitions": [{"partition_index": 0, "offset": before}]}
        b.ask(ApiKey.DELETE_RECORDS, {"topics": [offsets], "timeout_ms": 5000})
        look(b, topic, 2)
        look(b, topic, 4)
        producers(b, topic)
    write(b, producer, topic, 2)
    look(b, topic, 4)
    end(b, producer, topic, committed=False)
    look(b, topic, 4)
    producers(b, topic)


@CASES.of([0, 1])
def markers_with_other_epochs(b: Peer) -> None:
    topic = b.create()
    producer = new_producer(b)
    add(b, producer, topic)
    write(b, producer, topic, 0)
    mark(b, producer, topic, 7, committed=False)
    producers(b, topic)
    look(b, topic, times=WITHOUT_THE_LARGEST)
    mark(b, producer, topic, 6)
    mark(b, producer, topic, 7)
    mark(b, producer, topic, 9, epoch=-1)
    mark(b, producer, topic, 9, epoch=3)
    producers(b, topic)
    mark(b, producer, topic, 9)
    look(b, topic, times=WITHOUT_THE_LARGEST)


@CASES.of([0, 1])
def a_hanging_transaction_is_aborted_by_an_administrator(b: Peer) -> None:
    """Does the same as Kafka's TransactionsCommand abort: the marker has the epochs that DescribeProducers returned."""
    topic = b.create()
    producer = new_producer(b)
    add(b, producer, topic)
    write(b, producer, topic, 0)
    producers(b, topic)
    mark(b, producer, topic, -1, committed=False)
    producers(b, topic)
    look(b, topic)


@CASES.of([12])
def a_read_committed_fetch_waits_for_the_marker(b: Peer) -> None:
    topic = b.create()
    producer = new_producer(b)
    add(b, producer, topic)
    write(b, producer, topic, 0)
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    document = {
        "max_bytes": 1 << 20,
        "isolation_level": READ_COMMITTED,
        "topics": [{"topic": topic, "partitions": [asked]}],
        "max_wait_ms": 300,
        "min_bytes": 1,
    }
    b.ask(ApiKey.FETCH, document)
    end(b, producer, topic, committed=True)
    look(b, topic, version=12)
