"""Rows of the pipeline: Spark reads a topic of JSON orders of some 140 bytes over four partitions, from each broker.

Spark (local[2]) runs on the same two cores as the broker; CPU seconds are those of both. "defaults" are the connector's
own settings, the other rows have those of `pipeline.kafka.connector.TUNED`. The plain job is what the ingest is
compared with: it judges nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import wire
from benchmarks.contestants import Contestant
from benchmarks.java_tools import Unavailable
from benchmarks.measurement import LESS, MORE, Metric, Reading, Row
from benchmarks.processes import cpu_seconds, cpu_seconds_of_session
from odradek.pipeline.demo.shop import SCHEMA

PARTITIONS = 4
DEFAULTS = {
    "max.poll.records": "500",
    "max.partition.fetch.bytes": "1048576",
    "fetch.max.bytes": "52428800",
    "receive.buffer.bytes": "65536",
}
"""The connector's values when nothing is set."""
BATCH = 250_000
_numbers = itertools.count(1)


class SparkWorker:
    """The process that runs Spark, started on first use."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, job: str, settings: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Returns a job's outcome. Raises Unavailable without PySpark, RuntimeError if the job fails."""
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps({"job": job, "settings": dict(settings), **more}) + "\n")
        process.stdin.flush()
        outcome = self._answer(process)
        if "error" in outcome:
            raise RuntimeError(outcome["error"])
        return outcome

    def cpu_seconds(self) -> float:
        """Returns the CPU time of Spark's JVM and its Python processes so far."""
        return cpu_seconds_of_session(self._started().pid)

    def close(self) -> None:
        """Kills the process."""
        process, self._process = self._process, None
        if process is not None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "benchmarks.spark_worker"]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            self._answer(self._process)
        return self._process

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self.close()
            raise Unavailable("Spark does not start; see `odradek pipeline doctor`")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Orders:
    """The topic that all rows read, created once on each broker."""

    def __init__(self, records: int) -> None:
        self.records = records
        self.topic = f"orders-{next(_numbers)}"
        self._filled: set[int] = set()

    def fill(self, contestant: Contestant) -> None:
        """Produces the orders, unless they exist."""
        if contestant.port not in self._filled:
            wire.create_topic(contestant.port, self.topic, PARTITIONS)
            self.produce(contestant, 0, self.records)
            self._filled.add(contestant.port)

    def produce(self, contestant: Contestant, first: int, count: int) -> None:
        """Produces `count` more orders, a millisecond apart."""
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=contestant.bootstrap, linger_ms=1000, batch_size=65536)
        random = Random(first + 1)
        at = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        for number in range(first, first + count):
            producer.send(self.topic, _order(random, number, at + number / 1000), partition=number % PARTITIONS)
        producer.close()


def _order(random: Random, number: int, at: float) -> bytes:
    customer = random.randrange(10_000)
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return (
        f'{{"id":{number},"customer":"customer-{customer:05}","country":"AT","item":"thread spool",'
        f'"quantity":{customer % 7},"amount":{customer / 100},"at":"{when}"}}'
    ).encode()


