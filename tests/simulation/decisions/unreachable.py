"""Which decisions the simulation takes in one way only, or never, and why that is so."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from tests.simulation.decisions.found import Decision


@dataclass(frozen=True, slots=True)
class Reason:
    """`patterns`: file, function and condition of the decisions, with `*` for anything, as `_name` joins them."""

    meaning: str
    patterns: tuple[str, ...] = field(default=())


OPEN = "open"
"""Why a decision is one-sided that no pattern fits."""

REASONS: dict[str, Reason] = {
    OPEN: Reason("It can happen, and no seed has done it: a way in which a bug may hide."),
}


def _name(decision: Decision) -> str:
    return f"{decision.module} {decision.function}: {decision.text}"


def reason_of(decision: Decision) -> str:
    """Returns the name of the first reason with a pattern that fits, or that nothing is known."""
    name = _name(decision)
    return next((reason for reason, pattern in _compiled() if pattern.fullmatch(name)), OPEN)


def patterns_without_a_use(decisions: Iterable[Decision]) -> list[str]:
    """Returns the patterns that none of the decisions fits."""
    names = [_name(decision) for decision in decisions]
    return [pattern.pattern for _, pattern in _compiled() if not any(map(pattern.fullmatch, names))]


@cache
def _compiled() -> list[tuple[str, re.Pattern[str]]]:
    return [
        (name, re.compile(".*".join(map(re.escape, pattern.split("*")))))
        for name, reason in REASONS.items()
        for pattern in reason.patterns
    ]
