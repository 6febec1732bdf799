"""What is wrong at the moment when it happens, although later work may repair it: operations of the history, and the
invariants that report them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Operation, Wrong
from tests.simulation.violation import Check, Violation

O = TypeVar("O", bound=Operation)  # noqa: E741


class Finding(NamedTuple):
    """Something that breaks an invariant."""

    invariant: str
    text: str


@dataclass(slots=True, kw_only=True, eq=False)
class Misstep(Wrong):
    """A change in the store, or a moment of a broker, that breaks an invariant."""

    finding: Finding

    def describe(self) -> str:
        """See Operation."""
        return self.finding.text


def no_missteps(invariant: str) -> Check:
    """The invariant of this name: there is no finding of it."""

    def judge(history: History, final: FinalState) -> Iterator[Violation]:
        for misstep in history.of(Misstep):
            if misstep.finding.invariant == invariant:
                yield Violation(invariant, misstep.finding.text, (misstep,))

    judge.__doc__ = invariant
    return judge


def begun_since(history: History, kind: type[O], since_us: int) -> Iterator[O]:
    """The operations of one kind that were begun at this time or later, the last one first."""
    for operation in reversed(history.operations):
        if operation.invoked_us < since_us:
            return
        if isinstance(operation, kind):
            yield operation
