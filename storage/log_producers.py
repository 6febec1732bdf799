"""A log's producer state at the log's end, and its snapshots on the disk (Kafka's ProducerStateManager)."""

from __future__ import annotations

from odradek.storage.files import Files
from odradek.storage.log_segments import LogSegments
from odradek.storage.log_state import LogState
from odradek.storage.producer_replay import replay
from odradek.storage.producer_snapshots import ProducerSnapshots
from odradek.storage.producer_state import ProducerState


class LogProducers:
    __slots__ = ("snapshots", "state")

    def __init__(self, files: Files, directory: str, expiration_ms: int) -> None:
        self.state = ProducerState(expiration_ms)
        self.snapshots = ProducerSnapshots(files, directory)

    def take_snapshot(self) -> bool:
        """Writes a snapshot of the current state, which a flush syncs. Returns whether it is new. Raises OSError."""
        return self.snapshots.take(self.state, sync=False)

    def rebuild(self, offsets: LogState, segments: LogSegments, now_ms: int, *, clean: bool = False) -> None:
        """Like Kafka's UnifiedLog.rebuildProducerState: afterwards the state is at the log's end and has a snapshot
        there.

        A log that was closed cleanly and has no snapshot was written by an old Kafka: it gets empty snapshots instead
        of being read. Raises OSError.
        """
        state, snapshots, end_offset = self.state, self.snapshots, offsets.log_end_offset
        last_bases = segments.base_offsets[-2:]
        if clean and not snapshots.offsets:
            for offset in [*last_bases, end_offset]:
                state.map_end_offset = offset
                snapshots.take_if_there_is_room(state, sync=True)
            return
        snapshots.remove_outside(offsets.log_start_offset, end_offset)
        state.clear()
        snapshots.load_latest(state, offsets.log_start_offset, now_ms)
        for slot, segment in enumerate(segments):
            next_base = segments.next_base(slot)
            segment_end = end_offset if next_base is None else next_base
            if segment_end <= state.map_end_offset and segment_end < end_offset:
                continue
            start_offset = max(segment.base_offset, state.map_end_offset, offsets.log_start_offset)
            if start_offset >= end_offset:
                break
            state.map_end_offset = start_offset
            if segment.base_offset in last_bases:
                snapshots.take_if_there_is_room(state, sync=True)
            replay(state, segments.use(segment), start_offset, end_offset)
        state.map_end_offset = end_offset
        snapshots.take_if_there_is_room(state, sync=True)
