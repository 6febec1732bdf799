"""Removing the end of a follower's log, or all of it, because the leader does not have these batches.

A truncation runs in steps, so that thousands of logs can be truncated together (bulk_truncation). `begin` decides and
withdraws: the offsets that are about to be removed no longer count as flushed, cleaned or replicated. The caller must
write the checkpoints before it takes the first of the `steps`. Each step does a bounded piece of work on the loop, and
yields what must run before the next one: a function to run in a thread, or None for a turn of the loop.

Truncated batches must not reappear after a crash, and the batches that later get their offsets must not be lost:
(A) the checkpointed recovery point lies at or below the cut before anything is removed. So recovery reads everything
    from there on, and rebuilds indexes, transaction indexes, epochs and snapshots from the batches that it finds;
(B) segments are removed from the last one on, and the folder is synced before the active segment is cut. At no time can
    a crash leave a segment after a gap;
(C) the cut, too, is on the disk when the steps end;
(D) a log that starts over is first empty at its old start, on the disk. Only then does its empty segment get another
    offset.

Between the steps the log may be read, flushed and closed, but nothing may be appended. Retention, cleaning and moves
wait until the truncation ends (LogState, F).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.log.flushing import LogFlusher
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.log_state import LogState
from odradek.storage.log.positions import LogPositions
from odradek.storage.log.producers import LogProducers
from odradek.storage.log.segments import LogSegments
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.replay import Steps

SEGMENTS_PER_STEP = 32


class Truncate(NamedTuple):
    """Removes everything from the offset on. A batch that contains the offset is removed, too."""

    offset: int


class StartOver(NamedTuple):
    """Removes everything; the log then starts and ends at the offset (Kafka's truncateFullyAndStartAt)."""

    offset: int


Target = Truncate | StartOver
Work = Callable[[], None]
TruncationSteps = Generator[Work | None, None, None]


class LogTruncation:
    """One truncation of one log. Call `begin`; if it returns True, write the checkpoints and take all `steps`, or else
    call `give_up`.
    """

    def __init__(
        self,
        target: Target,
        config: LogConfig,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        positions: LogPositions,
        producers: LogProducers,
        leader_epochs: LeaderEpochs,
        flusher: LogFlusher,
    ) -> None:
        self._target = target
        self._config = config
        self._state = state
        self._folder = folder
        self._segments = segments
        self._positions = positions
        self._producers = producers
        self._leader_epochs = leader_epochs
        self._flusher = flusher
        self._cut_at = 0
        self._start_at: int | None = None

    def begin(self) -> bool:
        """Withdraws what will be removed; returns False if the log ends at the offset or before. Raises
        KAFKA_STORAGE_ERROR.
        """
        state, first_offset = self._state, self._segments.base_offsets[0]
        offset = self._target.offset
        try:
            if self._folder.failure is not None:
                raise self._folder.failure
            if isinstance(self._target, StartOver) or offset < first_offset:
                self._cut_at, self._start_at = first_offset, offset
            elif offset < state.log_end_offset:
                self._cut_at = self._boundary(offset)
            else:
                self._leader_epochs.truncate_from_end(state.log_end_offset)
                return False
        except OSError as error:
            raise self._not_truncated(error) from error
        state.truncation_begun(self._cut_at if self._start_at is None else min(self._cut_at, self._start_at))
        self._positions.forget()
        return True

    def _boundary(self, offset: int) -> int:
        """Returns the offset, or the base offset of the batch that contains it."""
        located = self._positions.locate(offset)
        if located is None:
            return offset
        segment, position, _ = located
        batch = next(segment.scan(position))
        return min(offset, max(batch.base_offset, segment.base_offset))

    def steps(self) -> TruncationSteps:
        """Raises KAFKA_STORAGE_ERROR. If files could not be removed, the log accepts no appends until it is opened
        again.
        """
        try:
            earlier = None
            if self._start_at is None:
                earlier = yield from self._earlier_producers()
            yield from self._remove_segments()
            self._cut(earlier)
            yield from self._sync()
            if self._start_at is not None:
                self._start_over(self._start_at)
                yield from self._sync()
        except OSError as error:
            raise self._not_truncated(error) from error
        finally:
            self._state.truncation_ended()

    def give_up(self) -> None:
        """Ends a truncation that has begun, if its steps have not. What was withdrawn is flushed and cleaned again."""
        self._state.truncation_ended()

    # ---- the steps

    def _earlier_producers(self) -> Steps[ProducerState]:
        now_ms = self._folder.clock.wall_ms()
        return self._producers.state_at(self._cut_at, self._state.log_start_offset, self._segments, now_ms)

    def _remove_segments(self) -> TruncationSteps:
        """Removes the segments after the cut, from the last one on (B)."""
        segments, doomed = self._segments, 0
        while segments.active.base_offset > self._cut_at:
            try:
                self._remove_last()
            except OSError as error:
                self._folder.fail(error)
                raise
            doomed += 1
            if doomed % SEGMENTS_PER_STEP == 0:
                yield None
        if doomed:
            self._folder.mark_changed()
            yield from self._sync()

    def _remove_last(self) -> None:
        segments, active = self._segments, self._segments.active
        end_offset = active.base_offset
        segments.delete(active, self._producers.snapshots, self._config.file_delete_delay_ms)
        segments.note_synced(segments.active)
        segments.forget_use(segments.active)
        self._positions.forget()
        self._state.truncated_to(end_offset)

    def _sync(self) -> TruncationSteps:
        """Syncs what was changed, without making more of the log durable than it is."""
        job = self._flusher.begin(self._state.recovery_point)
        if job is not None:
            yield job.run
            self._flusher.finish(job)

    def _cut(self, earlier: ProducerState | None) -> None:
        """Removes the batches from the cut on. `earlier`: the producers' state there; None if the log starts over."""
        state, segments = self._state, self._segments
        active = segments.active
        try:
            active.truncate_to(self._cut_at, self._folder.clock.wall_ms())
        except OSError as error:
            self._folder.fail(error)
            raise
        segments.active_was_cut = True
        self._positions.forget()
        state.truncated_to(self._cut_at)
        self._leader_epochs.truncate_from_end(self._cut_at)
        if earlier is not None:
            self._producers.go_back_to(earlier, state.log_start_offset)
            self._producers.state.forget_replicated(state.high_watermark)

    def _start_over(self, offset: int) -> None:
        """Case (D)."""
        segments = self._segments
        self._is_empty_at(segments.active.base_offset)
        if offset != segments.active.base_offset:
            segments.replace_empty(offset, self._config, self._producers.snapshots)
            self._is_empty_at(offset)

    def _is_empty_at(self, offset: int) -> None:
        self._positions.forget()
        self._state.started_over(offset)
        self._leader_epochs.clear()
        self._producers.start_over(offset)

    def _not_truncated(self, error: OSError) -> ProtocolError:
        folder = self._folder
        folder.report("truncation failed", error, directory=folder.path)
        message = f"the log of {folder.topic_partition} cannot be truncated: {error.strerror}"
        return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, message)
