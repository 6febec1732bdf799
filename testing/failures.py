"""How a test fails: a state that it waits for was not reached, or what the kit has noticed goes with its exception, as
notes, for it may be the cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class NotReached(AssertionError):
    """A state was not reached in time. The message shows the state instead."""


class Witness(Protocol):
    """Something that notices what tests do wrong."""

    def notes(self) -> list[str]:
        """Returns what it has noticed, a text each."""


@contextlib.contextmanager
def explained_by(*witnesses: Witness) -> Iterator[None]:
    """An exception that passes gets their notes."""
    try:
        yield
    except BaseException as error:
        explain(error, *witnesses)
        raise


def explain(error: BaseException, *witnesses: Witness) -> None:
    """Adds their notes to an exception."""
    for witness in witnesses:
        for note in witness.notes():
            error.add_note(note)
