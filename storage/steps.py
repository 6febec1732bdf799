"""Long work on a log in steps: a generator that yields wherever other work may run, and returns its result."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

Result = TypeVar("Result")
Steps = Generator[None, None, Result]

BATCHES_PER_STEP = 256
"""How many batches a step reads."""


def finished(steps: Steps[Result]) -> Result:
    """Runs all steps at once and returns their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result
