"""Bringing a log's producer state to its end: from the newest snapshot that can be read, and the batches behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.protocol.batch_header import BatchHeader, read_batch_header
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ProtocolError
from odradek.storage.batch_scan import CorruptSegment, StoredBatch, whole_batches
from odradek.storage.log_append import read_marker
from odradek.storage.producer_state import ProducerState
from odradek.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.segment import LogSegment


def apply_stored(state: ProducerState, batch: StoredBatch, header: BatchHeader) -> AbortedTransaction | None:
    """Counts in a batch that is in the log; what it says is not questioned. Returns an aborted transaction that it
    ends.
    """
    if header.producer_id < 0:
        return None
    if not header.is_control:
        state.apply_data_batch(header)
        return None
    marker = _marker_of(batch, header)
    if marker is None:
        return None
    return state.apply_marker(header, marker.aborted, marker.coordinator_epoch, marker.timestamp)


def _marker_of(batch: StoredBatch, header: BatchHeader) -> Marker | None:
    try:
        return read_marker(batch.data, batch.start, header)
    except ProtocolError:  # a control batch that nobody can read decides nothing
        return None


def rebuild_producer_state(log: Log, *, clean: bool = False) -> None:
    """As Kafka's UnifiedLog.rebuildProducerState: afterwards the state stands at the log's end and has a snapshot
    there.

    A log that was closed cleanly and has no snapshot at all is one of old: it is given empty ones instead of being
    read. Raises OSError.
    """
    state, snapshots, end_offset = log.producer_state, log.snapshots, log.log_end_offset
    last_bases = log.base_offsets[-2:]
    if clean and not snapshots.offsets:
        for offset in [*last_bases, end_offset]:
            state.map_end_offset = offset
            snapshots.take_if_there_is_room(state, sync=True)
        return
    snapshots.remove_outside(log.log_start_offset, end_offset)
    state.clear()
    snapshots.load_latest(state, log.log_start_offset, log.clock.wall_ms())
    for slot, segment in enumerate(log.segments):
        segment_end = log.base_offsets[slot + 1] if slot + 1 < len(log.segments) else end_offset
        if segment_end <= state.map_end_offset and segment_end < end_offset:
            continue
        start_offset = max(segment.base_offset, state.map_end_offset, log.log_start_offset)
        if start_offset >= end_offset:
            break
        state.map_end_offset = start_offset
        if segment.base_offset in last_bases:
            snapshots.take_if_there_is_room(state, sync=True)
        replay(state, log.use(segment), start_offset, end_offset)
    state.map_end_offset = end_offset
    snapshots.take_if_there_is_room(state, sync=True)


def replay(state: ProducerState, segment: LogSegment, start_offset: int, end_offset: int) -> None:
    """Counts in the segment's batches from the one that holds `start_offset` on, up to `end_offset`."""
    where = segment.locate(start_offset)
    if where is None:
        return
    try:
        for batch in whole_batches(segment.file, where[0], segment.size):
            if batch.magic < 2:
                continue
            header = read_batch_header(batch.data, batch.start)
            if header.base_offset >= end_offset:
                break
            apply_stored(state, batch, header)
    except CorruptSegment:
        pass  # recovery lets nothing such stand; a log that was closed cleanly is read as far as it goes
