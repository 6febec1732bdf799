"""python -m tests.simulation: runs seeds, replays one, shrinks a failing one. `make simulate SEEDS=A-B`."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from tests.simulation.faults import KINDS, Fault
from tests.simulation.many import SeedReport, report_of, reports
from tests.simulation.planted import BUGS, HARDSHIPS, planted
from tests.simulation.report import explain, line_of, quieten
from tests.simulation.world import Result, Scale, World


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a seed has failed."""
    options = _options(arguments)
    log_level = logging.INFO if options.log else logging.CRITICAL
    quieten(log_level)
    kinds = tuple(KINDS) if options.kind is None else (options.kind,)
    scale = Scale(
        brokers=options.brokers,
        faults=options.faults,
        seconds=options.seconds,
        kinds=kinds,
        ends_when_found=options.bug is not None,
    )
    with contextlib.nullcontext() if options.bug is None else planted(options.bug):
        return _run(options, scale, log_level)


def _run(options: argparse.Namespace, scale: Scale, log_level: int) -> int:
    if options.shrink is not None:
        return shrink(options.shrink, scale, trace=options.trace)
    if options.replay is not None:
        result = run_one(options.replay, scale, trace=options.trace)
        print(line_of(result, 0.0))
        for fault in result.faults:
            print(f"    {fault}")
        explain(result)
        return 0 if result.has_passed else 1
    if options.bug is not None:  # it is planted in this process
        return run_all(map(partial(report_of, scale=scale), options.seeds), until_failure=True)
    return run_all(reports(options.seeds, scale, log_level))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulates brokers and clients.")
    parser.add_argument("--seeds", type=seeds_in, default=range(1, 11), metavar="A-B", help="the seeds to run")
    parser.add_argument("--brokers", type=int, default=Scale.brokers)
    parser.add_argument("--faults", type=int, default=Scale.faults)
    parser.add_argument("--kind", choices=list(KINDS), metavar="NAME", help="the only kind of the faults")
    parser.add_argument("--seconds", type=float, default=Scale.seconds, help="of simulated time")
    parser.add_argument("--replay", type=int, metavar="SEED", help="run one seed and explain what came of it")
    parser.add_argument("--shrink", type=int, metavar="SEED", help="remove faults while the seed still fails")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write all events of --replay, or of what --shrink leaves, to a file"
    )
    parser.add_argument(
        "--bug", choices=[*BUGS, *HARDSHIPS], metavar="NAME", help="plant a bug; stop at the seed that finds it"
    )
    parser.add_argument("--log", action="store_true", help="show what the brokers log")
    return parser.parse_args(arguments)


def seeds_in(text: str) -> range:
    """Returns the seeds A to B of `A-B`, or A alone."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def run_one(seed: int, scale: Scale, faults: Sequence[Fault] | None = None, trace: Path | None = None) -> Result:
    """Runs one seed."""
    if trace is None:
        return World(seed, scale=scale, faults=faults).run()
    with trace.open("w") as lines:
        return World(seed, scale=scale, faults=faults, lines=lines).run()


def run_all(ended: Iterable[SeedReport], *, until_failure: bool = False) -> int:
    """Prints what came of many seeds, and explains those that have failed."""
    seeds, failed, cpu_s = 0, [], 0.0
    for report in ended:
        print(report.text, end="", flush=True)
        seeds += 1
        cpu_s += report.cpu_s
        if not report.has_passed:
            failed.append(report.seed)
            if until_failure:
                break
    print(f"{seeds} seeds in {cpu_s:.1f} s of processor time, {len(failed)} failed {failed}")
    return 1 if failed else 0


def shrink(seed: int, scale: Scale, trace: Path | None = None) -> int:
    """Removes faults as long as the seed still breaks the same invariant. Prints those that are left."""
    result = run_one(seed, scale)
    if result.has_passed:
        print(f"seed {seed} passes")
        return 0
    broken = _broken(result)
    print(f"seed {seed} breaks {sorted(broken)} with {len(result.faults)} faults")
    faults = fewest(result.faults, lambda fewer: bool(_broken(run_one(seed, scale, fewer)) & broken))
    for fault in faults:
        print(f"    {fault}")
    explain(run_one(seed, scale, faults, trace))
    return 1


def fewest(faults: Sequence[Fault], still_fails: Callable[[list[Fault]], bool]) -> list[Fault]:
    """Removes halves, quarters and so on down to single faults, until no single fault can be removed any more."""
    left = list(faults)
    size = max(len(left) // 2, 1)
    while size:
        before = len(left)
        start = 0
        while start < len(left):
            fewer = left[:start] + left[start + size :]
            if still_fails(fewer):
                left = fewer
                print(f"{len(left)} faults are enough", flush=True)
            else:
                start += size
        if size > 1 or len(left) == before:
            size //= 2
    return left


def _broken(result: Result) -> set[str]:
    return {violation.invariant for violation in result.violations} | ({"raised"} if result.failures else set())
