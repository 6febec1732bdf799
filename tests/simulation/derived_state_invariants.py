"""The invariants of what brokers derive from the batches of their logs, and of what the cleaner leaves.

derived    after each start, each truncation and each cleaning, the offsets, leader epochs, indexes and producers of a
           log, in memory and in its files, are those that a rebuild from its batches gives (derived_state.py)
cleaned    a cleaning removes nothing that must stay: no marker while its records are there, nothing beyond the last
           stable offset, no last record of a key (cleaning.py)
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.final_state import FinalState
from tests.simulation.history import History
from tests.simulation.log_history import Miscleaned, Underived
from tests.simulation.violation import Violation


def derived_state_is_that_of_the_batches(history: History, final: FinalState) -> Iterator[Violation]:
    """derived"""
    for found in history.of(Underived):
        yield Violation("derived", f"{found.process} {found.describe()}", (found,))


def cleanings_keep_what_must_stay(history: History, final: FinalState) -> Iterator[Violation]:
    """cleaned"""
    for found in history.of(Miscleaned):
        yield Violation("cleaned", f"{found.process} {found.describe()}", (found,))
