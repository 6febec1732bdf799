"""Measures a healthy client beside each attack: p50, p99 and maximum of round trips, failures, the broker's memory.

    python -m benchmarks.beside_attacks [--seconds 10] [--before DIR] [--only NAME,...] [--attacks WORD,...]

The broker is a separate process with its default settings, the client another one (`healthy_client`), and an attack is
repeated until its time is over. Kafka is included if $KAFKA_CONTROL is set, and an older checkout if one is given, see
`python -m benchmarks`. If a broker terminates, that is reported, and the next attack gets a new one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks import wire
from benchmarks.attacks import LARGEST_MESSAGE, OPEN_FILES, TOPIC, Attack, Ground, attacks
from benchmarks.checkout import NotSetUp
from benchmarks.contestants import KAFKA, Kind, Odradek, taking_part
from benchmarks.measurement import TLS
from benchmarks.parked import raise_open_files
from benchmarks.processes import free_port, is_running, resident_bytes
from benchmarks.secured import prepare, secure, trusted_file

HEALTHY_TOPIC = "healthy"
SAMPLE_S = 0.02
PAUSE_S = 0.05
"""After an attack that could not even connect."""
PARTITIONS = 60
WARM_UP_S = 5
CALM_S, CALM_MS, CALM_GIVE_UP_S = 0.5, 20, 20
"""Wait until no round trip takes longer than CALM_MS for CALM_S, at most CALM_GIVE_UP_S."""
LARGE_MESSAGES = {"max.message.bytes": str(LARGEST_MESSAGE), "retention.bytes": "100000000"}
SMALL_SEGMENTS = {"segment.bytes": "10000"}
"""About two new segments per second."""
KAFKA_LACKS = {Ground.METRICS, Ground.FEW_FILES}
"""It has no metrics port, and accepts no segments below a megabyte since 4.0."""
ATTACKED_LISTENERS = {Ground.USER: "SASL_PLAINTEXT", Ground.TLS_NEWCOMERS: "SSL"}


class Felt(NamedTuple):
    """Round trips in ms, the number of each kind of failure, and the peak growth of resident memory.

    The times are None if no round trip completed.
    """

    attack: str
    p50: float | None
    p99: float | None
    longest: float | None
    failed: dict[str, int]
    memory_bytes: int = 0
    sent_bytes: int = 0
    has_ended: bool = False
    """Whether the broker has terminated."""

    @classmethod
    def of(cls, attack: str, taken: list[float], failed: dict[str, int], memory_bytes: int = 0, sent: int = 0) -> Felt:
        if not taken:
            return cls(attack, None, None, None, failed, memory_bytes, sent)
        p99 = statistics.quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else taken[0]
        return cls(attack, statistics.median(taken), p99, max(taken), failed, memory_bytes, sent)

    def cells(self) -> tuple[str, str, str]:
        """Returns times, failures and memory for the table."""
        times = "no answer"
        if self.p50 is not None and self.p99 is not None and self.longest is not None:
            times = f"{self.p50:.1f} / {self.p99:.0f} / {self.longest:.0f}"
        memory = "the broker ended" if self.has_ended else f"{self.memory_bytes / 1e6:+.0f}"
        return times, str(sum(self.failed.values())), memory


class Client:
    """The process of the healthy client."""

    def __init__(self, *arguments: object, module: str = "healthy_client") -> None:
        command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def round_trips(self) -> tuple[list[float], dict[str, int]]:
        """Returns the durations since the last call, and the number of each kind of failure."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        reported = json.loads(self._line())
        return reported["taken"], reported["failed"]

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the healthy client has ended")
        return line


