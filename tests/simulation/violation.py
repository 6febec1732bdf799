"""What is broken in the end of a simulation, and the kind of function that finds it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Operation


class Violation(NamedTuple):
    """A broken invariant; `operations`: those that show it."""

    invariant: str
    text: str
    operations: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


Check = Callable[[History, FinalState], Iterator[Violation]]
