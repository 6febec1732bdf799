"""Transactional producers of each client, and what read_committed consumers of each then read."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from tests.clients.conftest import ClientBroker
from tests.clients.program_clients import run

PARTITIONS = 4
RECORDS = 40
Values = dict[int, list[bytes]]
"""By partition."""


class Fenced(Exception):
    """Stands for each client's error of a fenced producer."""


class Producer(Protocol):
    """A client's transactional producer; `offsets` are a group's (topic, partition, offset)."""

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: bytes) -> None: ...

    def flush(self) -> None: ...

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None: ...

    def end(self, committed: bool) -> None: ...

    def close(self) -> None: ...


class Confluent:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 1}
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(settings)
        self._producer.init_transactions(30)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        assert self._producer.flush(30) == 0

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        found = [confluent_kafka.TopicPartition(*offset) for offset in offsets]
        self._producer.send_offsets_to_transaction(found, consumer.consumer_group_metadata(), 30)
        consumer.close()

    def end(self, committed: bool) -> None:
        try:
            if committed:
                self._producer.commit_transaction(30)
            else:
                self._producer.abort_transaction(30)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() == confluent_kafka.KafkaError._FENCED:
                raise Fenced from error
            raise

    def close(self) -> None:
        """librdkafka closes with the object; a fenced producer cannot even be flushed."""


class KafkaPython:
    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._producer.send(topic, value, partition=partition)

    def flush(self) -> None:
        self._producer.flush(30)

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        found = {TopicPartition(topic, number): OffsetAndMetadata(offset, "", -1) for topic, number, offset in offsets}
        self._producer.send_offsets_to_transaction(found, group)

    def end(self, committed: bool) -> None:
        try:
            if committed:
                self._producer.commit_transaction()
            else:
                self._producer.abort_transaction()
        except KafkaError as error:
            if "enced" in type(error).__name__ or "Epoch" in type(error).__name__:
                raise Fenced from error
            raise

    def close(self) -> None:
        self._producer.close(timeout=5)


class Aiokafka:
    """Runs on its own loop, and only during calls."""

    def __init__(self, bootstrap: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()
        self._do = self._runner.run
        self._producer = self._do(self._start(bootstrap, transactional_id))

    @staticmethod
    async def _start(bootstrap: str, transactional_id: str) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id)
        await producer.start()
        return producer

    def begin(self) -> None:
        self._do(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: bytes) -> None:
        self._do(self._producer.send(topic, value, partition=partition))

    def flush(self) -> None:
        self._do(self._producer.flush())

    def send_offsets(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> None:
        from aiokafka import TopicPartition as Key

        found = {Key(topic, number): offset for topic, number, offset in offsets}
        self._do(self._producer.send_offsets_to_transaction(found, group))

    def end(self, committed: bool) -> None:
        try:
            self._do(self._producer.commit_transaction() if committed else self._producer.abort_transaction())
        except ProducerFenced as error:
            raise Fenced from error

    def close(self) -> None:
        self._do(self._producer.stop())
        self._runner.close()


CLIENTS: dict[str, Callable[[str, str], Producer]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


@contextmanager
def producing(client: str, bootstrap: str, transactional_id: str) -> Iterator[Producer]:
    producer = CLIENTS[client](bootstrap, transactional_id)
    try:
        yield producer
    finally:
        producer.close()


def transact(producer: Producer, topic: str, name: str, committed: bool, wanted: Values) -> None:
    """One transaction over all partitions; what it commits is added to `wanted`."""
    producer.begin()
    for number in range(RECORDS):
        value = f"{name}-{number}".encode()
        producer.send(topic, number % PARTITIONS, value)
        if committed:
            wanted[number % PARTITIONS].append(value)
    producer.end(committed)


# Readers. Each reads up to the last stable offset.


def read_confluent(bootstrap: str, topic: str, count: int) -> Values:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read: Values = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        error, partition, value = message.error(), message.partition(), message.value()
        assert partition is not None
        if error is None:
            assert value is not None
            read[partition].append(value)
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended.add(partition)
    consumer.close()
    return read


def read_kafka_python(bootstrap: str, topic: str, count: int) -> Values:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None, enable_auto_commit=False
    )
    keys = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(keys)
    consumer.seek_to_beginning(*keys)
    ends = consumer.end_offsets(keys)
    read: Values = defaultdict(list)
    while any(consumer.position(key) < ends[key] for key in keys):
        for key, records in consumer.poll(1000).items():
            read[key.partition] += [record.value for record in records]
    consumer.close()
    return read


def read_aiokafka(bootstrap: str, topic: str, count: int) -> Values:
    async def work() -> Values:
        read: Values = defaultdict(list)
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        async with consumer:
            for _ in range(count):
                record = await asyncio.wait_for(consumer.getone(), 30)
                read[record.partition].append(record.value)
        return read

    return asyncio.run(work())


READERS = {"confluent-kafka": read_confluent, "kafka-python": read_kafka_python, "aiokafka": read_aiokafka}


def last_stable_is_the_end(bootstrap: str, topic: str) -> bool:
    """Whether no partition has an open transaction."""
    consumers = [
        KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=level, group_id=None)
        for level in ("read_committed", "read_uncommitted")
    ]
    keys = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    stable, end = (consumer.end_offsets(keys) for consumer in consumers)
    for consumer in consumers:
        consumer.close()
    return bool(stable == end)


