"""What a healthy client feels of each attack: a round trip's p50, p99 and longest beside it, and the broker's memory.

    python -m benchmarks.beside_attacks [--seconds 10] [--only odradek|kafka] [--attacks WORD,...]

The broker is a process of its own with the settings that it comes with, the client another one (`healthy_client`), and
an attack is repeated until its time is over. Kafka takes part where $KAFKA_CONTROL is set, see `python -m benchmarks`.
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
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import wire
from benchmarks.attacks import LARGEST_MESSAGE, TOPIC, Attack, attacks
from benchmarks.contestants import CONTESTANTS, ApacheKafka, Contestant
from benchmarks.processes import resident_bytes
from odradek.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

HEALTHY_TOPIC = "healthy"
SAMPLE_S = 0.02
PARTITIONS = 60


class Felt(NamedTuple):
    """Round trips in ms, and by how much resident memory was larger at its largest."""

    attack: str
    p50: float
    p99: float
    longest: float
    memory_bytes: int
    sent_bytes: int


class Client:
    """The process beside the attacks."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.healthy_client", str(port), HEALTHY_TOPIC]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def round_trips(self) -> list[float]:
        """Those since it was asked last."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        taken: list[float] = json.loads(self._line())
        return taken

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the healthy client has ended")
        return line


@contextlib.contextmanager
def peak_memory(pid: int) -> Iterator[list[int]]:
    """By how much the process is larger at its largest; complete at the end of the block."""
    before = resident_bytes(pid)
    over = threading.Event()
    peak = [0]

    def sample() -> None:
        while not over.wait(SAMPLE_S):
            peak[0] = max(peak[0], resident_bytes(pid) - before)

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield peak
    finally:
        over.set()
        sampler.join()


def felt(attack: Attack, contestant: Contestant, client: Client, seconds: float) -> Felt:
    frame = attack.prepare()
    client.round_trips()
    sent = 0
    with peak_memory(contestant.pid) as peak:
        until = time.monotonic() + seconds
        while not sent or time.monotonic() < until:
            sent += attack.strike(contestant.port, frame)
        taken = client.round_trips()
    return _felt(attack.name, taken, peak[0], sent)


def _felt(name: str, taken: list[float], memory_bytes: int = 0, sent_bytes: int = 0) -> Felt:
    p99 = statistics.quantiles(taken, n=100, method="inclusive")[98] if len(taken) > 1 else max(taken)
    return Felt(name, statistics.median(taken), p99, max(taken), memory_bytes, sent_bytes)


def measure(contestant: Contestant, chosen: list[Attack], seconds: float) -> list[Felt]:
    contestant.start()
    try:
        _create_topics(contestant.port)
        client = Client(contestant.port)
        try:
            client.round_trips()
            time.sleep(seconds)
            rows = [_felt("none", client.round_trips())]
            for attack in chosen:
                rows.append(felt(attack, contestant, client, seconds))
                print(f"{contestant.name}: {rows[-1]}", file=sys.stderr, flush=True)
            return rows
        finally:
            client.close()
    finally:
        contestant.remove()


def _create_topics(port: int) -> None:
    wire.create_topic(port, HEALTHY_TOPIC)
    large = CreateTopicsRequest.CreatableTopicConfig(name="max.message.bytes", value=str(LARGEST_MESSAGE))
    small = CreateTopicsRequest.CreatableTopicConfig(name="retention.bytes", value="100000000")
    topic = CreateTopicsRequest.CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, configs=[large, small]
    )
    wire.call(port, CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CreateTopicsResponse, 2)


def table(results: dict[str, list[Felt]]) -> str:
    """One line for an attack."""
    heads = [f"{name}: p50 / p99 / longest, ms | memory, MB" for name in results]
    lines = ["| attack | " + " | ".join(heads) + " |", "|---" * (1 + 2 * len(results)) + "|"]
    for rows in zip(*results.values(), strict=True):
        cells = [f"{row.p50:.1f} / {row.p99:.0f} / {row.longest:.0f} | {row.memory_bytes / 1e6:+.0f}" for row in rows]
        lines.append(f"| {rows[0].attack} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside_attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each attack")
    parser.add_argument("--only", choices=[kind.name for kind in CONTESTANTS])
    parser.add_argument("--attacks", default="", metavar="WORD,...", help="those whose names contain one of the words")
    arguments = parser.parse_args()
    words = arguments.attacks.split(",")
    chosen = [attack for attack in attacks() if any(word in attack.name for word in words)]
    kinds = [kind for kind in CONTESTANTS if arguments.only in (None, kind.name)]
    if ApacheKafka.command() is None:
        kinds = [kind for kind in kinds if kind is not ApacheKafka]
    with tempfile.TemporaryDirectory() as workspace:
        results = {kind.name: measure(kind(Path(workspace)), chosen, arguments.seconds) for kind in kinds}
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
