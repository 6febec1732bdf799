"""Closing a log for good. Its records, indexes and producer state are then on the disk, so the next start need not read
the segments.

Like a flush, it has three parts: deciding on the loop what to sync, syncing in any thread, and recording the result on
the loop. So a shutdown can sync many logs at a time, each in its own thread.
"""

from __future__ import annotations

from odradek.storage.log.flushing import FlushJob, LogFlusher
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.log_state import LogState
from odradek.storage.log.producers import LogProducers
from odradek.storage.log.segments import LogSegments
from odradek.storage.log.writer import LogWriter


class LogClosing:
    """Create it on the loop, which closes the log's files; call `run` once, in any thread; then `finish` on the loop.

    Only `finish` raises: KAFKA_STORAGE_ERROR if the log could not be closed properly. Its files are closed all the
    same. A log whose disk has failed before is left as it is.
    """

    __slots__ = ("_error", "_flusher", "_folder", "_job", "_paths", "_segments", "_state", "_writer")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        producers: LogProducers,
        writer: LogWriter,
        flusher: LogFlusher,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._writer = writer
        self._flusher = flusher
        self._job: FlushJob | None = None
        self._paths: list[str] = []
        self._error: OSError | None = None
        try:
            if folder.failure is None:
                self._begin(producers)
        except OSError as error:
            self._error = error
        finally:
            segments.close_files()

    def _begin(self, producers: LogProducers) -> None:
        self._writer.make_writable()
        if producers.take_snapshot():
            self._folder.mark_changed()
        self._job = self._flusher.begin()
        active = self._segments.active
        active.close()
        if self._state.recovery_point > active.base_offset or active.size:
            # the active segment's indexes too: after a clean shutdown the segment is not read again
            self._paths = [active.offset_index.path, active.time_index.path]
            if not active.transaction_index.is_synced:
                self._paths.append(active.transaction_index.path)

    def run(self) -> None:
        """Syncs the files."""
        if self._job is not None:
            self._job.run()
        try:
            for path in self._paths if self._error is None else ():
                self._folder.files.sync_file(path)
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Records the result. Raises KAFKA_STORAGE_ERROR."""
        try:
            if self._job is not None:
                self._flusher.finish(self._job)
            if self._error is not None:
                raise self._writer.storage_error("close failed", self._error) from self._error
        finally:
            self._segments.close_files()
        if self._folder.failure is None:
            self._state.closed_cleanly()
