"""Measures how many requests a purgatory takes per second, and the cost of each, with the workload of Kafka's
TestPurgatoryPerformance.

    python -m benchmarks.purgatory --num 1000000 --rate 400000 --timeout 200 --pct50 200 --pct75 400
                                   --keys 3 --key-space-size 100 [--json]

Requests arrive as a Poisson process at `--rate` per second. Each is parked under the same `--keys` keys, drawn once
out of `--key-space-size`, with a timeout of `--timeout` ms, and would be completed after a log-normally distributed
time with the given 50th and 75th percentiles (ms). Requests whose time comes before the timeout are completed then,
but not through a key: their entries are left to the purge. The others expire. The run ends when every request has
ended.

Everything is the broker's own: its clock, timer, purgatory, completion queue and reaper, on one event loop and in
real time. Where Kafka's test has a thread that generates and one that completes out of a DelayQueue, this has a call
of the loop each millisecond for both, and a list for each millisecond. (Kafka's Java version mistakenly completes
requests at their timeout instead of their drawn time; here, as in the older Scala version, they complete at their
drawn time.)

The last line of the output is one JSON object. `enqueues_per_second` is measured from the first to the last parking,
`cpu_seconds` is user and system time of the whole process from its start to its end.
"""

import argparse
import asyncio
import gc
import itertools
import json
import math
import random
import resource
import sys
import time
from collections.abc import Iterator

from odradek.purgatory import CompletionQueue, DelayedOperation, DelayedOperationPurgatory
from odradek.timer import ExpirationReaper, SystemClock, SystemTimer

SAMPLES = 1 << 17
QUARTILE_OF_NORMAL = 0.674490
ENQUEUES_PER_SLICE = 1000
"""How many late requests are parked before the loop may do something else."""


class FakeOperation(DelayedOperation):
    """A request that can complete from `completes_at_ms` on."""

    __slots__ = ("completes_at_ms", "workload")

    def __init__(self, timeout_ms: int, completes_at_ms: int, workload: "Workload") -> None:
        super().__init__(timeout_ms)
        self.completes_at_ms = completes_at_ms
        self.workload = workload

    def try_complete(self) -> bool:
        return self.workload.clock.now_ms() >= self.completes_at_ms and self.force_complete()

    def on_complete(self) -> None:
        self.workload.unfinished -= 1

    def on_expiration(self) -> None:
        self.workload.lateness_ms.append(self.workload.clock.now_ms() - self.expiration_ms)


def latencies_ms(chance: random.Random, pct50: float, pct75: float) -> list[int]:
    """Returns times to completion, log-normal with these percentiles, rounded down."""
    mean = math.log(pct50)
    deviation = (math.log(pct75) - mean) / QUARTILE_OF_NORMAL
    return [int(chance.lognormvariate(mean, deviation)) for _ in range(SAMPLES)]


def intervals_ms(chance: random.Random, rate: float) -> list[int]:
    """Returns times between arrivals, exponential; each rounding error is carried over to the next interval."""
    samples = []
    residue = 0.0
    for _ in range(SAMPLES - 1):
        interval = chance.expovariate(rate / 1000) + residue
        samples.append(int(interval))
        residue = interval - int(interval)
    return samples


