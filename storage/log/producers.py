"""A log's producer state at the log's end, and its snapshots on the disk (Kafka's ProducerStateManager)."""

from __future__ import annotations

from odradek.storage.files import Files
from odradek.storage.log.log_state import LogState
from odradek.storage.log.segments import LogSegments
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.replay import Steps, replay
from odradek.storage.producers.snapshots import ProducerSnapshots


class LogProducers:
    __slots__ = ("_files", "snapshots", "state")

    def __init__(self, files: Files, directory: str, expiration_ms: int) -> None:
        self._files = files
        self.state = ProducerState(expiration_ms)
        self.snapshots = ProducerSnapshots(files, directory)

    def take_snapshot(self) -> bool:
        """Writes a snapshot of the current state, which a flush syncs. Returns whether it is new. Raises OSError."""
        return self.snapshots.take(self.state, sync=False)

    def state_at(self, offset: int, log_start_offset: int, segments: LogSegments, now_ms: int) -> Steps[ProducerState]:
        """Returns the state at `offset`, from the newest snapshot not after it and the batches in between. The log's
        own state stays as it is. Raises OSError.
        """
        state = ProducerState(self.state.expiration_ms)
        usable = ProducerSnapshots(self._files, self.snapshots.directory)
        usable.offsets = [known for known in self.snapshots.offsets if segments.base_offsets[0] <= known <= offset]
        usable.load_latest(state, log_start_offset, now_ms)
        ends = [*segments.base_offsets[1:], offset]
        for segment, end in zip(list(segments), ends, strict=True):
            if segment.base_offset < offset and end > state.map_end_offset:
                yield from replay(state, segments.use(segment), max(segment.base_offset, state.map_end_offset), offset)
        state.map_end_offset = offset
        return state

    def go_back_to(self, earlier: ProducerState, log_start_offset: int) -> None:
        """After a truncation: takes over the state at the log's new end, and a snapshot of it. Snapshots of what was
        truncated are removed. Raises OSError.
        """
        self.state.go_back_to(earlier)
        self.snapshots.remove_outside(log_start_offset, earlier.map_end_offset)
        self.snapshots.last_offset = self.snapshots.offsets[-1] if self.snapshots.offsets else log_start_offset
        self.snapshots.take_if_there_is_room(self.state, sync=False)

    def start_over(self, offset: int) -> None:
        """Forgets all producers of a log that starts over at the offset, and removes all snapshots."""
        self.state.clear()
        self.state.map_end_offset = self.snapshots.last_offset = offset
        self.snapshots.remove_outside(offset, offset)

    def rebuild(self, offsets: LogState, segments: LogSegments, now_ms: int, *, clean: bool = False) -> Steps[None]:
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
            yield from replay(state, segments.use(segment), start_offset, end_offset)
        state.map_end_offset = end_offset
        snapshots.take_if_there_is_room(state, sync=True)
