"""Idempotent producers with acks=all that write through faults, and what a reader must find of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import confluent_kafka

from tests.clients.transactions import read_committed
from tests.sequences import assert_same

ONE_IN_FLIGHT = {"max.in.flight": 1}
"""With several requests in flight, librdkafka itself doubles records, of Apache Kafka, too. If the first request comes
before a broker knows that it leads, and the second after that, the second is out of order. librdkafka then begins a
new producer epoch, and sends again what other partitions may have stored already. Java's producer does not.
"""
SETTINGS = {
    **ONE_IN_FLIGHT,
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "message.timeout.ms": 120_000,
    "log_level": 0,
}
MOST_UNANSWERED = 2000


class Acknowledged(NamedTuple):
    """One record that the cluster has acknowledged, and when.

    The offset is None if librdkafka got no answer for the record, but one for a later record: the brokers append in
    order, so it concludes that they have this one, too.
    """

    offset: int | None
    number: int
    at: float


class Writer:
    """Writes 0, 1, 2, ... to each partition of a topic, at about `per_second` in all, until `finish`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        per_second: int = 1000,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.topic, self.partitions = topic, partitions
        self.acknowledged: dict[int, list[Acknowledged]] = {partition: [] for partition in range(partitions)}
        self.failures: list[str] = []
        self.count = 0
        """How many were written to each partition."""
        self._pause_s = partitions / per_second
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **SETTINGS, **(settings or {})})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < MOST_UNANSWERED:
                for partition in range(self.partitions):
                    self._producer.produce(
                        self.topic, b"%d" % self.count, partition=partition, on_delivery=self._delivered
                    )
                self.count += 1
            self._producer.poll(self._pause_s)

    def _delivered(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert isinstance(value, bytes)
        if error is not None:
            self.failures.append(str(error))
            return
        self.acknowledged[partition].append(Acknowledged(offset, int(value), time.monotonic()))

    def until_acknowledged(self, more: int = 100, patience_s: float = 60) -> None:
        """Waits until `more` records of each partition that are written from now on are acknowledged."""
        wanted = self.count + more
        give_up = time.monotonic() + patience_s
        while min(each[-1].number if each else -1 for each in self.acknowledged.values()) < wanted:
            assert self._thread.is_alive(), "the writer has failed"
            assert time.monotonic() < give_up, f"not acknowledged for {patience_s} s; failures: {self.failures[:3]}"
            time.sleep(0.01)

    def longest_pause(self, partition: int, since: float) -> float:
        """Returns the most seconds between two acknowledgements for a partition that came after `since`."""
        times = [since, *(each.at for each in self.acknowledged[partition] if each.at > since)]
        return max(after - before for before, after in pairwise(times))

    def stop(self) -> None:
        """Writes no more."""
        self._stop.set()

    def finish(self) -> None:
        """Stops; returns when all that was written is acknowledged."""
        self.stop()
        self._thread.join(30)
        assert self._producer.flush(120) == 0
        assert not self.failures, self.failures[:3]

    def assert_written_once_and_in_order(self, bootstrap: str, security: Mapping[str, object] | None = None) -> None:
        """Reads the topic: each record is there once, in order, at the offset that was acknowledged."""
        read = read_committed(bootstrap, self.topic, self.partitions, security)
        for partition in range(self.partitions):
            numbers = [int(value) for value in read[partition]]
            assert_same(numbers, range(self.count), f"{self.topic}-{partition}")
            self.assert_acknowledged_at(partition, numbers)
            assert len(self.acknowledged[partition]) == self.count

    def assert_acknowledged_at(self, partition: int, numbers: list[int]) -> None:
        """Each record of a partition is at the offset that was acknowledged. `numbers`: what is stored, by offset."""
        for offset, number, _ in self.acknowledged[partition]:
            assert offset is None or numbers[offset] == number, f"{number} was acknowledged at {offset}"


def percentile(values: list[float], share: float) -> float:
    """The smallest value that is not exceeded by `share` of them."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
