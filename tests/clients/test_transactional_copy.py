"""Consume, transform, produce, send offsets, commit: killed repeatedly, each input is copied once and in order."""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import IsolationLevel
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members.watch import Watch, until
from tests.clients.transactions import CopierProcess, Numbers, ends, read_committed
from tests.sequences import assert_same
from tests.soak import rounds
from tests.spawned_broker import SpawnedBroker, free_port, start_broker

ROUNDS = rounds(4, in_soak=24)
PARTITIONS = 4
PER_SECOND = 1_000
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "log.segment.bytes": "262144",
    "group.initial.rebalance.delay.ms": "0",
}


class KilledBroker:
    """A broker that is restarted after each kill, or an external broker that is left alone."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir, self.port = data_dir, free_port()
        self.bootstrap = os.environ.get("ODRADEK_CLIENTS_AGAINST", f"127.0.0.1:{self.port}").partition("=")[0]
        self.process: SpawnedBroker | None = None
        self._start()

    def _start(self) -> None:
        if "ODRADEK_CLIENTS_AGAINST" not in os.environ:
            self.process = start_broker(self.data_dir, SETTINGS, port=self.port)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.close()
            self._start()

    def stop(self) -> None:
        if self.process is not None:
            assert self.process.terminate() == 0, self.process.log_text()[-3000:]

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KilledBroker]:
    broker = KilledBroker(tmp_path / "data")
    yield broker
    broker.end()


@pytest.fixture(params=["confluent", "java"])
def copier(
    request: pytest.FixtureRequest, broker: KilledBroker, java_programs: list[str], tmp_path: Path
) -> Iterator[CopierProcess]:
    """A copier from `in-KIND` to `out-KIND`, not yet started."""
    kind = request.param
    name = f"{kind}-{random.randrange(1 << 40)}"
    if kind == "java":
        program = [*java_programs, "odradek.Copier"]
    else:
        program = [sys.executable, "-m", "tests.clients.copiers.confluent_copier"]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(f"{way}-{name}", PARTITIONS, 1) for way in ("in", "out")]
    for future in admin.create_topics(topics).values():
        future.result(20)
    where = [broker.bootstrap, f"in-{name}", f"out-{name}", f"copiers-{name}", f"copier-{name}"]
    copier = CopierProcess([*program, *where], tmp_path / "copier.log")
    yield copier
    with contextlib.suppress(AssertionError):
        copier.kill()


@pytest.mark.soak("24 kills of a copier, its broker or both", minutes=4)
@pytest.mark.timeout(900)
def test_a_repeatedly_killed_copier_copies_each_record_once_and_in_order(
    broker: KilledBroker, copier: CopierProcess
) -> None:
    source_topic, target_topic, group = copier.command[-4:-1]
    chance = random.Random(3)
    copier.start()
    numbers = Numbers(broker.bootstrap, source_topic, PARTITIONS, PER_SECOND)
    for round_number in range(ROUNDS):
        copier.until_it_works()
        threading.Event().wait(chance.random() / 2)
        if round_number % 4 != 1:
            copier.kill()
        if round_number % 4 != 0:
            broker.kill()
        if round_number % 4 != 1:
            copier.start()
    copier.until_it_works()
    count = numbers.finish()
    watch = Watch(broker.bootstrap, group, source_topic, PARTITIONS)
    watch.until_all_is_committed()
    until(lambda: lag(broker.bootstrap, target_topic), lambda lags: not any(lags.values()), "transactions that end")
    read = read_committed(broker.bootstrap, target_topic, PARTITIONS)
    for partition in range(PARTITIONS):
        wanted = [f"copy of {value}" for value in range(partition, count, PARTITIONS)]
        assert_same(read[partition], wanted)
    copier.kill()
    broker.stop()


def lag(bootstrap: str, topic: str) -> dict[int, int]:
    """By how much the last stable offset is behind the log's end."""
    whole = ends(bootstrap, topic, PARTITIONS, IsolationLevel.READ_UNCOMMITTED)
    stable = ends(bootstrap, topic, PARTITIONS, IsolationLevel.READ_COMMITTED)
    return {partition: whole[partition] - stable[partition] for partition in whole}