class PipelineRow(Row):
    """A job over all orders; each reading is one run."""

    def __init__(self, name: str, worker: SparkWorker, orders: Orders, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.metrics = (
            Metric(f"{name}: rows", "rows/s", MORE),
            Metric(f"{name}: broker", "CPU s", LESS),
        )
        self._worker = worker
        self._orders = orders
        self._settings = settings

    def warm_up(self, contestant: Contestant) -> None:
        self._orders.fill(contestant)
        self.run(contestant)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        rows, broker = self.run(contestant)
        return {self.metrics[0].name: rows, self.metrics[1].name: broker}

    def run(self, contestant: Contestant) -> tuple[Reading, Reading]:
        """Returns the rows/s of one run, with the CPU time of Spark and the broker, and the broker's CPU time."""
        spark, broker = self._worker.cpu_seconds(), cpu_seconds(contestant.pid)
        outcome = self._job(contestant)
        spark, broker = self._worker.cpu_seconds() - spark, cpu_seconds(contestant.pid) - broker
        rows, seconds = outcome["rows"], outcome["seconds"]
        if rows != self._orders.records:
            raise RuntimeError(f"{rows} of {self._orders.records} records were read")
        return Reading(rows / seconds, spark + broker, seconds, rows), Reading(broker, broker, seconds, rows)

    def settings(self, contestant: Contestant) -> dict[str, Any]:
        """Returns the pipeline's settings for this broker."""
        lake = contestant.directory / "lake"
        return {
            "name": "bench",
            "lake": str(lake),
            "bootstrap_server": contestant.bootstrap,
            "topics": [self._orders.topic],
            "schema": SCHEMA,
            "event_time": "at",
            **self._settings,
        }

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        raise NotImplementedError


class ReadTopic(PipelineRow):
    """The connector alone. Such a short run is a third slower on a JVM that is not warmed up enough."""

    def warm_up(self, contestant: Contestant) -> None:
        super().warm_up(contestant)
        self.run(contestant)
        self.run(contestant)

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        return self._worker.ask("read topic", self.settings(contestant))


class PlainJob(PipelineRow):
    """The job that people write without a pipeline: the connector, `from_json` and Spark's Parquet writer."""

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        return self._worker.ask("plain job", self.settings(contestant))


class Ingest(PipelineRow):
    """The ingest job into a new lake. Also reports files per batch, and the files that `compact` leaves."""

    def __init__(self, name: str, worker: SparkWorker, orders: Orders, settings: Mapping[str, Any]) -> None:
        super().__init__(name, worker, orders, settings)
        self._batches = -(-orders.records // settings.get("max_offsets_per_trigger", orders.records))
        self.metrics += (Metric(f"{name}: files", "a batch", LESS, None),)
        if settings["sink"] == "delta":
            self.metrics += (Metric(f"{name}: compacted", "files", LESS, None),)
        self._files = 0

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        outcome = self._worker.ask("ingest", self.settings(contestant), records=self._orders.records)
        self._files = outcome["files"]
        return outcome

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        readings = super().measure(contestant)
        readings[f"{self.name}: files"] = Reading(self._files / self._batches)
        if self._settings["sink"] == "delta":
            outcome = self._worker.ask("compact", self.settings(contestant))
            readings[f"{self.name}: compacted"] = Reading(outcome["files"])
        return readings


class OverPlain(Ingest):
    """The ingest job, and the plain job in the same round: how often the plain job's CPU time the ingest takes."""

    def __init__(
        self, name: str, worker: SparkWorker, orders: Orders, settings: Mapping[str, Any], plain: PlainJob
    ) -> None:
        super().__init__(name, worker, orders, settings)
        self._plain = plain
        self.metrics += (Metric(f"{name}: CPU over plain job", "times", LESS, None),)

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        (plain, _), readings = self._plain.run(contestant), super().measure(contestant)
        times = readings[f"{self.name}: rows"].cpu_seconds / plain.cpu_seconds
        return {**readings, f"{self.name}: CPU over plain job": Reading(times)}


class IngestOnState(PipelineRow):
    """The ingest job into a table that has events within the delay of all new ones: de-duplication reads `state` keys.

    `orders` are the new ones; the others were ingested beforehand, into a lake that each run copies."""

    def __init__(self, name: str, worker: SparkWorker, orders: Orders, settings: Mapping[str, Any], state: int) -> None:
        super().__init__(name, worker, orders, settings)
        self._state = state

    def warm_up(self, contestant: Contestant) -> None:
        wire.create_topic(contestant.port, self._orders.topic, PARTITIONS)
        self._orders.produce(contestant, 0, self._state)
        filling = {**self.settings(contestant), "lake": str(self._filled(contestant))}
        self._worker.ask("ingest", filling, records=self._state)
        self._orders.produce(contestant, self._state, self._orders.records)
        self.run(contestant)

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        settings, copied = self.settings(contestant), str(self._filled(contestant))
        return self._worker.ask("ingest", settings, records=self._orders.records, copied=copied)

    def _filled(self, contestant: Contestant) -> Path:
        return contestant.directory / f"{self._orders.topic}-lake"


class ReadSegments(PipelineRow):
    """The segment source over the broker's own files, and the connector in the same round."""

    def __init__(self, name: str, worker: SparkWorker, orders: Orders) -> None:
        super().__init__(name, worker, orders, {})
        self.metrics = (
            Metric(f"{name}: rows", "rows/s", MORE, None),
            Metric(f"{name}: over connector", "times", MORE, None),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        connector = self._worker.ask("read topic", self.settings(contestant))
        rows, _ = self.run(contestant)
        times = connector["seconds"] / rows.seconds
        return {self.metrics[0].name: rows, self.metrics[1].name: Reading(times)}

    def _job(self, contestant: Contestant) -> dict[str, Any]:
        return self._worker.ask("read segments", self.settings(contestant), log_dir=str(self._log_dir(contestant)))

    def _log_dir(self, contestant: Contestant) -> Path:
        found = next(contestant.directory.rglob(f"{self._orders.topic}-0"), None)
        if found is None:
            raise RuntimeError(f"{contestant.directory} has no log of {self._orders.topic}")
        return found.parent


def pipeline_rows(scale: float, worker: SparkWorker) -> list[Row]:
    """Returns the rows in the order of the table. `scale` is the fraction of all records.

    A plain read is so fast that only four million records hide the time to start Spark's tasks."""
    many = Orders(max(int(4_000_000 * scale), 40_000))
    orders = Orders(max(int(1_000_000 * scale), 10_000))
    state = Orders(max(int(1_000_000 * scale), 10_000))
    untuned = {"kafka": DEFAULTS}
    plain = PlainJob("plain job to Parquet", worker, orders, {})
    keyed = {"sink": "delta", "dedup_keys": ["id"], "watermark_delay": "3 hours"}
    batches = {"max_offsets_per_trigger": BATCH}
    return [
        ReadTopic("read, defaults", worker, many, untuned),
        ReadTopic("read", worker, many, {}),
        ReadSegments("read segments", worker, many),
        Ingest("to Parquet, defaults", worker, orders, {"sink": "parquet", **untuned}),
        plain,
        OverPlain("to Parquet", worker, orders, {"sink": "parquet"}, plain),
        Ingest("to Delta, defaults", worker, orders, {"sink": "delta", **untuned, **batches}),
        Ingest("to Delta", worker, orders, {"sink": "delta", **batches}),
        OverPlain("to Delta, one batch", worker, orders, {"sink": "delta"}, plain),
        Ingest("to Delta, de-duplicated", worker, orders, keyed),
        IngestOnState("to Delta, 5M keys of state", worker, state, keyed, int(5_000_000 * scale)),
    ]
