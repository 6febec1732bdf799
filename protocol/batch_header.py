"""The 61-byte header of every record batch of message format 2, and iteration over consecutive batches.

Layout (big-endian; KIP-98, Kafka's DefaultRecordBatch)::

    position  field                    type    in the checksum
           0  base_offset              int64   no: the leader assigns it without touching the checksum
           8  batch_length             int32   no: bytes after this field, so the whole batch is 12 more
          12  partition_leader_epoch   int32   no
          16  magic                    int8    no
          17  crc                      uint32  CRC-32C of everything from position 21 to the end
          21  attributes               int16   yes, as are all fields below
          23  last_offset_delta        int32
          27  base_timestamp           int64   the first record's time, or the delete horizon if that flag is set
          35  max_timestamp            int64
          43  producer_id              int64
          51  producer_epoch           int16
          53  base_sequence            int32
          57  record_count             int32
          61  records, compressed as one piece if the attributes name a codec

Attributes: bits 0-2 codec, bit 3 timestamp type, bit 4 transactional, bit 5 control, bit 6 delete horizon; the rest is
unused and preserved.

Message formats 0 and 1 have other layouts after the same first 17 bytes. They are recognized and refused by name.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from crc32c import crc32c
from mypy_extensions import mypyc_attr

from odradek.protocol.errors import ErrorCode, ProtocolError

BATCH_OVERHEAD: Final = 61
LOG_OVERHEAD: Final = 12
MAGIC_POSITION: Final = 16
HEADER_UP_TO_MAGIC: Final = 17
ATTRIBUTES_POSITION: Final = 21
CURRENT_MAGIC: Final = 2
# The smallest message of format 0. A shorter length is corrupt for every magic.
SMALLEST_BATCH_LENGTH: Final = 14

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_MASK: Final = 0x08
TRANSACTIONAL_MASK: Final = 0x10
CONTROL_MASK: Final = 0x20
DELETE_HORIZON_MASK: Final = 0x40

MAX_INT32: Final = 0x7FFFFFFF

# The whole header, the part before the checksum, the part that the checksum covers (without the records).
WHOLE_HEADER = struct.Struct(">qiibIhiqqqhii")
UNCHECKED_PART = struct.Struct(">qiib")
CHECKED_PART = struct.Struct(">hiqqqhii")
_LENGTH = struct.Struct(">i")

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codecs of a batch's attributes (Kafka's CompressionType)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    """Whether the producer sets the records' timestamps, or the leader when it appends (KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@mypyc_attr(native_class=False)
class CorruptBatch(ProtocolError):
    """The bytes are not a record batch, or were changed after they were written: CORRUPT_MESSAGE."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


@mypyc_attr(native_class=False)
class UnsupportedMessageFormat(ProtocolError):
    """A message set of format 0 or 1, which is neither stored nor converted: UNSUPPORTED_FOR_MESSAGE_FORMAT."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {magic} is not supported: batches must be of message format {CURRENT_MAGIC}",
        )
        self.magic = magic


FIELDS = (
    "base_offset",
    "batch_length",
    "partition_leader_epoch",
    "magic",
    "crc",
    "attributes",
    "last_offset_delta",
    "base_timestamp",
    "max_timestamp",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "record_count",
)
"""The fields of a header, in their order in the batch. (A compiled class has no `__slots__` to read.)"""


class BatchHeader:
    """The fields of one batch header, as in the table above: offsets, milliseconds since 1970, raw attributes."""

    __slots__ = FIELDS

    def __init__(
        self,
        base_offset: int,
        batch_length: int,
        partition_leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
    ) -> None:
        self.base_offset = base_offset
        self.batch_length = batch_length
        self.partition_leader_epoch = partition_leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.record_count = record_count

    @property
    def size_in_bytes(self) -> int:
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number: 0-4 are those of `Compression`, 5-7 exist in no release of Kafka."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_MASK != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; -1 for a batch without sequences."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def seal(self, body: Buffer) -> None:
        """Sets the length and the checksum for a batch whose records are `body`."""
        self.batch_length = BATCH_OVERHEAD - LOG_OVERHEAD + len(body)
        checked = CHECKED_PART.pack(
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        self.crc = crc32c(body, crc32c(checked))

    def pack(self) -> bytes:
        """Returns the 61 bytes, with the current `crc`."""
        return WHOLE_HEADER.pack(
            self.base_offset,
            self.batch_length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)}" for name in FIELDS)
        return f"BatchHeader({fields})"


