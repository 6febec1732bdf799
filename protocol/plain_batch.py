"""Batches that the broker's own coordinators build: uncompressed, with one timestamp, offsets count up from 0.

Such a batch is valid by construction, so no leader validates it: base offset and leader epoch are not covered by the
checksum and are written when the batch is placed in a log. Pure Python that also compiles (see compiled_modules.txt).
"""

from collections.abc import Sequence

from odradek.protocol.batch_header import (
    CONTROL_MASK,
    CURRENT_MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from odradek.protocol.control_records import ControlType, Marker, control_key, end_transaction_value
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.record import varint_bytes

_SMALL = 4096
_VARINTS: list[bytes] = [
    *(bytes((2 * value,)) for value in range(64)),
    *(bytes((low, high)) for high in range(1, 64) for low in range(0x80, 0x100, 2)),
]
"""Those of one byte, and those of two; not by `varint_bytes`: 4,096 calls took a fiftieth of the start-up time."""
_NO_ATTRIBUTES_SAME_TIME = b"\x00\x00"
_NULL = b"\x01"
_NO_HEADERS = b"\x00"


class PlainBatch:
    """A whole batch at base offset 0, without leader epoch: `header`, and `body`, the bytes after the 61-byte header.
    `marker`: the transaction marker of a control batch.
    """

    __slots__ = ("body", "header", "marker")

    def __init__(self, header: BatchHeader, body: bytes, marker: Marker | None = None) -> None:
        self.header = header
        self.body = body
        self.marker = marker

    def placed(self, offset: int, partition_leader_epoch: int) -> ValidatedBatch:
        """Returns the batch for a log whose next offset is `offset`. Call it once: it modifies the header."""
        return ValidatedBatch(self.header, self.body, NO_TIMESTAMP, 0).place(offset, partition_leader_epoch)

    def to_bytes(self) -> bytes:
        """Returns the batch as one bytes object."""
        return b"".join((self.header.pack(), self.body))


def build_plain_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> PlainBatch:
    """Builds one batch of at least one key and value (None: a tombstone); transactional with a producer id.

    The bytes are identical to those of `build_batch`.
    """
    attributes = TRANSACTIONAL_MASK if producer_id != NO_PRODUCER_ID else 0
    count, body = len(records), _body(records)
    return PlainBatch(_header(body, count, attributes, timestamp_ms, producer_id, producer_epoch, base_sequence), body)


def build_plain_marker(marker: Marker, producer_id: int, producer_epoch: int) -> PlainBatch:
    """Builds the control batch that ends a transaction; its bytes are those of `build_end_transaction_marker`."""
    control_type = ControlType.ABORT if marker.aborted else ControlType.COMMIT
    body = _body([(control_key(control_type), end_transaction_value(marker.coordinator_epoch))])
    attributes = TRANSACTIONAL_MASK | CONTROL_MASK
    header = _header(body, 1, attributes, marker.timestamp, producer_id, producer_epoch, NO_SEQUENCE)
    return PlainBatch(header, body, marker)


def _header(
    body: bytes,
    count: int,
    attributes: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> BatchHeader:
    header = BatchHeader(
        0,
        0,
        NO_PARTITION_LEADER_EPOCH,
        CURRENT_MAGIC,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        max(timestamp_ms, NO_TIMESTAMP),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    header.seal(body)
    return header


def _body(records: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    parts: list[bytes] = []
    for delta, (key, value) in enumerate(records):
        offset_delta = _varint(delta)
        key_length = _varint(len(key))
        size = len(offset_delta) + len(key_length) + len(key) + 4  # attributes, timestamp delta, value, headers
        if value is None:
            parts += (_varint(size), _NO_ATTRIBUTES_SAME_TIME, offset_delta, key_length, key, _NULL, _NO_HEADERS)
        else:
            value_length = _varint(len(value))
            size += len(value_length) - 1 + len(value)
            parts += (_varint(size), _NO_ATTRIBUTES_SAME_TIME, offset_delta, key_length, key)
            parts += (value_length, value, _NO_HEADERS)
    return b"".join(parts)


def _varint(value: int) -> bytes:
    return _VARINTS[value] if value < _SMALL else varint_bytes(value)
