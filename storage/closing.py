"""Closing a log for good: its records, indexes and producers are on the disk afterwards, so that the next start need
not read it.

As a flush it has three parts: what is to be synced is decided on the loop, synced in any thread, and noted on the loop.
So a stop can sync many logs at a time, each in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.protocol.errors import ProtocolError
from odradek.storage import flushing, log_append

if TYPE_CHECKING:
    from odradek.storage.flushing import FlushJob
    from odradek.storage.log import Log


LOGS_AT_A_TIME = 64
"""Each has a few files open while it is synced."""

RunAll = Callable[[Sequence[Callable[[], None]]], None]
"""Calls all functions, which raise nothing, in any order or at once, and returns when all have returned."""


def one_after_the_other(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


class LogClosing:
    """Made on the loop, where it closes the log's files; `run` once, in any thread; then `finish` on the loop.

    Nothing is raised before `finish`, which raises KAFKA_STORAGE_ERROR where the log could not be closed well; its
    files are closed all the same. A log whose disk failed before is left as it is.
    """

    __slots__ = ("_error", "_job", "_log", "_paths")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._job: FlushJob | None = None
        self._paths: list[str] = []
        self._error: OSError | None = None
        try:
            if log.failure is None:
                self._begin()
        except OSError as error:
            self._error = error
        finally:
            log.close_files()

    def _begin(self) -> None:
        log = self._log
        if not log.writable:
            log.make_writable()
        log.leader_epochs.write()
        if log.snapshots.take(log.producer_state, sync=False):
            log.directory_changed = True
        self._job = flushing.begin_flush(log)
        active = log.active_segment
        active.close()
        if log.recovery_point > active.base_offset or active.size:
            # the active segment's indexes too: after a clean shutdown nobody reads the segment again
            self._paths = [active.offset_index.path, active.time_index.path]
            if not active.transaction_index.is_synced:
                self._paths.append(active.transaction_index.path)

    def run(self) -> None:
        """Syncs what is to be synced."""
        if self._job is not None:
            self._job.run()
        try:
            for path in self._paths if self._error is None else ():
                self._log.files.sync_file(path)
        except OSError as error:
            self._error = error

    def finish(self) -> None:
        """Notes how it went. Raises KAFKA_STORAGE_ERROR."""
        log = self._log
        try:
            if self._job is not None:
                flushing.finish_flush(log, self._job)
            if self._error is not None:
                raise log_append.storage_error(log, "close_failed", self._error) from self._error
        finally:
            log.close_files()
        log.closed = log.failure is None


def close_all(logs: list[Log], run_all: RunAll) -> list[tuple[Log, str]]:
    """Closes all logs, some at a time; returns those that could not be closed well, and those that failed before, with
    the reason.
    """
    failed = []
    for start in range(0, len(logs), LOGS_AT_A_TIME):
        closings = [LogClosing(log) for log in logs[start : start + LOGS_AT_A_TIME]]
        run_all([closing.run for closing in closings])
        for log, closing in zip(logs[start:], closings, strict=False):
            try:
                closing.finish()
            except ProtocolError as error:  # named in the log already
                failed.append((log, str(error.__cause__ or error)))
            else:
                if log.failure is not None:
                    failed.append((log, str(log.failure)))
    return failed
