"""The invariants of groups that concern requests that must be refused, and offsets that expire.

strays        What an unknown member asks, or in a generation that does not exist, is refused.
expired       An offset that expires is there as long as it must be, and gone some time later.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, History, Outcome, Synced
from tests.simulation.transaction_history import BriefAnswer, BriefCommit, Stray
from tests.simulation.violation import Violation

CLOCKS_DIFFER_US = 4_100_000
"""Between two brokers, at most: one notes the commit, the other one lets it expire."""
LONGEST_DELAY_US = 10_000_000
"""Between the end of the retention time and the removal, while there is a coordinator."""
LOOKS_WITHIN_US = 7_000_000
"""A coordinator that answers without interruption looks for what has expired, and can write, within this time."""


def strays_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """strays"""
    for stray in history.of(Stray):
        if stray.outcome is Outcome.OK:
            yield Violation("strays", f"{stray.describe()} was accepted", (stray,))


def brief_offsets_expire(history: History, final: FinalState) -> Iterator[Violation]:
    """expired"""
    last: BriefCommit | None = None
    served_since_us: int | None = None
    for operation in history.operations:
        if not isinstance(operation, BriefCommit | BriefAnswer):
            continue
        if operation.outcome is not Outcome.OK:
            served_since_us = None
        elif served_since_us is None:
            served_since_us = operation.invoked_us
        if isinstance(operation, BriefCommit):
            last = operation
        elif served_since_us is not None and last is not None:
            yield from _judged(last, operation, served_since_us)


def _judged(commit: BriefCommit, answer: BriefAnswer, served_since_us: int) -> Iterator[Violation]:
    """`served_since_us`: from then on there was a coordinator, which removes what has expired every few seconds."""
    earliest_us = commit.invoked_us + commit.retention_us - CLOCKS_DIFFER_US
    over_us = commit.ended_us + commit.retention_us + CLOCKS_DIFFER_US
    if commit.outcome is Outcome.OK and answer.ended_us < earliest_us and answer.offset != commit.offset:
        yield Violation("expired", f"offset {commit.offset} has expired too early", (commit, answer))
    latest_us = max(over_us + LONGEST_DELAY_US, served_since_us + LOOKS_WITHIN_US)
    if answer.invoked_us > latest_us and answer.offset >= 0:
        yield Violation("expired", f"offset {answer.offset} has not expired", (commit, answer))


def replaced_members_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """instances"""
    newest: dict[tuple[str, str], Synced] = {}
    for operation in history.operations:
        if isinstance(operation, Synced) and operation.instance_id is not None:
            newest[operation.group, operation.instance_id] = operation
        elif isinstance(operation, Commit) and operation.instance_id is not None and operation.outcome is Outcome.OK:
            known = newest.get((operation.group, operation.instance_id))
            if known is not None and known.process != operation.process:
                text = f"{operation.process} committed as {operation.instance_id} after {known.process}"
                yield Violation("instances", f"{text} had taken its place", (known, operation))
