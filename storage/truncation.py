"""Truncating a follower's log to an offset, to remove batches that the leader does not have.

Truncated batches and their snapshots must not reappear after a crash, so the truncation is on the disk when it returns.
"""

from __future__ import annotations

from odradek.storage.leader_epochs import LeaderEpochs
from odradek.storage.log_config import LogConfig
from odradek.storage.log_folder import LogFolder
from odradek.storage.log_positions import LogPositions
from odradek.storage.log_producers import LogProducers
from odradek.storage.log_segments import LogSegments
from odradek.storage.log_state import LogState


class Truncation:
    __slots__ = ("_folder", "_leader_epochs", "_positions", "_producers", "_segments", "_state")

    def __init__(
        self,
        state: LogState,
        folder: LogFolder,
        segments: LogSegments,
        positions: LogPositions,
        producers: LogProducers,
        leader_epochs: LeaderEpochs,
    ) -> None:
        self._state = state
        self._folder = folder
        self._segments = segments
        self._positions = positions
        self._producers = producers
        self._leader_epochs = leader_epochs

    def cut_at(self, offset: int, config: LogConfig) -> bool:
        """See Log.truncate_to. Raises OSError."""
        state, segments = self._state, self._segments
        if offset >= state.log_end_offset:
            self._leader_epochs.truncate_from_end(state.log_end_offset)
            return False
        state.truncation_begun(offset)
        self._positions.forget()
        if offset < segments.base_offsets[0]:
            self._start_over(offset, config)
        else:
            self._cut(offset, config)
        self._producers.state.forget_replicated(state.high_watermark)
        return True

    def _cut(self, offset: int, config: LogConfig) -> None:
        state, segments, folder = self._state, self._segments, self._folder
        for segment in [segment for segment in segments if segment.base_offset > offset]:
            segments.delete(segment, self._producers.snapshots, config.file_delete_delay_ms)
        active = segments.active
        segments.note_synced(active)
        segments.forget_use(active)
        now_ms = folder.clock.wall_ms()
        active.truncate_to(offset, now_ms)
        state.truncated_to(offset)
        self._leader_epochs.truncate_from_end(offset)
        self._producers.rebuild(state, segments, now_ms)
        active.file.sync()
        folder.files.sync_directory(folder.path)

    def _start_over(self, offset: int, config: LogConfig) -> None:
        """Starts an empty log at `offset`, which is below all of the log's offsets."""
        state, segments = self._state, self._segments
        segment = segments.create(offset, config)
        for old in list(segments):
            segments.delete(old, self._producers.snapshots, config.file_delete_delay_ms)
        segments.add(segment)
        state.truncated_to(offset)
        self._leader_epochs.clear()
        self._producers.rebuild(state, segments, self._folder.clock.wall_ms())
