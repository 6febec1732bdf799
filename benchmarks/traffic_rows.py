"""Rows of traffic: Kafka's ProducerPerformance, consuming and end-to-end latency with the Java probe, fan-out."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

from benchmarks import fan_out, java_tools, wire
from benchmarks.contestants import Contestant
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row, TakesNoPart
from benchmarks.processes import cpu_seconds
from benchmarks.secured import PLAINTEXT, client_of
from odradek.protocol.api_keys import ApiKey

MEGABYTE = 1024 * 1024
_numbers = itertools.count(1)


class Produce(Row):
    """ProducerPerformance at full speed, into a new topic with one partition."""

    needs_warm_memory = True

    def __init__(
        self,
        name: str,
        record_bytes: int,
        records: int,
        settings: str,
        wanted: float = 1.0,
        protocol: str = PLAINTEXT,
        secured: str = "",
    ) -> None:
        """`protocol`: that of the listener to which the producer connects."""
        self.name = name
        self.protocol = protocol
        self.secured = secured
        self.metrics = (Metric(name, "MB/s", MORE, wanted),)
        self.record_bytes = record_bytes
        self.records = records
        self.settings = settings.split()

    def warm_up(self, contestant: Contestant) -> None:
        self._run(contestant, max(self.records // 5, 1))

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        return {self.name: self._run(contestant, self.records)}

    def _run(self, contestant: Contestant, records: int) -> Reading:
        topic = f"produce-{next(_numbers)}"
        wire.create_topic(contestant.port, topic)
        client = client_of(contestant, self.protocol)
        before = cpu_seconds(contestant.pid)
        done = java_tools.produce(client.bootstrap, topic, records, self.record_bytes, self.settings, client.config)
        used = cpu_seconds(contestant.pid) - before
        wire.delete_topic(contestant.port, topic)
        return Reading(done.megabytes_per_second, used, done.records / done.records_per_second, done.records)


class Consume(Row):
    """Reads a topic of 1 KB records from its beginning, all from the page cache, after one warm-up pass."""

    needs_warm_memory = True
    record_bytes = 1000

    def __init__(self, records: int, name: str = "consume", protocol: str = PLAINTEXT, secured: str = "") -> None:
        """`protocol`: that of the listener to which the consumer connects."""
        self.name = name
        self.metrics = (Metric(name, "MB/s", MORE),)
        self.protocol = protocol
        self.secured = secured
        self.records = records
        self.topic = f"consume-{next(_numbers)}"

    def warm_up(self, contestant: Contestant) -> None:
        wire.create_topic(contestant.port, self.topic)
        settings = ["acks=1", "batch.size=65536", "linger.ms=5"]
        java_tools.produce(contestant.bootstrap, self.topic, self.records, self.record_bytes, settings)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        client = client_of(contestant, self.protocol)
        meter = CpuMeter(contestant.pid)
        done = java_tools.probe(
            *("consume", client.bootstrap, self.topic, str(self.records), "2"),
            when_measuring=meter.start,
            config=client.config,
        )
        speed = done["bytes"] / MEGABYTE / done["seconds"]
        return {self.name: Reading(speed, meter.used(), done["seconds"], done["records"])}


class Latency(Row):
    """From before a record is sent with acks=all until it has been consumed, one record at a time."""

    name = "latency"
    metrics = (
        Metric("end to end p50", "us", LESS),
        Metric("end to end p99", "us", LESS),
        Metric("end to end p99.9", "us", LESS),
    )
    record_bytes = 100

    def __init__(self, messages: int) -> None:
        self.messages = messages

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        topic = f"latency-{next(_numbers)}"
        wire.create_topic(contestant.port, topic)
        meter = CpuMeter(contestant.pid)
        sizes = (str(self.messages), str(self.messages // 5), str(self.record_bytes))
        done = java_tools.probe("latency", contestant.bootstrap, topic, *sizes, when_measuring=meter.start)
        wire.delete_topic(contestant.port, topic)
        used = meter.used()
        values = (done["p50_us"], done["p99_us"], done["p999_us"])
        return {
            metric.name: Reading(value, used, 0, self.messages)
            for metric, value in zip(self.metrics, values, strict=True)
        }


class FanOut(Row):
    """One producer, CONSUMERS waiting consumers: from before a record is sent until each consumer has received it.

    The clients are one separate process (benchmarks.fan_out). An operation is a record received by one consumer.
    """

    consumers = 200

    def __init__(self, records: int, *, by_id: bool = False) -> None:
        """`by_id`: the consumers name the topic by its id (KIP-516)."""
        self.records = records
        self.by_id = by_id
        self.name = "fan-out by topic id" if by_id else "fan-out"
        self.metrics = (
            Metric(f"{self.name} to 200 consumers p50", "us", LESS),
            Metric(f"{self.name} to 200 consumers p99", "us", LESS),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        if self.by_id and wire.highest_version(contestant.port, ApiKey.FETCH) < fan_out.BY_ID:
            raise TakesNoPart("it does not fetch by topic ids")
        topic = f"fan-out-{next(_numbers)}"
        wire.create_topic(contestant.port, topic)
        sizes = (str(self.consumers), str(self.records), str(max(self.records // 5, 1)))
        command = [sys.executable, "-m", "benchmarks.fan_out", str(contestant.port), topic, *sizes]
        command += ["--by-id"] if self.by_id else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as clients:
            assert clients.stdout is not None
            clients.stdout.readline()
            meter = CpuMeter(contestant.pid)
            done = json.loads(clients.stdout.readline())
            used = meter.used()
        wire.delete_topic(contestant.port, topic)
        values = (done["p50_us"], done["p99_us"])
        return {
            metric.name: Reading(value, used, 0, done["deliveries"])
            for metric, value in zip(self.metrics, values, strict=True)
        }


class CpuMeter:
    """CPU time of a process from `start` to `used`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.before = cpu_seconds(pid)

    def start(self) -> None:
        self.before = cpu_seconds(self.pid)

    def used(self) -> float:
        return cpu_seconds(self.pid) - self.before