class Scene:
    """A running broker, prepared for the attacks of this ground, and its healthy client."""

    def __init__(self, kind: Kind, workspace: Path, ground: Ground) -> None:
        self._contestant = kind.make(workspace)
        self._port = self._contestant.port
        self._client: Client | None = None
        if ground is Ground.FEW_FILES:
            self._contestant.open_files = OPEN_FILES
        try:
            if ground is Ground.METRICS and isinstance(self._contestant, Odradek):
                self._port = free_port()
                self._contestant.options = ("--metrics-port", str(self._port))
            if ground in ATTACKED_LISTENERS:
                secure(self._contestant, TLS)
                self._port = self._contestant.ports[ATTACKED_LISTENERS[ground]]
            self._contestant.start()
            self._client = self._prepared(ground)
        except BaseException:
            self.close()
            raise

    @property
    def is_over(self) -> bool:
        """Whether the broker has terminated."""
        return not is_running(self._contestant.pid)

    def at_rest(self, name: str, seconds: float) -> Felt:
        """Measures without an attack; by then a JVM has compiled its hot code."""
        assert self._client is not None
        time.sleep(WARM_UP_S)
        self._until_calm()
        time.sleep(seconds)
        return Felt.of(name, *self._client.round_trips())

    def beside(self, attack: Attack, seconds: float) -> Felt:
        assert self._client is not None
        frame = attack.prepare()
        self._until_calm()
        with peak_memory(self._contestant.pid) as peak:
            sent = self._struck(attack, frame, seconds)
            taken, failed = self._client.round_trips()
        return Felt.of(attack.name, taken, failed, peak[0], sent)._replace(has_ended=self.is_over)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._contestant.remove()

    def _prepared(self, ground: Ground) -> Client:
        if ground is Ground.METRICS:
            return Client("health", self._port)
        if ground is Ground.NEWCOMERS:
            return Client(self._port, module="newcomer")
        if ground is Ground.TLS_NEWCOMERS:
            return Client(self._port, trusted_file(self._contestant), module="newcomer")
        port = self._contestant.port
        wire.create_topic(port, HEALTHY_TOPIC, 1, SMALL_SEGMENTS if ground is Ground.FEW_FILES else {})
        wire.create_topic(port, TOPIC, PARTITIONS, LARGE_MESSAGES)
        if ground is Ground.NEIGHBOR:
            return Client(port, HEALTHY_TOPIC, module="healthy_user")
        if ground is Ground.USER:
            prepare(self._contestant, TLS)
            secured = self._contestant.ports["SASL_SSL"]
            return Client(secured, HEALTHY_TOPIC, trusted_file(self._contestant), module="healthy_user")
        return Client("records", port, HEALTHY_TOPIC)

    def _until_calm(self) -> None:
        """Waits until the effects of the last attack are over, or for a limited time."""
        assert self._client is not None
        give_up = time.monotonic() + CALM_GIVE_UP_S
        while not self.is_over and time.monotonic() < give_up:
            self._client.round_trips()
            time.sleep(CALM_S)
            taken, failed = self._client.round_trips()
            if taken and not failed and max(taken) < CALM_MS:
                return

    def _struck(self, attack: Attack, frame: bytes, seconds: float) -> int:
        """Strikes at least once; returns the number of bytes sent."""
        sent = 0
        until = time.monotonic() + seconds
        while True:
            try:
                sent += attack.strike(self._port, frame, until)
            except OSError:
                time.sleep(PAUSE_S)
            if time.monotonic() >= until or self.is_over:
                return sent


@contextlib.contextmanager
def peak_memory(pid: int) -> Iterator[list[int]]:
    """Yields the peak growth of the process in bytes; complete at the end of the block."""
    before = resident_bytes(pid)
    over = threading.Event()
    peak = [0]

    def sample() -> None:
        with contextlib.suppress(OSError):  # the process has ended
            while not over.wait(SAMPLE_S):
                peak[0] = max(peak[0], resident_bytes(pid) - before)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        over.set()
        sampler.join()


def measure(kind: Kind, chosen: Sequence[Attack], seconds: float, workspace: Path) -> list[Felt | None]:
    """Measures each ground at rest, then its attacks. None for a ground that this broker does not have."""
    rows: list[Felt | None] = []
    for ground, of_ground in groupby(chosen, lambda attack: attack.ground):
        if ground in KAFKA_LACKS and kind.name == KAFKA:
            rows += [None, *(None for _ in of_ground)]
            continue
        scene = Scene(kind, workspace, ground)
        try:
            rows.append(logged(kind, scene.at_rest(ground.value, seconds)))
            for attack in of_ground:
                if scene.is_over:
                    scene.close()
                    scene = Scene(kind, workspace, ground)
                rows.append(logged(kind, scene.beside(attack, seconds)))
        finally:
            scene.close()
    return rows


def logged(kind: Kind, felt: Felt) -> Felt:
    print(f"{kind.name}: {felt}", file=sys.stderr, flush=True)
    return felt


def table(results: dict[str, list[Felt | None]]) -> str:
    """Returns one line per attack, then one line per attack with failed round trips."""
    heads = [f"{name}: p50 / p99 / longest, ms | failed | memory, MB" for name in results]
    lines = ["| attack | " + " | ".join(heads) + " |", "|---" * (1 + 3 * len(results)) + "|"]
    for rows in zip(*results.values(), strict=True):
        name = next((row.attack for row in rows if row is not None), None)
        if name is None:
            continue
        cells = [" | ".join(row.cells()) if row is not None else "- | - | -" for row in rows]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    failures = [
        f"{name}, {row.attack}: {', '.join(f'{count:,d} x {failure}' for failure, count in row.failed.items())}"
        for name, rows in results.items()
        for row in rows
        if row is not None and row.failed
    ]
    return "\n".join([*lines, *(["", "failed round trips:"] if failures else []), *failures])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="duration of each attack")
    parser.add_argument("--before", type=Path, metavar="DIR", help="an older checkout to compare with, as `before`")
    parser.add_argument("--only", metavar="NAME,...", help="only these brokers: odradek, before, kafka")
    parser.add_argument("--attacks", default="", metavar="WORD,...", help="attacks whose names contain a word")
    arguments = parser.parse_args()
    words = arguments.attacks.split(",")
    chosen = [attack for attack in attacks() if any(word in attack.name for word in words)]
    try:
        kinds, notes = taking_part(arguments.before, arguments.only)
    except (NotSetUp, ValueError) as mistake:
        parser.error(str(mistake))
    raise_open_files()
    with tempfile.TemporaryDirectory() as workspace:
        results = {kind.name: measure(kind, chosen, arguments.seconds, Path(workspace)) for kind in kinds}
    print(table(results))
    for note in notes:
        print(f"note: {note}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
