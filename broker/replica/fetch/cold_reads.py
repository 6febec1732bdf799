"""Reads that miss the page cache: a thread loads the data from disk.

This coroutine is not compiled, for the reason given in partition_flushes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from odradek.broker.background.tasks import Threads
    from odradek.storage.log.read import ColdRead

log = structlog.get_logger("broker.replica")


async def read_from_disk(cold_reads: Iterable[ColdRead], threads: Threads, then: Callable[[], object]) -> None:
    """Runs the reads in threads, one after the other, and then calls `then`, which repeats the read."""
    for cold in cold_reads:
        try:
            await threads.run_in_thread(cold.run)
        except OSError as error:
            log.warning("cold read failed", error=str(error))  # the repeated read returns KAFKA_STORAGE_ERROR
    then()
