"""Making a log durable: what is to be synced is decided on the loop, synced in a thread, and noted on the loop.

A log's recovery point is the offset below which everything is on the disk. What lies behind it is read again
after a crash, indexes included, so of the active segment the records alone are synced. A sealed segment is synced
with its indexes before the recovery point that is checkpointed leaves it: order is files, then directory, then
recovery point, then checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.files import File

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment

_log = structlog.get_logger(__name__)


class FlushJob:
    """Handles of its own on the files to sync. `run` once, in any thread; then Log.finish_flush on the loop."""

    __slots__ = (
        "_directory",
        "_files",
        "_log_files",
        "_snapshots",
        "end_offset",
        "error",
        "generation",
        "origin",
        "sealed",
    )

    def __init__(self, log: Log, end_offset: int, files: list[File], sealed: list[LogSegment]) -> None:
        self.end_offset = end_offset
        self.generation = log.generation
        self.origin = log.directory
        self.sealed = sealed
        self.error: OSError | None = None
        self._log_files = log.files
        self._files = files
        self._snapshots = log.snapshots.unsynced
        log.snapshots.unsynced = []
        self._directory = log.directory if log.directory_changed else None
        log.directory_changed = False

    def run(self) -> None:
        """Syncs in order; an OSError is kept in `error` for finish_flush."""
        try:
            for path in self._snapshots:
                self._log_files.sync_file(path)
            for file in self._files:
                file.sync()
            if self._directory is not None:
                self._log_files.sync_directory(self._directory)
        except OSError as error:
            self.error = error
        finally:
            for file in self._files:
                file.close()


def begin_flush(log: Log, end_offset: int | None = None) -> FlushJob | None:
    """What it takes to make everything below `end_offset` (the log's end if None) durable; None when it is. Raises
    OSError.
    """
    if end_offset is None:
        end_offset = log.log_end_offset
    sealed = [segment for segment in log.unsynced_segments if segment.base_offset < end_offset]
    active = log.active_segment
    needs_active = log.recovery_point < end_offset and end_offset > active.base_offset
    if not sealed and not needs_active and not log.directory_changed:
        log.recovery_point = max(log.recovery_point, end_offset)
        return None
    files: list[File] = []
    try:
        for segment in sealed:
            files += [file.duplicate() for file in segment.files_to_sync()]
            segment.release()
        if needs_active:
            files.append(active.file.duplicate())
    except OSError:
        for file in files:
            file.close()
        raise
    return FlushJob(log, end_offset, files, sealed)


def finish_flush(log: Log, job: FlushJob) -> None:
    """Notes that the job has run. Raises KAFKA_STORAGE_ERROR when it failed: what the disk then holds is not known
    any more, so the log takes no further appends until it is opened again.
    """
    if job.origin != log.directory:
        return  # moved meanwhile: what was synced, or could not be, is not the log's any more
    if job.error is not None:
        _log.error("flush_failed", partition=str(log.topic_partition), directory=log.directory, reason=str(job.error))
        log.fail(job.error)
        raise ProtocolError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {log.topic_partition} cannot be flushed: {job.error.strerror}"
        )
    if job.generation != log.generation:
        return  # truncated meanwhile: the offsets are others now
    for segment in job.sealed:
        segment.transaction_index.is_synced = True
        if segment in log.unsynced_segments:
            log.unsynced_segments.remove(segment)
            if segment is not log.active_segment:
                log.use(segment)
    if job.end_offset > log.recovery_point:
        log.recovery_point = job.end_offset
    log.last_flush_ms = log.clock.now_ms()
