"""Odradek and Apache Kafka side by side on this machine.

    python -m benchmarks [--pipeline] [--rows NAME,...] [--rounds 3] [--quick] [--json FILE] [--workspace DIR]

Each row is measured on both brokers alternately, in turns that change with the round; the table shows the medians.
Both are single nodes with the settings that they come with, and the few that $KAFKA_CONTROL sets. `$KAFKA_TOOLS` runs
a class of Kafka's tools, which load the brokers; `$KAFKA_CONTROL start PORT DIR` and `$KAFKA_CONTROL stop DIR` start
and stop a Kafka. Without Kafka its columns stay empty; without a program that a row needs, the row is left out. Notes
say so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from subprocess import SubprocessError

from benchmarks import report
from benchmarks.compaction_row import Compaction
from benchmarks.contestants import CONTESTANTS, ApacheKafka, Contestant
from benchmarks.coordinator_rows import Commits, Members, Transactions
from benchmarks.java_tools import Unavailable
from benchmarks.measurement import Reading, Result, Row
from benchmarks.pipeline_rows import SparkWorker, pipeline_rows
from benchmarks.purgatory_row import Purgatory
from benchmarks.standing_rows import Memory, ParkedFetches, Start
from benchmarks.traffic_rows import Consume, FanOut, Latency, Produce
from benchmarks.warm_memory import WarmMemory

ROOT = Path(__file__).resolve().parent.parent


def all_rows(scale: float) -> list[Row]:
    """In the order of the table. `scale` is the part of the full number of records."""

    def some(records: int) -> int:
        return max(int(records * scale), 1000)

    return [
        Produce("produce 100 B", 100, some(4_000_000), "acks=1"),
        Produce("produce 1 KB", 1000, some(1_000_000), "acks=1", wanted=1.5),
        Produce("produce 1 KB acks=all", 1000, some(1_000_000), "acks=all", wanted=1.5),
        Produce("produce 1 KB 64 KB batches", 1000, some(1_500_000), "acks=1 batch.size=65536", wanted=1.5),
        Produce("produce 100 KB", 100_000, some(15_000), "acks=1"),
        Consume(some(1_500_000)),
        Latency(some(20_000)),
        FanOut(max(int(300 * scale), 50)),
        Start(),
        Memory(),
        ParkedFetches(),
        Purgatory(some(1_000_000)),
        Compaction("compaction 1 KB", 1000, max(some(768_000) // 1000, 200), keys=50_000),
        Compaction("compaction 100 B", 100, max(some(768_000) // 1000, 200), keys=200_000),
        Members(),
        Commits(some(100_000)),
        Transactions(some(6_000)),
    ]


class Session:
    """The brokers of one run. Those that rows share are started when first needed, and keep running."""

    def __init__(self, workspace: Path, contestants: Sequence[type[Contestant]]) -> None:
        self.workspace = workspace
        self.contestants = contestants
        self.notes: list[str] = []
        self._shared: dict[type[Contestant], Contestant] = {}
        self._memory = WarmMemory(workspace)

    def run(self, rows: Iterable[Row], rounds: int) -> list[Result]:
        results: list[Result] = []
        try:
            for row in rows:
                results += self._row(row, rounds)
        finally:
            for contestant in self._shared.values():
                contestant.remove()
        return results

    def _row(self, row: Row, rounds: int) -> list[Result]:
        results = [Result(row.name, metric, {kind.name: [] for kind in self.contestants}) for metric in row.metrics]
        try:
            if row.needs_broker and not row.needs_fresh_broker:
                for kind in self.contestants:
                    tell(f"{row.name}: {kind.name} warms up")
                    row.warm_up(self._broker(kind))
            for number in range(rounds):
                turns = self.contestants if number % 2 == 0 else self.contestants[::-1]
                for kind in turns:
                    readings = self._measure(row, kind)
                    told = ", ".join(f"{reading.value:,.1f}" for reading in readings.values())
                    tell(f"{row.name}: round {number + 1}, {kind.name}: {told}")
                    for result in results:
                        if result.metric.name in readings:
                            result.readings[kind.name].append(readings[result.metric.name])
        except Unavailable as missing:
            self.notes.append(f"{row.name} is left out: {missing}")
            return []
        return results

    def _measure(self, row: Row, kind: type[Contestant]) -> dict[str, Reading]:
        """The readings, or none and a note if something failed that should not have."""
        try:
            return self._read(row, kind)
        except (RuntimeError, OSError, LookupError, ValueError, SubprocessError) as failure:
            self.notes.append(f"{row.name} failed with {kind.name}: {type(failure).__name__} {failure}")
            return {}

    def _read(self, row: Row, kind: type[Contestant]) -> dict[str, Reading]:
        if row.needs_warm_memory:
            self._memory.fill()
        if not row.needs_broker:
            return row.measure(kind(self.workspace))
        if not row.needs_fresh_broker:
            return row.measure(self._broker(kind))
        contestant = kind(self.workspace)
        try:
            return row.measure(contestant)
        finally:
            contestant.remove()

    def _broker(self, kind: type[Contestant]) -> Contestant:
        contestant = self._shared.get(kind)
        if contestant is None:
            contestant = kind(self.workspace)
            contestant.start()
            self._shared[kind] = contestant
        return contestant


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    worker = SparkWorker()
    try:
        return run(worker)
    finally:
        worker.close()


def run(worker: SparkWorker) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    names = ", ".join(row.name for row in [*all_rows(1), *pipeline_rows(1, worker)])
    parser.add_argument("--pipeline", action="store_true", help="the rows about the pipeline, which need PySpark")
    parser.add_argument("--rows", metavar="NAME,...", help=f"some of: {names} (the beginning is enough)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each row on each broker")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, one round: to see that it works")
    parser.add_argument("--only", choices=[kind.name for kind in CONTESTANTS], help="measure one of the brokers alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: .benchmarks/results.json, or pipeline.json")
    parser.add_argument("--workspace", type=Path, default=ROOT / ".benchmarks", help="where brokers keep their data")
    arguments = parser.parse_args()
    scale = 1.0
    if arguments.quick:
        scale, arguments.rounds = 0.1, 1
    rows = pipeline_rows(scale, worker) if arguments.pipeline else all_rows(scale)
    if arguments.rows is not None:
        wanted = [name.strip() for name in arguments.rows.split(",")]
        rows = [row for row in rows if any(row.name.startswith(name) for name in wanted)]
    if not rows or arguments.rounds < 1:
        parser.error("there is nothing to measure")
    arguments.workspace.mkdir(parents=True, exist_ok=True)
    if arguments.json is None:
        arguments.json = ROOT / ".benchmarks" / ("pipeline.json" if arguments.pipeline else "results.json")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    contestants = [kind for kind in CONTESTANTS if arguments.only in (None, kind.name)]
    notes = []
    if ApacheKafka in contestants and ApacheKafka.command() is None:
        contestants.remove(ApacheKafka)
        notes.append("Kafka is left out: KAFKA_CONTROL is not set. It is the command that starts and stops a Kafka.")
    with tempfile.TemporaryDirectory(prefix="run-", dir=arguments.workspace) as workspace:
        session = Session(Path(workspace), contestants)
        session.notes += notes
        results = session.run(rows, arguments.rounds)
    print(report.table(results))
    for note in session.notes:
        print(f"note: {note}")
    document = report.as_json(results, session.notes, arguments.rounds)
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written: {arguments.json}")
    return 1 if any(" failed with " in note for note in session.notes) else 0


if __name__ == "__main__":
    sys.exit(main())
