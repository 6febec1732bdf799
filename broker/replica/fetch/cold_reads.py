"""Reads that take long: they miss the page cache, and a thread loads the data from disk; or they are read in steps.

These coroutines are not compiled, for the reason given in partition_flushes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import structlog

if TYPE_CHECKING:
    from odradek.broker.background.stepwise import Steps
    from odradek.broker.background.tasks import Threads
    from odradek.broker.background.turns import Turns
    from odradek.storage.log.read import ColdRead

T = TypeVar("T")

log = structlog.get_logger("broker.replica")


async def read_from_disk(cold_reads: Iterable[ColdRead], threads: Threads, then: Callable[[], object]) -> None:
    """Runs the reads in threads, one after the other, and then calls `then`, which repeats the read."""
    for cold in cold_reads:
        try:
            await threads.run_in_thread(cold.run)
        except OSError as error:
            log.warning("cold read failed", error=str(error))  # the repeated read returns KAFKA_STORAGE_ERROR
    then()


async def read_in_turns(steps: Steps[T], turns: Turns, then: Callable[[T], object]) -> None:
    """Takes the steps of a read, and then calls `then` with its result."""
    then(await turns.take(steps))
