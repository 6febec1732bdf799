"""Making a log durable: the loop decides what to sync, a thread syncs it, and the loop records the result.

After a crash, everything after the recovery point is read again and its indexes are rebuilt, so only the records of the
active segment are synced. A sealed segment is synced with its indexes before the checkpointed recovery point moves past
it. The order is files, then directory, then recovery point, then checkpoint. New leader epochs are written with the
first flush after them (leader_epochs).
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.files import File, Files
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.producers.snapshots import ProducerSnapshots
from odradek.storage.segment.segment import LogSegment

_log = structlog.get_logger(__name__)


class FlushJob:
    """Makes everything below `end_offset` durable: the leader epochs (`write_epochs`), the `snapshots` (paths), the
    files of the `handles`, which the job owns, then the log's `directory` if `sync_directory` is set. Call `run` once,
    in any thread, then LogFlusher.finish on the loop.

    `has_active`: the active segment is among the files.
    """

    __slots__ = (
        "_files",
        "_handles",
        "_snapshots",
        "_sync_directory",
        "_write_epochs",
        "directory",
        "end_offset",
        "epochs_error",
        "error",
        "generation",
        "has_active",
        "sealed",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        generation: int,
        end_offset: int,
        *,
        write_epochs: Callable[[], None] | None,
        handles: list[File],
        sealed: list[LogSegment],
        has_active: bool,
        snapshots: list[str],
        sync_directory: bool,
    ) -> None:
        self.directory = directory
        self.generation = generation
        self.end_offset = end_offset
        self.sealed = sealed
        self.has_active = has_active
        self.error: OSError | None = None
        self.epochs_error: OSError | None = None
        self._files = files
        self._write_epochs = write_epochs
        self._handles = handles
        self._snapshots = snapshots
        self._sync_directory = sync_directory

    def run(self) -> None:
        """Syncs in order; keeps an OSError in `error` or `epochs_error` for LogFlusher.finish."""
        try:
            if self._write_epochs is not None:
                self._write_epochs()
        except OSError as error:
            self.epochs_error = error
        try:
            for path in self._snapshots:
                self._files.sync_file(path)
            for handle in self._handles:
                handle.sync()
            if self._sync_directory:
                self._files.sync_directory(self.directory)
        except OSError as error:
            self.error = error
        finally:
            for handle in self._handles:
                handle.close()


class LogFlusher:
    """`last_flush_ms` is monotonic clock time."""

    __slots__ = ("_folder", "_leader_epochs", "_segments", "_snapshots", "_state", "last_flush_ms")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        snapshots: ProducerSnapshots,
        leader_epochs: LeaderEpochs,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._snapshots = snapshots
        self._leader_epochs = leader_epochs
        self.last_flush_ms = folder.clock.now_ms()

    def begin(self, end_offset: int | None = None) -> FlushJob | None:
        """Returns the job that makes everything below `end_offset` (the log's end if None) durable; None if it already
        is, or if the log is abandoned or has failed: an fsync that succeeds after one that failed proves nothing.
        Raises OSError.
        """
        state, folder = self._state, self._folder
        if folder.is_abandoned or folder.failure is not None:
            return None
        if end_offset is None:
            end_offset = state.log_end_offset
        sealed = [segment for segment in self._segments.unsynced if segment.base_offset < end_offset]
        active = self._segments.active
        needs_active = state.recovery_point < end_offset and end_offset > active.base_offset
        needs_active = needs_active or self._segments.active_was_cut
        if not sealed and not needs_active and not folder.changed and self._leader_epochs.is_written:
            state.flushed_to(end_offset)
            return None
        handles: list[File] = []
        try:
            for segment in sealed:
                handles += [file.duplicate() for file in segment.files_to_sync()]
                segment.release()
            if needs_active:
                handles.append(active.file.duplicate())
        except OSError:
            for handle in handles:
                handle.close()
            raise
        return FlushJob(
            folder.files,
            folder.path,
            state.generation,
            end_offset,
            write_epochs=self._leader_epochs.take_write(),
            handles=handles,
            sealed=sealed,
            has_active=needs_active,
            snapshots=self._snapshots.take_unsynced(),
            sync_directory=folder.take_changed(),
        )

    def finish(self, job: FlushJob) -> None:
        """Records the result of a job. Raises KAFKA_STORAGE_ERROR if it failed: the disk's content is then unknown, so
        the log accepts no appends until it is opened again. If only the leader epochs could not be written, the file is
        as it was, and the next flush tries again.
        """
        state, folder, segments = self._state, self._folder, self._segments
        if job.directory != folder.path:
            return  # moved meanwhile: the result is about files that no longer belong to the log
        if job.error is not None:
            partition, error = str(folder.topic_partition), job.error
            _log.error("flush failed", partition=partition, directory=folder.path, reason=str(error))
            folder.fail(error)
            raise self._not_flushed(error) from error
        if folder.failure is not None:
            raise self._not_flushed(folder.failure)  # another flush, of the same pages maybe
        if job.generation != state.generation:
            return  # truncated meanwhile: the offsets may have other records now
        for segment in job.sealed:
            segment.transaction_index.is_synced = True
            if segments.note_synced(segment) and segment is not segments.active:
                segments.use(segment)
        if job.has_active:
            segments.active_was_cut = False
        if job.epochs_error is not None:
            folder.report("leader epochs not written", job.epochs_error, directory=folder.path)
            raise self._not_flushed(job.epochs_error) from job.epochs_error
        state.flushed_to(job.end_offset)
        if job.sealed or job.has_active:
            self.last_flush_ms = folder.clock.now_ms()

    def _not_flushed(self, error: OSError) -> ProtocolError:
        message = f"the log of {self._folder.topic_partition} cannot be flushed: {error.strerror}"
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    @property
    def safe_recovery_point(self) -> int:
        """The recovery point to checkpoint. After a crash, segments without synced indexes must be read again.

        The active segment is one of them. Its recovery point must not equal the log's end: once the next segment starts
        there, the active one would seem to lie before the recovery point. The same holds for the end to which the log
        is being truncated, because the segment that will be active there loses index entries.
        """
        state, segments = self._state, self._segments
        offset = min([state.recovery_point, *(segment.base_offset for segment in segments.unsynced)])
        if not state.closed and offset == state.log_end_offset > segments.base_offsets[-1]:
            return offset - 1
        if offset == state.truncating_to and offset > 0:
            return offset - 1
        return offset
