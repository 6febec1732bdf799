"""What the member programs have in common: how they report what they did, and how they receive orders.

A member prints a line `record PARTITION OFFSET` after it has processed a record, and lines for other events.
SIGTERM shuts it down; a line `stall SECONDS` on its standard input stops it from polling for that long.
Its client's log and the stacks of its threads (after SIGUSR1) go to standard error.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SETTINGS = {
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    "max.poll.interval.ms": 7000,
    "metadata.max.age.ms": 2000,
    "auto.offset.reset": "earliest",
}
"""Under Kafka's names. Members that commit by themselves have `enable.auto.commit` too."""
STATIC = {"session.timeout.ms": 30_000, "max.poll.interval.ms": 30_000}
"""What differs for static members: a JVM that is killed returns within the session, on a busy machine too."""
BY_THE_BROKER = "consumer"
"""The strategy of members that leave the assignment to the broker (KIP-848)."""
SET_BY_THE_BROKER = ("session.timeout.ms", "heartbeat.interval.ms")
POLL_S = 0.2
BATCH = 100

Position = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Where a member joins, and its identity. `strategy`: range, roundrobin, sticky, cooperative-sticky or consumer."""

    bootstrap: str
    group: str
    topic: str
    strategy: str
    instance: str | None

    def settings(self) -> dict[str, object]:
        """A client's settings under Kafka's names, without the strategy."""
        who = {"bootstrap.servers": self.bootstrap, "group.id": self.group, "enable.auto.commit": False, **SETTINGS}
        if self.instance is not None:
            who |= {**STATIC, "group.instance.id": self.instance}
        if self.strategy == BY_THE_BROKER:
            return {name: who[name] for name in who if name not in SET_BY_THE_BROKER} | {"group.protocol": "consumer"}
        return who

    def options(self) -> dict[str, object]:
        """`settings` under the names of the Python clients' arguments."""
        return {name.replace(".", "_"): value for name, value in self.settings().items()}


def membership() -> Membership:
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "strategy"):
        parser.add_argument(name)
    parser.add_argument("--instance")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s: %(message)s")
    return Membership(**vars(parser.parse_args()))


def report(*words: object) -> None:
    _write(" ".join(map(str, words)) + "\n")


def processed(positions: Iterable[Position]) -> None:
    """Reports a record before its offset is committed: the line is in the pipe even if this process is killed."""
    _write("".join(f"record {partition} {offset}\n" for partition, offset in positions))


def _write(text: str) -> None:
    data = text.encode()
    while data:
        data = data[os.write(1, data) :]


class Orders:
    """Receives SIGTERM and lines of standard input; SIGUSR1 prints each thread's stack to standard error."""

    def __init__(self) -> None:
        faulthandler.register(signal.SIGUSR1)
        self.stop = threading.Event()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        signal.signal(signal.SIGTERM, lambda *_: self.stop.set())
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)

    def stall_s(self) -> float:
        """For how many seconds to stall now; 0: do not."""
        try:
            return float(self._lines.get_nowait().split()[1])
        except queue.Empty:
            return 0


def positions_after(positions: Iterable[Position]) -> dict[int, int]:
    """The offsets to commit after these were processed: the next one of each partition."""
    return {partition: offset + 1 for partition, offset in positions}


class Uncommitted:
    """Processed offsets until they are committed, revoked or lost. A failed commit is retried."""

    def __init__(self, commit: Callable[[dict[int, int]], bool]) -> None:
        """`commit` commits the next offsets of partitions and returns whether it succeeded."""
        self._commit = commit
        self._offsets: dict[int, int] = {}

    def add(self, positions: Iterable[Position]) -> None:
        self._offsets |= positions_after(positions)

    def commit(self) -> None:
        if self._offsets and self._commit(self._offsets):
            self._offsets = {}

    def revoked(self, partitions: Iterable[int]) -> None:
        """Commits before the partitions are taken away."""
        offsets = {partition: self._offsets.pop(partition) for partition in partitions if partition in self._offsets}
        if offsets:
            self._commit(offsets)

    def lost(self) -> None:
        self._offsets = {}
