"""Measures what each test pays that starts a broker or a cluster of its own: start and stop inside the process.

    python -m benchmarks.in_process [--brokers 1000] [--clusters 50]

The last line of the output is one JSON object. `cpu_ms` and `ms` are the medians of the processor time and of the time
of one start and stop, after the first: of a broker, and with `cluster_` before the name of a cluster of three. `cpu_s`
and `s` are the sums over all brokers, which run one after the other. Needs nothing but `odradek.testing`: the row also
runs this text in older checkouts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from odradek.testing import in_process_broker, in_process_cluster

Inside = Callable[[], AbstractAsyncContextManager[Any]]


async def measured(inside: Inside, count: int) -> list[tuple[float, float]]:
    """Returns the processor time and the time of each start and stop after the first, in seconds."""
    found = []
    for _ in range(count + 1):
        cpu, begin = time.process_time(), time.perf_counter()
        async with inside():
            pass
        found.append((time.process_time() - cpu, time.perf_counter() - begin))
    return found[1:]


async def readings(brokers: int, clusters: int) -> dict[str, float]:
    """Returns the object of the last line."""
    of_brokers = await measured(in_process_broker, brokers)
    of_clusters = await measured(in_process_cluster, clusters)
    return {
        "cpu_ms": statistics.median(cpu for cpu, _ in of_brokers) * 1000,
        "ms": statistics.median(passed for _, passed in of_brokers) * 1000,
        "cpu_s": sum(cpu for cpu, _ in of_brokers),
        "s": sum(passed for _, passed in of_brokers),
        "cluster_cpu_ms": statistics.median(cpu for cpu, _ in of_clusters) * 1000,
        "cluster_ms": statistics.median(passed for _, passed in of_clusters) * 1000,
    }


def main() -> None:
    """Prints the object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--brokers", type=int, default=1000)
    parser.add_argument("--clusters", type=int, default=50)
    options = parser.parse_args()
    print(json.dumps(asyncio.run(readings(options.brokers, options.clusters))))


if __name__ == "__main__":
    main()
