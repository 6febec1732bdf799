"""Rows of the coordinators: many members, commits, transactions."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from benchmarks import java_tools, wire
from benchmarks.contestants import Contestant
from benchmarks.group_load import TOPIC
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row, TakesNoPart
from benchmarks.processes import cpu_seconds
from benchmarks.traffic_rows import CpuMeter
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest

_numbers = itertools.count(1)


@contextmanager
def load(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Runs benchmarks.group_load as a process. Raises RuntimeError if it fails."""
    command = [sys.executable, "-m", "benchmarks.group_load", *map(str, arguments)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            if process.poll() is None and sys.exc_info()[0] is not None:
                process.kill()
    if process.returncode:
        raise RuntimeError(f"the load ended with status {process.returncode}")


def next_of(lines: IO[str] | None) -> dict[str, Any]:
    """Returns the next line of the load's output; RuntimeError if it has ended."""
    assert lines is not None
    line = lines.readline()
    if not line:
        raise RuntimeError("the load ended early")
    parsed: dict[str, Any] = json.loads(line)
    return parsed


def go_on(crowd: subprocess.Popen[str]) -> None:
    """Lets a crowd do what comes next."""
    assert crowd.stdin is not None
    crowd.stdin.write("\n")
    crowd.stdin.flush()


class Members(Row):
    """1,000 members join 100 groups at once, stay with a heartbeat every three seconds, and leave at once.

    The broker has served a first set of such members before.
    """

    name = "members"
    metrics = (
        Metric("1,000 members join: until stable", "ms", LESS),
        Metric("1,000 members stay: CPU while idle", "ms/s", LESS),
        Metric("1,000 members leave", "ms", LESS),
    )
    needs_fresh_broker = True

    def __init__(self, groups: int = 100, members: int = 10, idle_s: float = 15) -> None:
        self.groups, self.members, self.idle_s = groups, members, idle_s

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        self._crowd(contestant, 1.0)
        return self._crowd(contestant, self.idle_s)

    def _crowd(self, contestant: Contestant, idle_s: float) -> dict[str, Reading]:
        count = self.groups * self.members
        before = cpu_seconds(contestant.pid)
        with load("members", contestant.port, self.groups, self.members) as crowd:
            stable_ms = next_of(crowd.stdout)["stable_ms"]
            joining = cpu_seconds(contestant.pid) - before
            next_of(crowd.stdout)  # all members have reached the slow heartbeat interval
            before = cpu_seconds(contestant.pid)
            time.sleep(idle_s)  # the measured period: only heartbeats
            idle = cpu_seconds(contestant.pid) - before
            before = cpu_seconds(contestant.pid)
            go_on(crowd)
            left_ms = next_of(crowd.stdout)["left_ms"]
            leaving = cpu_seconds(contestant.pid) - before
        return {
            self.metrics[0].name: Reading(stable_ms, joining, stable_ms / 1000, count),
            self.metrics[1].name: Reading(idle * 1000 / idle_s),
            self.metrics[2].name: Reading(left_ms, leaving, left_ms / 1000, count),
        }


class Consumers(Row):
    """1,000 members of the consumer protocol (KIP-848) join one group at once, which has as many partitions, stay with
    a heartbeat every five seconds, are replaced one by one, and leave at once.

    The broker has served a first set of such members before.
    """

    name = "consumers"
    metrics = (
        Metric("1,000 consumers join a group: until balanced", "ms", LESS),
        Metric("1,000 consumers stay: CPU while idle", "ms/s", LESS),
        Metric("one of 1,000 consumers leaves, one joins", "ms", LESS),
        Metric("1,000 consumers leave", "ms", LESS),
    )
    needs_fresh_broker = True

    def __init__(self, members: int = 1000, changes: int = 5, idle_s: float = 15) -> None:
        self.members, self.changes, self.idle_s = members, changes, idle_s

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        expect_consumer_protocol(contestant)
        wire.create_topic(contestant.port, TOPIC, self.members)
        self._crowd(contestant, 1, 1.0)
        return self._crowd(contestant, self.changes, self.idle_s)

    def _crowd(self, contestant: Contestant, changes: int, idle_s: float) -> dict[str, Reading]:
        meter = CpuMeter(contestant.pid)
        meter.start()
        with load("consumers", contestant.port, self.members, changes) as crowd:
            stable_ms = next_of(crowd.stdout)["stable_ms"]
            joining = meter.used()
            next_of(crowd.stdout)
            meter.start()
            time.sleep(idle_s)
            idle = meter.used()
            meter.start()
            go_on(crowd)
            changed_ms = next_of(crowd.stdout)["changed_ms"]
            changing = meter.used()
            meter.start()
            go_on(crowd)
            left_ms = next_of(crowd.stdout)["left_ms"]
            leaving = meter.used()
        return {
            self.metrics[0].name: Reading(stable_ms, joining, stable_ms / 1000, self.members),
            self.metrics[1].name: Reading(idle * 1000 / idle_s),
            self.metrics[2].name: Reading(changed_ms, changing, changed_ms / 1000, changes),
            self.metrics[3].name: Reading(left_ms, leaving, left_ms / 1000, self.members),
        }


def expect_consumer_protocol(contestant: Contestant) -> None:
    """Raises TakesNoPart if the broker does not know the consumer protocol."""
    key = ConsumerGroupHeartbeatRequest.__schema__.api_key
    assert key is not None
    if wire.highest_version(contestant.port, key) < 0:
        raise TakesNoPart("this version has no consumer protocol")


class Commits(Row):
    """16 members of 16 groups commit four partitions each, one commit after the other.

    Those of the consumer protocol name topics by their ids (OffsetCommit 10).
    """

    members, partitions = 16, 4

    def __init__(self, commits: int, *, of_consumers: bool = False) -> None:
        self.commits, self._of_consumers = commits, of_consumers
        self.name = "commits of consumers" if of_consumers else "commits"
        self.metrics = (Metric("offset commits of consumers" if of_consumers else "offset commits", "1/s", MORE),)

    def warm_up(self, contestant: Contestant) -> None:
        if not wire.metadata(contestant.port, [TOPIC]).topics[0].partitions:
            wire.create_topic(contestant.port, TOPIC, self.partitions)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        if self._of_consumers:
            expect_consumer_protocol(contestant)
        meter = CpuMeter(contestant.pid)
        kind = "consumer-commits" if self._of_consumers else "commits"
        with load(kind, contestant.port, self.members, self.partitions, self.commits) as load_process:
            next_of(load_process.stdout)
            meter.start()
            done = next_of(load_process.stdout)
            used = meter.used()
        return {
            self.metrics[0].name: Reading(done["commits"] / done["seconds"], used, done["seconds"], done["commits"])
        }


class Transactions(Row):
    """200 transactions a second of 10 records over four partitions, by ten of Kafka's Java producers.

    Latencies count from a transaction's due time, so that they grow if a broker cannot keep up."""

    name = "transactions"
    metrics = (
        Metric("200 transactions/s: latency p50", "us", LESS),
        Metric("200 transactions/s: latency p99", "us", LESS),
    )
    partitions, per_second, producers = 4, 200, 10

    def __init__(self, transactions: int) -> None:
        self.transactions = transactions

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        topic = f"transactions-{next(_numbers)}"
        wire.create_topic(contestant.port, topic, self.partitions)
        meter = CpuMeter(contestant.pid)
        sizes = (self.partitions, self.per_second, self.transactions, self.transactions // 4, self.producers)
        done = java_tools.probe(
            *(contestant.bootstrap, topic, *map(str, sizes)), when_measuring=meter.start, program="Transactions"
        )
        used = meter.used()
        wire.delete_topic(contestant.port, topic)
        return {
            metric.name: Reading(value, used, 0, self.transactions)
            for metric, value in zip(self.metrics, (done["p50_us"], done["p99_us"]), strict=True)
        }
