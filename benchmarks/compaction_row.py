"""The row of the log cleaner: its throughput, its cost, and its effect on a concurrent producer.

A compacted topic is filled with records whose keys come from a small set, in segments of 64 MB; nothing is cleaned yet,
since its min.cleanable.dirty.ratio is 1. Then the ratio is lowered, and the clock runs until the broker's
cleaner-offset-checkpoint shows that all sealed segments are clean. The file is polled every 5 ms, as no request returns
this. The cleaner looks for work every 50 ms, on either broker and also before the topic is filled. Meanwhile a client
appends a record of 1 KB to another topic every millisecond or two and measures each append.

A smaller topic is cleaned first and not counted: a JVM that has served for a while has compiled its cleaner. CPU time
is that of the broker and its child processes, from the lowered ratio until the children have ended.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import threading
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks import wire
from benchmarks.contestants import Contestant
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row
from benchmarks.processes import children_of, cpu_seconds_with_children
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import Record, build_batch

MEGABYTE = 1024 * 1024
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SEGMENT_BYTES = 64 * MEGABYTE
BATCH_BYTES = 64 * 1024
DISTINCT_BYTES = 32 * MEGABYTE
WARM_UP_MEGABYTES = 256
CALM_S = 5
"""Duration of appends before the clean, for comparison; meanwhile the broker flushes its sealed segments."""
GIVE_UP_S = 600
CHILDREN_END_S = 20
_numbers = itertools.count(1)


class Clean(NamedTuple):
    """The cost of cleaning `size` bytes, and the latency of appends meanwhile and before."""

    size: int
    seconds: float
    cpu_seconds: float
    p99_ms: float
    p99_before_ms: float


class Compaction(Row):
    """Cleans `megabytes` of records with `keys` different keys."""

    needs_warm_memory = True
    needs_fresh_broker = True

    def __init__(self, name: str, record_bytes: int, megabytes: int, keys: int) -> None:
        self.name = name
        self.metrics = (
            Metric(name, "MB/s", MORE),
            Metric(f"{name}: CPU", "s/GB", LESS),
            Metric(f"{name}: produce p99 meanwhile", "ms", LESS),
            Metric(f"{name}: produce p99 before", "ms", LESS, None),
        )
        self.record_bytes = record_bytes
        self.megabytes = megabytes
        self.keys = keys
        self._requests: list[bytes] = []

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        wire.create_topic(contestant.port, "beside")
        alter(contestant.port, BROKER_RESOURCE, "", {"log.cleaner.backoff.ms": "50"})
        self._clean(contestant, WARM_UP_MEGABYTES)
        clean = self._clean(contestant, self.megabytes)
        megabytes_per_second = clean.size / MEGABYTE / clean.seconds
        values = (megabytes_per_second, clean.cpu_seconds / (clean.size / 2**30), clean.p99_ms, clean.p99_before_ms)
        return {
            metric.name: Reading(value, clean.cpu_seconds, clean.seconds, clean.size)
            for metric, value in zip(self.metrics, values, strict=True)
        }

    def _clean(self, contestant: Contestant, megabytes: int) -> Clean:
        """Fills a topic and measures its cleaning."""
        topic = f"compaction-{next(_numbers)}"
        wire.create_topic(contestant.port, topic)
        settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), "min.cleanable.dirty.ratio": "1"}
        alter(contestant.port, TOPIC_RESOURCE, topic, settings)
        self._fill(contestant.port, topic, megabytes)
        folder = contestant.directory / "data" / f"{topic}-0"
        os.sync()  # excludes writing the filled topic from the measurement
        sealed = sorted(folder.glob("*.log"))
        size = sum(path.stat().st_size for path in sealed[:-1])
        with Producing(contestant.port) as before:
            time.sleep(CALM_S)
        with Producing(contestant.port) as beside:
            used = cpu_seconds_with_children(contestant.pid)
            begin = time.perf_counter()
            alter(contestant.port, TOPIC_RESOURCE, topic, {"min.cleanable.dirty.ratio": "0.01"})
            until_clean(folder.parent, topic, int(sealed[-1].stem))
            seconds = time.perf_counter() - begin
        until_childless(contestant.pid)  # a child's CPU time counts once it has been waited for
        used = cpu_seconds_with_children(contestant.pid) - used
        return Clean(size, seconds, used, beside.p99_ms, before.p99_ms)

    def _fill(self, port: int, topic: str, megabytes: int) -> None:
        if not self._requests:
            self._requests = list(self._built())
        frames = [wire.framed(produce_request(topic, records), 7) for records in self._requests]
        sent = 0
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            while sent < megabytes * MEGABYTE:
                for frame in frames:
                    connection.sendall(frame)
                    wire.receive(connection)
                    sent += len(frame)

    def _built(self) -> list[bytes]:
        source = random.Random(1)
        value = source.randbytes(self.record_bytes - 24)
        count = BATCH_BYTES // self.record_bytes
        now_ms = int(time.time() * 1000)
        return [
            build_batch(
                [Record(number, now_ms, b"key%013d" % source.randrange(self.keys), value) for number in range(count)]
            )
            for _ in range(DISTINCT_BYTES // BATCH_BYTES)
        ]


class Producing:
    """A client that appends one record of 1 KB after another during the `with` block."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.times_ms: list[float] = []

    def __enter__(self) -> Producing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        frame = wire.framed(
            produce_request("beside", build_batch([Record(0, int(time.time() * 1000), b"k", b"v" * 1000)])), 7
        )
        with wire.connected(self._port) as connection:
            while not self._stop.is_set():
                begin = time.perf_counter()
                connection.sendall(frame)
                wire.receive(connection)
                self.times_ms.append((time.perf_counter() - begin) * 1000)
                time.sleep(0.001)

    @property
    def p99_ms(self) -> float:
        return sorted(self.times_ms)[len(self.times_ms) * 99 // 100]


def produce_request(topic: str, records: bytes) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    )


def alter(port: int, resource_type: int, name: str, settings: dict[str, str]) -> None:
    """Changes settings. Raises RuntimeError."""
    items = [
        IncrementalAlterConfigsRequest.AlterableConfig(name=setting, config_operation=0, value=value)
        for setting, value in settings.items()
    ]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=items
    )
    answer = wire.call(port, IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse, 0)
    if answer.responses[0].error_code:
        raise RuntimeError(f"{name}: {answer.responses[0].error_message}")


def until_clean(directory: Path, topic: str, offset: int) -> None:
    """Waits until the checkpoint reaches `offset`. Raises TimeoutError."""
    give_up = time.monotonic() + GIVE_UP_S
    checkpoint = directory / "cleaner-offset-checkpoint"
    while time.monotonic() < give_up:
        lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
        if f"{topic} 0 {offset}" in lines:
            return
        time.sleep(0.005)
    raise TimeoutError(f"{topic} is not clean up to {offset} within {GIVE_UP_S} s")


def until_childless(pid: int) -> None:
    """Waits until all children of a process have ended. Raises TimeoutError."""
    give_up = time.monotonic() + CHILDREN_END_S
    while children_of(pid):
        if time.monotonic() > give_up:
            raise TimeoutError(f"children of process {pid} still run after {CHILDREN_END_S} s")
        time.sleep(0.005)
