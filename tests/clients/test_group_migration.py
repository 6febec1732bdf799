"""Ten consumers of a group change their protocol one by one, and back, under load: each record is read once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members.watch import Watch, until, until_coordinators
from tests.clients.test_consumer_groups import GROUP, Reader, description
from tests.spawned_broker import free_port, start_broker

TOPIC = "numbers"
PARTITIONS = 20
READERS = 10
EAGER = "range"
COOPERATIVE = "cooperative-sticky"
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.assignment.interval.ms": "100",
}
BATCH = 20
PAUSE_S = 0.05


class CarefulReader(Reader):
    """Commits what it has read before it gives partitions up."""

    def __init__(self, bootstrap: str, name: str, **more: Any) -> None:
        self._is_eager = more.get("partition.assignment.strategy") == EAGER
        super().__init__(bootstrap, name, **{"enable.auto.commit": False, **more})

    def _got(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._is_eager:
            consumer.assign(partitions)
            self.partitions = {each.partition for each in partitions}
        else:
            super()._got(consumer, partitions)

    def _gave_up(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        read = [each for each in consumer.position(partitions) if each.offset >= 0]
        try:
            committed = consumer.commit(offsets=read, asynchronous=False) if read else []
            self.errors += [str(each) for each in committed or [] if each.error]
        except KafkaException as error:
            self.errors.append(str(error))
        if self._is_eager:
            consumer.unassign()
            self.partitions = set()
        else:
            super()._gave_up(consumer, partitions)


class Load:
    """Produces numbers from 0 on in a thread, until `end`. Idempotent: the broker may die with a response unsent."""

    def __init__(self, bootstrap: str) -> None:
        self.produced = 0
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._thread.start()

    def _produce(self) -> None:
        while not self._is_over.is_set():
            for number in range(self.produced, self.produced + BATCH):
                self._producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
            self.produced += BATCH
            self._producer.poll(0)
            time.sleep(PAUSE_S)

    def end(self) -> int:
        """Returns how many records there are."""
        self._is_over.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0
        return self.produced


def read(readers: Sequence[Reader]) -> Counter[int]:
    numbers: Counter[int] = Counter()
    for reader in readers:
        numbers.update(reader.numbers.copy())
    return numbers


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("strategy", "dies"), [(EAGER, False), (COOPERATIVE, False), (EAGER, True)])
def test_a_rolling_change_loses_nothing_and_reads_nothing_twice(strategy: str, dies: bool, tmp_path: Path) -> None:
    """The broker may die amid each direction; members and their partitions are known after it."""
    port = free_port()
    broker = start_broker(tmp_path / "data", SETTINGS, port=port)
    bootstrap = broker.bootstrap
    until_coordinators(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    Watch(bootstrap, GROUP, TOPIC, PARTITIONS).commit_the_start()
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 300,
    }
    protocols: dict[str, dict[str, Any]] = {"classic": classic, "consumer": {"group.protocol": "consumer"}}

    everybody: list[Reader] = []

    def born(protocol: str) -> Reader:
        reader = CarefulReader(bootstrap, f"{protocol}-{len(everybody)}", **protocols[protocol])
        everybody.append(reader)
        return reader

    def until_shared(readers: Sequence[Reader]) -> None:
        def shares() -> list[list[int]]:
            return [sorted(reader.partitions) for reader in readers]

        def are_all(found: list[list[int]]) -> bool:
            return all(found) and sorted(chain(*found)) == list(range(PARTITIONS))

        until(shares, are_all, "partitions for each reader")

    readers = [born("classic") for _ in range(READERS)]
    until_shared(readers)
    load = Load(bootstrap)
    kinds = []
    for protocol in ("consumer", "classic"):
        for number in range(READERS):
            readers[number].close()
            readers[number] = born(protocol)
            until_shared(readers)
            if dies and number == READERS // 2:
                broker.kill()
                broker.close()
                broker = start_broker(tmp_path / "data", SETTINGS, port=port)
            if number in (0, READERS // 2, READERS - 1):
                found = description(bootstrap)
                kinds.append((found.type.name, len(found.members)))
    produced = load.end()
    until(lambda: len(read(everybody)), lambda count: count >= produced, f"{produced} records")
    for reader in readers:
        reader.close()
    assert [each.errors for each in everybody if each.errors] == []
    numbers = read(everybody)
    assert (len(numbers), set(numbers.values())) == (produced, {1})
    assert kinds == [("CONSUMER", READERS)] * 5 + [("CLASSIC", READERS)]
    broker.terminate()
    broker.close()
