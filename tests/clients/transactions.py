"""Copying in transactions while the copier and the broker are killed, and what a read_committed reader then sees."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.clients.members.watch import until

ROOT = Path(__file__).parents[2]
END_OF_PARTITION = confluent_kafka.KafkaError._PARTITION_EOF


@dataclass(slots=True)
class CopierProcess:
    """A copier that is started again after each kill. ``lines`` has what all its processes printed."""

    command: Sequence[str]
    log: Path
    lines: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    reader: threading.Thread | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True, cwd=ROOT
            )
        self.reader = threading.Thread(target=self._read, args=(self.process,))
        self.reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            self.lines.extend(line.strip() for line in lines)

    def committed(self) -> list[str]:
        return [line for line in self.lines if line.startswith("committed")]

    def until_it_works(self) -> None:
        """Waits for a few more transactions."""
        before = len(self.committed())
        until(lambda: len(self.committed()), lambda now: now >= before + 3, f"transactions; it said {self.lines[-5:]}")

    def kill(self) -> None:
        assert self.process is not None
        assert self.reader is not None
        assert self.process.poll() is None, f"it has ended by itself: {self.log.read_text()[-3000:]}"
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)
        self.reader.join(20)


class Numbers:
    """Writes 0, 1, 2, ... at about `per_second` until `finish`, each to the partition of its remainder."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        per_second: int,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.topic, self.partitions, self.at_once = topic, partitions, per_second // 50
        self.failures: list[object] = []
        self.count = 0
        fixed = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = confluent_kafka.Producer({**fixed, **(settings or {})})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="numbers")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            for _ in range(self.at_once):
                value, partition = b"%d" % self.count, self.count % self.partitions
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                self.count += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self) -> None:
        """Writes no more."""
        self._stop.set()

    def finish(self) -> int:
        """Stops; returns the number of records when all are acknowledged."""
        self.stop()
        self._thread.join(30)
        assert self._producer.flush(120) == 0
        assert not self.failures, self.failures[:3]
        return self.count


def read_committed(
    bootstrap: str, topic: str, partitions: int, security: Mapping[str, object] | None = None
) -> dict[int, list[str]]:
    """All that a read_committed consumer reads of each partition up to its end, in order. ``security``: how librdkafka
    connects, if not in plain text."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 10,
            **(security or {}),
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    read: dict[int, list[str]] = defaultdict(list)
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message = consumer.poll(20)
        assert message is not None, f"nothing more; ends of {sorted(at_end)} reached"
        partition = message.partition()
        assert partition is not None
        error = message.error()
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            read[partition].append(value.decode())
        else:
            assert error.code() == END_OF_PARTITION, error
            at_end.add(partition)
    consumer.close()
    return read


def until_no_transaction_is_open(bootstrap: str, topic: str, partitions: int) -> None:
    """Waits until the last stable offset of each partition is its end."""

    def are_at_their_ends() -> bool:
        levels = (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
        whole, stable = (_ends(bootstrap, topic, partitions, level) for level in levels)
        return whole == stable

    until(are_at_their_ends, bool, "transactions that end")


def _ends(bootstrap: str, topic: str, partitions: int, isolation: IsolationLevel) -> dict[int, int]:
    """The latest offset of each partition: the last stable one for READ_COMMITTED, else the high watermark."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    futures = admin.list_offsets(wanted, isolation_level=isolation)
    return {p.partition: future.result(20).offset for p, future in futures.items()}
