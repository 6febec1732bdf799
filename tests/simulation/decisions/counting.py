"""Runs seeds and notes the decisions that they take. The modules run from their sources, with a call beside each
decision, so this module must be imported before anything imports the broker.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

os.environ["ODRADEK_PURE"] = "1"

import tests.conftest  # noqa: F401 - before anything imports a compiled module
from tests.simulation.decisions.found import Decision
from tests.simulation.decisions.modules import traced_modules
from tests.simulation.decisions.tracing import Outcomes, trace

TRACING = trace(traced_modules())

from tests.simulation.many import NICENESS, SEEDS_PER_PROCESS  # noqa: E402 - the broker is imported from here on
from tests.simulation.report import line_of, quieten  # noqa: E402
from tests.simulation.world import Scale, World  # noqa: E402


@dataclass(frozen=True, slots=True)
class Run:
    """One seed with this many brokers."""

    seed: int
    brokers: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What one run has decided. `line`: what came of it."""

    run: Run
    line: str
    outcomes: dict[Decision, Outcomes]


def taken_by_all(runs: Iterable[Run], processes: int | None = None) -> Iterator[Taken]:
    """Yields what the runs have decided, in their order. Without `processes`: one for each processor."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(processes, _begin, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap(taken_by, runs)


def taken_by(run: Run) -> Taken:
    """Runs one seed."""
    TRACING.forget()
    began_s = time.process_time()
    result = World(run.seed, scale=Scale(brokers=run.brokers)).run()
    return Taken(run, line_of(result, time.process_time() - began_s), TRACING.taken())


def _begin() -> None:
    os.nice(NICENESS)
    quieten(logging.CRITICAL)
