"""What librdkafka and Kafka's Java client read of partition 0 of some topics, and at which offsets they stop.

Each reader is a process, since librdkafka ends its own at some bodies. It goes on behind an offset at which the client
stops, so that one run finds all of them. It prints "TOPIC OFFSET CHECKSUM" for a record and "TOPIC OFFSET ! REASON" for
a stop.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
LIBRDKAFKA = [sys.executable, "-m", "tests.clients.bodies.librdkafka_reader"]
JAVA = "odradek.Reader"
TIMEOUT_S = 600


@dataclass(slots=True)
class Reading:
    """What one client has read of one topic."""

    checksums: dict[int, int] = field(default_factory=dict)
    """The checksum of the record at each offset."""
    stops: dict[int, str] = field(default_factory=dict)
    """Why the client cannot read past an offset."""


def checksum(key: bytes | None, value: bytes | None) -> int:
    """CRC-32 of both, each with its length, -1 for null. (A header whose name is not UTF-8 crashes confluent-kafka.)"""
    return zlib.crc32(b"".join(struct.pack(">i", -1 if f is None else len(f)) + (f or b"") for f in (key, value)))


def read_by(reader: Sequence[str], bootstrap: str, topics: Sequence[str]) -> dict[str, Reading]:
    """`reader`: LIBRDKAFKA, or JAVA behind the command that runs it."""
    done = subprocess.run(
        [*reader, bootstrap, *topics], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    readings = {topic: Reading() for topic in topics}
    topic, offset = topics[0], "-1"
    for line in done.stdout.splitlines():
        topic, offset, seen = line.split(" ", 2)
        if seen.startswith("! "):
            readings[topic].stops[int(offset)] = seen[2:]
        else:
            readings[topic].checksums[int(offset)] = int(seen)
    if done.returncode:
        readings[topic].stops[int(offset) + 1] = f"the reader ended with {done.returncode}: {done.stderr[-500:]}"
    return readings