class Workload:
    """One run on a running loop: parks `requests` and waits until all have ended."""

    def __init__(self, arguments: argparse.Namespace, loop: asyncio.AbstractEventLoop) -> None:
        chance = random.Random(arguments.seed)
        self.loop = loop
        self.clock = SystemClock()
        self.timer = SystemTimer(self.clock)
        self.reaper = ExpirationReaper(self.timer)
        self.completions = CompletionQueue(loop.call_soon)
        self.purgatory = DelayedOperationPurgatory("Fake", self.timer, self.clock, self.completions)
        self.requests: int = arguments.num
        self.timeout_ms: int = arguments.timeout
        self.keys = [f"fakeKey{chance.randrange(arguments.key_space_size)}" for _ in range(arguments.keys)]
        self.latencies: Iterator[int] = itertools.cycle(latencies_ms(chance, arguments.pct50, arguments.pct75))
        self.intervals: Iterator[int] = itertools.cycle(intervals_ms(chance, arguments.rate))
        self.unfinished = self.requests
        self.lateness_ms: list[int] = []
        self.to_complete: dict[int, list[FakeOperation]] = {}
        self.finished: asyncio.Future[None] = loop.create_future()
        self.started_ms = self.ended_ms = self.completed_to_ms = self.arrival_ms = 0
        self.left = self.requests
        self.largest = 0

    async def run(self) -> None:
        self.reaper.start()
        self.started_ms = self.completed_to_ms = self.arrival_ms = self.clock.now_ms()
        self.arrival_ms += next(self.intervals)
        self._tick()
        await self.finished
        self.reaper.stop()
        self.purgatory.shutdown()

    def _tick(self) -> None:
        now_ms = self.clock.now_ms()
        self._complete_due(now_ms)
        behind = self.left > 0 and self._park_arrived(now_ms)
        if self.unfinished == 0:
            self.finished.set_result(None)
        elif behind:
            self.loop.call_soon(self._tick)
        else:
            self.loop.call_later(0.001, self._tick)

    def _complete_due(self, now_ms: int) -> None:
        to_complete = self.to_complete
        for due_ms in range(self.completed_to_ms, now_ms + 1):
            for operation in to_complete.pop(due_ms, ()):
                operation.force_complete()
        self.completed_to_ms = now_ms

    def _park_arrived(self, now_ms: int) -> bool:
        """Parks the requests that have arrived; True if more are due."""
        timeout_ms, keys, clock = self.timeout_ms, self.keys, self.clock
        park = self.purgatory.try_complete_else_watch
        arrival_ms = self.arrival_ms
        for _ in range(min(self.left, ENQUEUES_PER_SLICE)):
            if arrival_ms > now_ms:
                break
            latency_ms = next(self.latencies)
            now_ms = clock.now_ms()
            due_ms = now_ms + latency_ms
            operation = FakeOperation(timeout_ms, due_ms, self)
            if latency_ms < timeout_ms:
                self.to_complete.setdefault(due_ms, []).append(operation)
            park(operation, keys)
            self.left -= 1
            arrival_ms += next(self.intervals)
        self.arrival_ms = arrival_ms
        if self.left == 0:
            self.ended_ms = self.clock.now_ms()
            return False
        self.largest = max(self.largest, self.purgatory.watched)
        return arrival_ms <= now_ms


def percentile(sorted_values: list[int], fraction: float) -> int | None:
    return sorted_values[min(int(len(sorted_values) * fraction), len(sorted_values) - 1)] if sorted_values else None


def is_compiled() -> bool:
    """Whether the wheel and the purgatory are compiled."""
    names = ("odradek.timer.task", "odradek.purgatory.purgatory")
    return not any((sys.modules[name].__file__ or "").endswith(".py") for name in names)


def measure(arguments: argparse.Namespace) -> dict[str, object]:
    """Runs once; returns the row."""
    loop = new_loop()
    gc.set_threshold(50_000, 20, 1_000_000)
    gc.freeze()
    workload = Workload(arguments, loop)
    loop.run_until_complete(workload.run())
    loop.close()
    lateness_ms = sorted(workload.lateness_ms)
    cpu_seconds = time.process_time()
    return {
        "requests": workload.requests,
        "enqueues_per_second": round(workload.requests * 1000 / max(workload.ended_ms - workload.started_ms, 1)),
        "target_per_second": round(workload.requests * 1000 / max(workload.arrival_ms - workload.started_ms, 1)),
        "cpu_seconds": round(cpu_seconds, 3),
        "cpu_us_per_request": round(cpu_seconds * 1e6 / workload.requests, 3),
        "completed": workload.purgatory.completed,
        "expired": workload.purgatory.expired,
        "late_ms_p50": percentile(lateness_ms, 0.5),
        "late_ms_p99": percentile(lateness_ms, 0.99),
        "largest_purgatory_size": workload.largest,
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "compiled": is_compiled(),
    }


def new_loop() -> asyncio.AbstractEventLoop:
    """Returns the same kind of loop as the broker's: uvloop's if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.purgatory", description=__doc__.partition("\n")[0])
    parser.add_argument("--num", type=int, required=True, help="number of requests")
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--timeout", type=int, default=1000, help="their timeout in ms")
    parser.add_argument("--pct50", type=float, required=True, help="50th percentile of the time to completion in ms")
    parser.add_argument("--pct75", type=float, required=True, help="75th percentile of the time to completion in ms")
    parser.add_argument("--keys", type=int, default=3, help="keys per request")
    parser.add_argument("--key-space-size", type=int, default=100, help="keys to choose from")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random times and keys")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    chosen = parser.parse_args(arguments)
    if (
        min(chosen.num, chosen.keys, chosen.key_space_size) < 1
        or chosen.rate <= 0
        or not 0 < chosen.pct50 < chosen.pct75
    ):
        parser.error("--num, --keys, --key-space-size and --rate must be positive, and 0 < pct50 < pct75")
    return chosen


def main() -> int:
    arguments = parse()
    row = measure(arguments)
    if not arguments.json:
        width = max(map(len, row))
        for name, value in row.items():
            print(f"{name:<{width}}  {value}")
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