def increment_sequence(sequence: int, increment: int) -> int:
    """Returns `sequence` + `increment`; sequence numbers wrap from 2147483647 to 0 (KIP-98)."""
    if sequence > MAX_INT32 - increment:
        return increment - (MAX_INT32 - sequence) - 1
    return sequence + increment


def read_batch_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Returns the header of the batch at `position`.

    Checks only the header, neither that `data` holds the whole batch nor that the checksum matches. Raises CorruptBatch
    if fewer than 61 bytes are left, for an unknown magic and for an impossible length; UnsupportedMessageFormat for
    message formats 0 and 1.
    """
    if len(data) - position < BATCH_OVERHEAD:
        _refuse_short_header(data, position)
    header = BatchHeader(*WHOLE_HEADER.unpack_from(data, position))
    if header.magic != CURRENT_MAGIC or header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
        _refuse_header(header.magic, header.batch_length)
    return header


def _refuse_short_header(data: Buffer, position: int) -> None:
    if len(data) - position >= HEADER_UP_TO_MAGIC:
        _, batch_length, _, magic = UNCHECKED_PART.unpack_from(data, position)
        if magic != CURRENT_MAGIC or batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
            _refuse_header(magic, batch_length)
    raise CorruptBatch(f"{len(data) - position} bytes are too few for a batch header of {BATCH_OVERHEAD}")


def _refuse_header(magic: int, batch_length: int) -> None:
    if batch_length < SMALLEST_BATCH_LENGTH:
        raise CorruptBatch(f"batch length {batch_length} is below the smallest possible, {SMALLEST_BATCH_LENGTH}")
    if magic in (0, 1):
        raise UnsupportedMessageFormat(magic)
    if magic != CURRENT_MAGIC:
        raise CorruptBatch(f"magic {magic} is unknown")
    raise CorruptBatch(f"batch length {batch_length} is too small for a batch header")


def iter_batches(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yields (position, header) of every whole batch of `data`, in order.

    Iteration ends silently at a batch that is truncated, or at fewer bytes than a length field needs (Kafka's
    ByteBufferLogInputStream): a fetch or a killed writer leaves such bytes. Raises as read_batch_header does. Checksums
    are not checked.
    """
    while True:
        size = next_batch_size(data, position)
        if size is None:
            return
        yield position, read_batch_header(data, position)
        position += size


def next_batch_size(data: Buffer, position: int) -> int | None:
    """Returns the size in bytes of the batch at `position`, of any message format; None if it is incomplete.

    Raises CorruptBatch for a length below 14 or a magic outside 0-2.
    """
    remaining = len(data) - position
    if remaining < LOG_OVERHEAD:
        return None
    batch_length: int = _LENGTH.unpack_from(data, position + 8)[0]
    if batch_length < SMALLEST_BATCH_LENGTH:
        _refuse_header(CURRENT_MAGIC, batch_length)
    if remaining < HEADER_UP_TO_MAGIC:
        return None
    magic = data[position + MAGIC_POSITION]
    if magic > CURRENT_MAGIC:
        _refuse_header(magic - 256 if magic > 127 else magic, batch_length)
    size = batch_length + LOG_OVERHEAD
    return size if size <= remaining else None


def compute_crc(data: Buffer, position: int, size_in_bytes: int) -> int:
    """Returns the CRC-32C of the checked part of the batch of `size_in_bytes` at `position`."""
    return crc32c(memoryview(data)[position + ATTRIBUTES_POSITION : position + size_in_bytes])


def check_crc(data: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch is complete and its checksum matches."""
    size = header.size_in_bytes
    return size <= len(data) - position and compute_crc(data, position, size) == header.crc
