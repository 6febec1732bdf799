"""Runs many seeds in processes of their own: one for each processor, and a new one after some seeds, because compiled
tasks of killed brokers stay in memory. The processes run at a low priority.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import tests.conftest  # noqa: F401 - before anything imports a compiled module, in the processes too
from tests.simulation.report import explain, line_of, quieten
from tests.simulation.world import Scale, World

SEEDS_PER_PROCESS = 10
NICENESS = 10


@dataclass(frozen=True, slots=True)
class SeedReport:
    """What came of one seed, for other processes. `text`: its line, and what explains a failure."""

    seed: int
    has_passed: bool
    acknowledged_records: int
    produce_requests: int
    hits: int
    cpu_s: float
    text: str


def reports(seeds: Sequence[int], scale: Scale, log_level: int = logging.CRITICAL) -> Iterator[SeedReport]:
    """Runs the seeds and yields their reports in the order of the seeds."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(os.cpu_count(), _begin, (log_level,), maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap(partial(report_of, scale=scale), seeds)


def _begin(log_level: int) -> None:
    os.nice(NICENESS)
    gc.disable()  # each run collects what the one before has left
    quieten(log_level)


def report_of(seed: int, scale: Scale) -> SeedReport:
    """Runs one seed."""
    began_s = time.process_time()
    result = World(seed, scale=scale).run()
    cpu_s = time.process_time() - began_s
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        print(line_of(result, cpu_s))
        if not result.has_passed:
            explain(result)
    return SeedReport(
        seed=seed,
        has_passed=result.has_passed,
        acknowledged_records=result.acknowledged_records,
        produce_requests=result.produce_requests,
        hits=result.hits,
        cpu_s=cpu_s,
        text=text.getvalue(),
    )
