"""Measures what a test waits for: the start from a snapshot, a reset, and the room that many forks take.

    python -m benchmarks.snapshots [--megabytes 100] [--starts 20] [--forks 1000]

The last line of the output is one JSON object: `start_ms` and `reset_ms` are medians after the first, from the call
until clients are served; `forks_mb` is what the disk holds for all forks together, besides the snapshot. Each fork has
started, got a record and stopped. Snapshots and resets are of ten topics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from odradek.testing import Snapshot, in_process_broker

TOPICS = [f"topic-{number}" for number in range(10)]
RECORD_BYTES = 10_000
BLOCK_BYTES = 512


async def taken(directory: Path, megabytes: float) -> Snapshot:
    """Returns a snapshot with so many megabytes of records."""
    records = [bytes(RECORD_BYTES)] * max(int(megabytes * 1e6 / RECORD_BYTES / len(TOPICS)), 1)
    async with in_process_broker() as broker:
        for topic in TOPICS:
            await broker.seed({topic: records})
        return await broker.snapshot(directory)


async def start_ms(snapshot: Snapshot) -> float:
    """Returns how long the start of one fork takes."""
    begin = time.perf_counter()
    async with in_process_broker(snapshot=snapshot):
        return (time.perf_counter() - begin) * 1000


async def reset_ms(resets: int) -> list[float]:
    """Returns how long each reset of a broker with ten topics takes."""
    found = []
    async with in_process_broker() as broker:
        for _ in range(resets):
            await broker.seed({topic: [b"a record"] for topic in TOPICS})
            begin = time.perf_counter()
            await broker.reset()
            found.append((time.perf_counter() - begin) * 1000)
    return found


async def forks_mb(snapshot: Snapshot, forks: int, directory: Path) -> float:
    """Returns the room of the disk that the forks take together."""
    for number in range(forks):
        async with in_process_broker(snapshot=snapshot, data_dir=directory / str(number)) as fork:
            await fork.seed({TOPICS[0]: [b"a record"]})
    return room_of(directory, snapshot)


def room_of(directory: Path, snapshot: Snapshot) -> float:
    """Returns the megabytes of the disk that a directory takes, without the files of the snapshot."""
    shared = {path.stat().st_ino for path in snapshot.path.rglob("*")}
    found = {stat.st_ino: stat.st_blocks for path in directory.rglob("*") if (stat := path.stat()).st_ino not in shared}
    return sum(found.values()) * BLOCK_BYTES / 1e6


async def measured(megabytes: float, starts: int, forks: int) -> dict[str, float]:
    """Returns the object of the last line."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as temporary:
        snapshot = await taken(Path(temporary, "snapshot"), megabytes)
        each = [await start_ms(snapshot) for _ in range(starts + 1)]
        resets = await reset_ms(starts + 1)
        return {
            "start_ms": statistics.median(each[1:]),
            "reset_ms": statistics.median(resets[1:]),
            "forks_mb": await forks_mb(snapshot, forks, Path(temporary, "forks")),
        }


def main() -> None:
    """Prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--forks", type=int, default=1000)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(measured(options.megabytes, options.starts, options.forks))))


if __name__ == "__main__":
    main()
