"""Compares Odradek with Apache Kafka on this machine, and with an older Odradek if one is given.

    python -m benchmarks [--pipeline | --starts] [--before DIR] [--only NAME,...] [--rows NAME,...] [--rounds 3]
                         [--quick] [--json FILE] [--workspace DIR]

Each row is measured on all brokers alternately, and each round begins with another broker; the table shows the medians.
All brokers are single nodes with their default settings, except for the few that $KAFKA_CONTROL sets; the rows of
clusters start three (benchmarks/clusters.py), secured rows have listeners with TLS and logins (benchmarks/secured.py).
`$KAFKA_TOOLS` runs a class of Kafka's tools, which load the brokers; `$KAFKA_CONTROL start PORT DIR NAME=VALUE...` and
`$KAFKA_CONTROL stop DIR` start and stop a Kafka, of the release that benchmarks/kafka_versions.py names. Without Kafka
its columns stay empty; a row whose program is missing is omitted. Notes report both, and rows beside another release.
DIR is a checkout in which `make setup` was run; the clients are always those of this
checkout. If this checkout is worse than DIR in every round, the table's last column and a note report it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from subprocess import SubprocessError

from benchmarks import report, secured
from benchmarks.admin_row import SmallRequests
from benchmarks.checkout import ROOT, NotSetUp
from benchmarks.cluster_rows import cluster_rows
from benchmarks.compaction_row import Compaction
from benchmarks.contestants import KAFKA, Contestant, Kind, taking_part
from benchmarks.coordinator_rows import Commits, Consumers, Members, Transactions
from benchmarks.in_process_row import InProcess
from benchmarks.java_tools import Unavailable
from benchmarks.kafka_versions import kafka_version
from benchmarks.measurement import Reading, Result, Row, TakesNoPart
from benchmarks.pipeline_rows import SparkWorker, pipeline_rows
from benchmarks.purgatory_row import Purgatory
from benchmarks.security_rows import security_rows
from benchmarks.snapshot_row import Snapshots
from benchmarks.standing_rows import Memory, ParkedFetches, Start
from benchmarks.start_rows import start_rows
from benchmarks.traffic_rows import Consume, FanOut, Latency, Produce
from benchmarks.warm_memory import WarmMemory

FAILURES = (RuntimeError, OSError, LookupError, ValueError, SubprocessError)
"""Failures of a measurement: it has no reading, and the run continues."""


def all_rows(scale: float) -> list[Row]:
    """Returns the rows in the order of the table. `scale` is the fraction of the full number of records."""

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
        FanOut(max(int(300 * scale), 50), by_id=True),
        Start(),
        Memory(),
        ParkedFetches(),
        Purgatory(some(1_000_000)),
        Compaction("compaction 1 KB", 1000, max(some(768_000) // 1000, 200), keys=50_000),
        Compaction("compaction 100 B", 100, max(some(768_000) // 1000, 200), keys=200_000),
        Members(),
        Commits(some(100_000)),
        Consumers(),
        Commits(some(100_000), of_consumers=True),
        Transactions(some(6_000)),
        SmallRequests(scale),
        Snapshots(scale),
        InProcess(scale),
        *security_rows(scale),
        *cluster_rows(scale),
    ]


class Session:
    """The brokers of one run. Brokers that rows share are started when first needed, and keep running."""

    def __init__(self, workspace: Path, contestants: Sequence[Kind]) -> None:
        self.workspace = workspace
        self.contestants = contestants
        self.notes: list[str] = []
        self._shared: dict[tuple[str, str], Contestant] = {}
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
        if row.kafka_version() != kafka_version() and any(kind.name == KAFKA for kind in self.contestants):
            self._note(f"{row.name}: beside Kafka {row.kafka_version()}, since {kafka_version()} has no such part")
        try:
            if row.needs_broker and not row.needs_fresh_broker:
                self._warm_up(row)
            for number in range(rounds):
                for kind in turns(self.contestants, number):
                    readings = self._measure(row, kind)
                    values = ", ".join(f"{reading.value:,.1f}" for reading in readings.values())
                    log(f"{row.name}: round {number + 1}, {kind.name}: {values}")
                    for result in results:
                        if result.metric.name in readings:
                            result.readings[kind.name].append(readings[result.metric.name])
        except Unavailable as missing:
            self.notes.append(f"{row.name} is omitted: {missing}")
            return []
        return results

    def _warm_up(self, row: Row) -> None:
        for kind in self.contestants:
            log(f"{row.name}: {kind.name} warms up")
            try:
                row.warm_up(self._broker(row, kind))
            except TakesNoPart:
                continue  # its measurement says so
            except FAILURES as failure:
                self._note_failure(row, kind, failure)

    def _note(self, note: str) -> None:
        """Adds a note unless it was added in an earlier round."""
        if note not in self.notes:
            self.notes.append(note)

    def _note_failure(self, row: Row, kind: Kind, failure: Exception) -> None:
        self.notes.append(f"{row.name} failed with {kind.name}: {type(failure).__name__} {failure}")

    def _measure(self, row: Row, kind: Kind) -> dict[str, Reading]:
        """Returns the readings; none if there are none, and adds a note."""
        try:
            return self._read(row, kind)
        except TakesNoPart as reason:
            self._note(f"{row.name}: {kind.name} takes no part: {reason}")
            return {}
        except FAILURES as failure:
            self._note_failure(row, kind, failure)
            return {}

    def _read(self, row: Row, kind: Kind) -> dict[str, Reading]:
        if row.needs_warm_memory:
            self._memory.fill()
        if not row.needs_broker:
            return row.measure(kind.make(self.workspace))
        if not row.needs_fresh_broker:
            return row.measure(self._broker(row, kind))
        contestant = self._made(row, kind)
        try:
            return row.measure(contestant)
        finally:
            contestant.remove()

    def _broker(self, row: Row, kind: Kind) -> Contestant:
        """The broker that rows share which want it secured in the same way."""
        contestant = self._shared.get((kind.name, row.secured))
        if contestant is None:
            contestant = self._made(row, kind)
            try:
                contestant.start()
                if row.secured:
                    secured.prepare(contestant, row.secured)
            except BaseException:
                contestant.remove()
                raise
            self._shared[kind.name, row.secured] = contestant
        return contestant

    def _made(self, row: Row, kind: Kind) -> Contestant:
        """A broker that is not started yet."""
        contestant = kind.make(self.workspace)
        if row.secured:
            secured.secure(contestant, row.secured)
        return contestant


def turns(contestants: Sequence[Kind], number: int) -> Sequence[Kind]:
    """Returns the order of a round: each round begins with another broker."""
    first = number % len(contestants)
    return [*contestants[first:], *contestants[:first]]


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    worker = SparkWorker()
    try:
        return run(worker)
    finally:
        worker.close()


def run(worker: SparkWorker) -> int:
    arguments = parse(worker)
    arguments.workspace.mkdir(parents=True, exist_ok=True)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=arguments.workspace) as workspace:
        session = Session(Path(workspace), arguments.kinds)
        session.notes += arguments.notes
        results = session.run(arguments.chosen, arguments.rounds)
    session.notes += report.slower_than_before(results)
    print(report.table(results))
    for note in session.notes:
        print(f"note: {note}")
    document = report.as_json(results, session.notes, arguments.rounds)
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    print(f"written: {arguments.json}")
    return 1 if any(" failed with " in note for note in session.notes) else 0


def parse(worker: SparkWorker) -> argparse.Namespace:
    """Returns the options, the `chosen` rows, the `kinds` of contestants and the first `notes`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    sets = {"results": all_rows, "pipeline": lambda scale: pipeline_rows(scale, worker), "starts": start_rows}
    names = ", ".join(row.name for rows in sets.values() for row in rows(1))
    chosen = parser.add_mutually_exclusive_group()
    for name, help_text in (("pipeline", "need PySpark"), ("starts", "start brokers with much data to load")):
        chosen.add_argument(
            f"--{name}", dest="set", action="store_const", const=name, default="results", help=f"rows that {help_text}"
        )
    parser.add_argument("--before", type=Path, metavar="DIR", help="an older checkout to compare with, as `before`")
    parser.add_argument("--rows", metavar="NAME,...", help=f"some of: {names} (a prefix is enough)")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each row on each broker")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records and one round, as a smoke test")
    parser.add_argument("--only", metavar="NAME,...", help="only these brokers: odradek, before, kafka")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="default: .benchmarks/results.json, or the rows' name"
    )
    parser.add_argument("--workspace", type=Path, default=ROOT / ".benchmarks", help="the directory of brokers' data")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.rounds = 1
    arguments.chosen = rows_named(sets[arguments.set](0.1 if arguments.quick else 1.0), arguments.rows)
    if not arguments.chosen or arguments.rounds < 1:
        parser.error("there is nothing to measure")
    if arguments.json is None:
        arguments.json = ROOT / ".benchmarks" / f"{arguments.set}.json"
    try:
        arguments.kinds, arguments.notes = taking_part(arguments.before, arguments.only)
    except (NotSetUp, ValueError) as mistake:
        parser.error(str(mistake))
    return arguments


def rows_named(rows: list[Row], beginnings: str | None) -> list[Row]:
    if beginnings is None:
        return rows
    wanted = tuple(name.strip() for name in beginnings.split(","))
    return [row for row in rows if row.name.startswith(wanted)]


if __name__ == "__main__":
    sys.exit(main())
