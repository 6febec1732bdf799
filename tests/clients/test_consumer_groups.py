"""Consumers of librdkafka with group.protocol=consumer share the partitions and lose nothing when their broker dies."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members.watch import until, until_coordinators
from tests.spawned_broker import SpawnedBroker, free_port, start_broker

TOPIC = "numbers"
GROUP = "readers"
PARTITIONS = 6
RECORDS = 600
SETTINGS = {"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
ENDS: dict[str, Callable[[SpawnedBroker], object]] = {"kill": SpawnedBroker.kill, "terminate": SpawnedBroker.terminate}


class Reader:
    """Reads in a thread until `close`. `numbers` counts the records; `partitions` are those that it has now."""

    def __init__(self, bootstrap: str, name: str, **more: Any) -> None:
        self.numbers: Counter[int] = Counter()
        self.partitions: set[int] = set()
        self.errors: list[str] = []
        self._is_over = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **more,
        }
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC], on_assign=self._got, on_revoke=self._gave_up)
        while not self._is_over.is_set():
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self.numbers[int(message.value() or b"")] += 1
            elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
                self.errors.append(error.str())
        consumer.close()

    def _got(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        self.partitions |= {each.partition for each in partitions}

    def _gave_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions -= {each.partition for each in partitions}
        consumer.incremental_unassign(partitions)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def produce(bootstrap: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in numbers:
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(30) == 0


def description(bootstrap: str) -> Any:
    """Asks with a new client: librdkafka's asks a coordinator that was gone from the metadata for ever (issue 5511)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return admin.describe_consumer_groups([GROUP])[GROUP].result(30)


def wait(is_reached: Callable[[], bool]) -> None:
    until(is_reached, bool, "end of the wait")


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Callable[[], SpawnedBroker]]:
    """Starts a broker each time, always on the same data and port; those that still run in the end are killed."""
    port, started = free_port(), []

    def start() -> SpawnedBroker:
        started.append(start_broker(tmp_path / "data", SETTINGS, port=port))
        return started[-1]

    yield start
    for broker in started:
        broker.kill()
        broker.close()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("end", ENDS)
def test_consumers_go_on_after_their_broker_has_died(end: str, brokers: Callable[[], SpawnedBroker]) -> None:
    broker = brokers()
    bootstrap = broker.bootstrap
    until_coordinators(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    produce(bootstrap, range(RECORDS))
    readers = [Reader(bootstrap, name) for name in ("a", "b")]

    def everything(records: int) -> bool:
        return len(readers[0].numbers | readers[1].numbers) == records

    wait(lambda: [len(reader.partitions) for reader in readers] == [3, 3])
    wait(lambda: everything(RECORDS))
    found = description(bootstrap)
    assert (found.state.name, found.type.name) == ("STABLE", "CONSUMER")
    assert {member.client_id: len(member.assignment.topic_partitions) for member in found.members} == {"a": 3, "b": 3}

    ENDS[end](broker)
    brokers()
    produce(bootstrap, range(RECORDS, 2 * RECORDS))
    wait(lambda: everything(2 * RECORDS))
    assert set((readers[0].numbers + readers[1].numbers).values()) == {1}, "nobody was thrown out: nothing came twice"
    readers[0].close()
    wait(lambda: readers[1].partitions == set(range(PARTITIONS)))
    readers[1].close()
    assert [reader.errors for reader in readers] == [[], []]
    assert description(bootstrap).state.name == "EMPTY"