@pytest.mark.parametrize("client", CLIENTS)
def test_committed_records_are_read_and_aborted_records_are_not(
    client: str, client_broker: ClientBroker, new_topic: Callable[[int], str]
) -> None:
    topic, bootstrap = new_topic(PARTITIONS), client_broker.bootstrap
    wanted: Values = defaultdict(list)
    with producing(client, bootstrap, topic) as producer:
        for number, committed in enumerate((True, False, True, False, False, True)):
            transact(producer, topic, f"t{number}", committed, wanted)
    for name, read in READERS.items():
        assert read(bootstrap, topic, sum(map(len, wanted.values()))) == wanted, name
    assert last_stable_is_the_end(bootstrap, topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_producer_with_the_id_fences_the_first_and_aborts_its_transaction(
    client: str, client_broker: ClientBroker, new_topic: Callable[[int], str]
) -> None:
    topic, bootstrap = new_topic(PARTITIONS), client_broker.bootstrap
    wanted: Values = defaultdict(list)
    with producing(client, bootstrap, topic) as first:
        first.begin()
        first.send(topic, 0, b"lost")
        first.flush()
        assert not last_stable_is_the_end(bootstrap, topic)
        with producing(client, bootstrap, topic) as second:
            with pytest.raises(Fenced):
                first.end(True)
            transact(second, topic, "second", True, wanted)
    assert read_confluent(bootstrap, topic, 0) == wanted
    assert last_stable_is_the_end(bootstrap, topic)


@pytest.mark.parametrize("client", CLIENTS)
def test_offsets_take_effect_when_their_transaction_commits(
    client: str, client_broker: ClientBroker, new_topic: Callable[[int], str]
) -> None:
    topic, bootstrap = new_topic(PARTITIONS), client_broker.bootstrap
    with producing(client, bootstrap, topic) as producer:
        for offset, committed in ((3, True), (5, False), (8, True), (9, False)):
            producer.begin()
            producer.send(topic, 0, b"v")
            producer.send_offsets(topic, [(topic, 1, offset)])
            producer.end(committed)
            counts = 3 if offset < 8 else 8
            assert committed_offset(bootstrap, topic, 1) == counts


def committed_offset(bootstrap: str, topic: str, partition: int) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    (found,) = consumer.committed([confluent_kafka.TopicPartition(topic, partition)], 30)
    consumer.close()
    assert found.error is None
    return int(found.offset)


@pytest.mark.parametrize("release", ["3.9.1", "4.4.0"])
def test_kafkas_producer_performance_writes_in_transactions(
    client_broker: ClientBroker, new_topic: Callable[[int], str], java_tools: list[str], release: str
) -> None:
    topic, bootstrap = new_topic(PARTITIONS), client_broker.bootstrap
    arguments = ["--topic", topic, "--num-records", "2000", "--record-size", "20", "--throughput", "-1"]
    arguments += ["--transactional-id", topic, "--transaction-duration-ms", "20"]
    arguments += ["--producer-props", f"bootstrap.servers={bootstrap}", "linger.ms=1"]
    run([*java_tools, "org.apache.kafka.tools.ProducerPerformance", *arguments], variables={"KAFKA_VERSION": release})
    assert sum(map(len, read_confluent(bootstrap, topic, 0).values())) == 2000
    assert last_stable_is_the_end(bootstrap, topic)
