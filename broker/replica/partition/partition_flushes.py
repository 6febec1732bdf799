"""Flushes of one partition, one at a time, each in a thread.

This coroutine is not compiled: mypyc forwards exceptions to what a compiled coroutine awaits through a form of `throw`
that is deprecated since Python 3.12, so that with `-W error` another exception is raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek.broker.background.tasks import Threads
from odradek.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.storage.log.flushing import FlushJob


class Flusher(Protocol):
    """The part of `FlushScheduler` that the flushes of one partition need."""

    background: Threads

    def begin(self, partition: Partition) -> FlushJob | None: ...

    def finish(self, partition: Partition, job: FlushJob) -> bool: ...

    def failed(self, partition: Partition, error: ProtocolError) -> None: ...

    def ended(self, partition: Partition) -> None: ...


async def flush_until_enough(flusher: Flusher, partition: Partition) -> None:
    """Flushes until everything that must be on disk is flushed, or a flush has failed."""
    try:
        while (job := flusher.begin(partition)) is not None:
            await flusher.background.run_in_thread(job.run)
            if flusher.finish(partition, job):
                return
    except ProtocolError as error:
        flusher.failed(partition, error)
    finally:
        flusher.ended(partition)
