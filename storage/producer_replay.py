"""Counting stored batches into a producer state: what the log holds is not questioned."""

from odradek.protocol.batch_header import BatchHeader, read_batch_header
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ProtocolError
from odradek.storage.batch_scan import CorruptSegment, StoredBatch, whole_batches
from odradek.storage.markers import read_marker
from odradek.storage.producer_state import ProducerState
from odradek.storage.segment import LogSegment
from odradek.storage.transaction_index import AbortedTransaction


def apply_stored(state: ProducerState, batch: StoredBatch, header: BatchHeader) -> AbortedTransaction | None:
    """Counts in a batch that is in the log. Returns the aborted transaction that it ends, if it ends one."""
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
        pass  # recovery leaves no such segment; a log that was closed cleanly is read up to there
