"""What is printed about a seed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

import structlog

from tests.simulation.violation import Violation
from tests.simulation.world import Result

SHOWN_VIOLATIONS = 5
"""Of each invariant, and of what was raised."""
SHOWN_OPERATIONS = 60


def quieten(level: int) -> None:
    """Brokers log what goes wrong in a simulation; that is expected here."""
    to_stderr = structlog.PrintLoggerFactory(sys.stderr)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level), logger_factory=to_stderr)


def line_of(result: Result, cpu_s: float) -> str:
    """One line about a seed."""
    secured = "" if result.security is None else f"logins by {result.security.mechanism}, "
    state = "passed" if result.has_passed else "FAILED"
    return (
        f"seed {result.seed}: {state}, {result.acknowledged_records} records in {result.produce_requests} requests, "
        f"{result.transactions} transactions, {result.records_read} read, {result.hits} of {len(result.faults)} faults "
        f"hit, {secured}{result.seconds:.0f} s in {cpu_s:.2f} s, {result.events} events {result.digest}"
    )


def by_invariant(violations: Iterable[Violation]) -> Mapping[str, list[Violation]]:
    """Those of each invariant that is broken."""
    found: dict[str, list[Violation]] = {}
    for violation in violations:
        found.setdefault(violation.invariant, []).append(violation)
    return found


def explain(result: Result) -> None:
    """Prints what was violated, and the history around it."""
    for failure in result.failures[:SHOWN_VIOLATIONS]:
        print(f"    raised at {failure['time']:.6f}: {failure.get('exception')!r} ({failure['message']})")
    for of_invariant in by_invariant(result.violations).values():
        for violation in of_invariant[:SHOWN_VIOLATIONS]:
            print(f"    {violation}")
        if len(of_invariant) > SHOWN_VIOLATIONS:
            print(f"    and {len(of_invariant) - SHOWN_VIOLATIONS} more")
    shown = next((violation for violation in result.violations if violation.operations), None)
    if shown is not None:
        print(f"  the history around: {shown}")
        for operation in result.history.around(shown.operations)[:SHOWN_OPERATIONS]:
            mark = ">" if operation in shown.operations else " "
            print(f"  {mark} {operation}")
        for fault in result.faults:
            print(f"    fault {fault}")
