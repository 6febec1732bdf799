"""A history under construction, for the tests of invariants."""

from __future__ import annotations

from typing import TypeVar

from tests.simulation.history import History, Operation, Outcome

Begun = TypeVar("Begun", bound=Operation)


class Scene:
    """Each operation takes one microsecond."""

    def __init__(self) -> None:
        self.now_us = 0
        self.history = History(lambda: self.now_us)

    def begin(self, operation: Begun) -> Begun:
        """Notes that an operation has begun, and returns it."""
        self.now_us += 1
        return self.history.begin(operation)

    def end(self, operation: Operation, outcome: Outcome = Outcome.OK) -> None:
        """Notes how an operation has ended."""
        self.now_us += 1
        self.history.end(operation, outcome)

    def add(self, operation: Operation, outcome: Outcome = Outcome.OK) -> None:
        """Notes a whole operation, or the beginning of one that stays PENDING."""
        self.begin(operation)
        if outcome is not Outcome.PENDING:
            self.end(operation, outcome)
