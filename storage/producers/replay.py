"""Applying stored batches to a producer state. Batches that are in the log are not validated again."""

from collections.abc import Generator
from typing import TypeVar

from odradek.protocol.batch_header import BatchHeader, Buffer, read_batch_header
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ProtocolError
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.transaction_marker import read_marker
from odradek.storage.segment.batch_scan import CorruptSegment, StoredBatch, whole_batches
from odradek.storage.segment.segment import LogSegment
from odradek.storage.segment.transaction_index import AbortedTransaction

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Long work on a log: yields wherever other work may run, and returns its result."""

BATCHES_PER_STEP = 256
"""How many batches a step reads."""


def apply_stored(state: ProducerState, batch: StoredBatch, header: BatchHeader) -> AbortedTransaction | None:
    """Applies a batch of the log to the state. Returns the aborted transaction that the batch ends, or None."""
    if header.producer_id < 0:
        return None
    return state.apply(header, marker_in(batch.data, batch.start, header) if header.is_control else None)


def marker_in(data: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """Returns the marker of a control batch of the log. One that cannot be read ends no transaction: None."""
    try:
        return read_marker(data, position, header)
    except ProtocolError:
        return None


def replay(state: ProducerState, segment: LogSegment, start_offset: int, end_offset: int) -> Steps[None]:
    """Applies the segment's batches, from the one that contains `start_offset`, up to `end_offset`."""
    where = segment.locate(start_offset)
    if where is None:
        return
    try:
        for number, batch in enumerate(whole_batches(segment.file, where[0], segment.size)):
            if number % BATCHES_PER_STEP == BATCHES_PER_STEP - 1:
                yield
            if batch.magic < 2:
                continue
            header = read_batch_header(batch.data, batch.start)
            if header.base_offset >= end_offset:
                break
            apply_stored(state, batch, header)
    except CorruptSegment:
        pass  # recovery leaves no such segment; in a log that was closed cleanly, replay stops here
