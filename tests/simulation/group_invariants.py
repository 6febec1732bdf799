"""The invariants of requests that must be refused, and of offsets that expire.

strays        What an unknown member asks of a group, or in a generation that does not exist, is refused. So is what
              nobody may ask of the controller or of a leader.
expired       An offset that expires is there as long as it must be, and gone some time later.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, History, Outcome, Synced
from tests.simulation.proposal_history import StrayRequest
from tests.simulation.transaction_history import BriefAnswer, BriefCommit, Stray
from tests.simulation.violation import Violation

CLOCKS_DIFFER_US = 4_100_000
"""Between two brokers, at most: one notes the commit, the other one lets it expire."""
LONGEST_DELAY_US = 5_000_000
"""Between the end of the retention time and the removal, while one coordinator answers, and can write."""


def strays_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """strays"""
    for stray in (*history.of(Stray), *history.of(StrayRequest)):
        if stray.outcome is Outcome.OK:
            yield Violation("strays", f"{stray.describe()} was not turned away", (stray,))


def brief_offsets_expire(history: History, final: FinalState) -> Iterator[Violation]:
    """expired"""
    last: BriefCommit | None = None
    overdue: BriefAnswer | None = None
    for operation in history.operations:
        if isinstance(operation, BriefCommit):
            last, overdue = operation, None
        elif isinstance(operation, BriefAnswer) and last is not None:
            yield from _not_too_early(last, operation)
            if not _is_overdue(last, operation):
                overdue = None
            elif overdue is None or operation.writer != overdue.writer:
                overdue = operation
            elif operation.invoked_us > overdue.invoked_us + LONGEST_DELAY_US:
                yield Violation("expired", f"offset {operation.offset} has not expired", (last, operation))


def _not_too_early(commit: BriefCommit, answer: BriefAnswer) -> Iterator[Violation]:
    if commit.outcome is not Outcome.OK or answer.outcome is not Outcome.OK or answer.offset == commit.offset:
        return
    if answer.ended_us < commit.invoked_us + commit.retention_us - CLOCKS_DIFFER_US:
        yield Violation("expired", f"offset {commit.offset} has expired too early", (commit, answer))


def _is_overdue(commit: BriefCommit, answer: BriefAnswer) -> bool:
    """Whether a coordinator that can write says that the offset is there after its time: it must not for long."""
    if answer.outcome is not Outcome.OK or answer.offset < 0 or answer.writer is None:
        return False
    return answer.invoked_us > commit.ended_us + commit.retention_us + CLOCKS_DIFFER_US


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
