"""A checked batch gets its place in the log: base offset, leader epoch and timestamps are the leader's to write.

Base offset and leader epoch lie before the checksum: a batch that needs no more is not read again, let alone copied.
With LogAppendTime, or where the client's maximum timestamp was wrong, the header's checked part changes and the
checksum with it. Only a topic with a codec of its own makes the leader compress the records again.
"""

from odradek.protocol.batch_contents import read_records
from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UNCHECKED_PART,
    BatchHeader,
    Buffer,
    TimestampType,
)
from odradek.protocol.compression import compress
from odradek.protocol.record import record_bytes, wrap_int64

# A header that is written anew keeps only the attributes that mean something, without the timestamp type.
_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class ValidatedBatch:
    """A batch that is ready for the log.

    `header` is the one to be stored. `parts` are the bytes to write, one after the other, `size_in_bytes` in all: the
    records are a view of the request's bytes wherever they stay as they are. `max_timestamp` goes into the time index
    with `offset_of_max_timestamp`, the batch's last offset (-1 without timestamps). `log_append_time_ms` is -1 with
    CreateTime.
    `source_compression` is the client's codec.
    """

    __slots__ = (
        "header",
        "log_append_time_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "parts",
        "size_in_bytes",
        "source_compression",
    )

    def __init__(
        self, header: BatchHeader, parts: list[Buffer], log_append_time_ms: int, source_compression: int
    ) -> None:
        self.header = header
        self.parts = parts
        self.size_in_bytes = header.batch_length + LOG_OVERHEAD
        self.max_timestamp = header.max_timestamp
        self.offset_of_max_timestamp = -1 if header.max_timestamp == NO_TIMESTAMP else header.last_offset
        self.log_append_time_ms = log_append_time_ms
        self.source_compression = source_compression

    def to_bytes(self) -> bytes:
        """The batch in one piece."""
        return b"".join(self.parts)


def assign_in_place(
    records: bytes,
    header: BatchHeader,
    offset: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> ValidatedBatch:
    """The batch at the start of `records` with the records as they are. `header` is changed to what will be stored."""
    size = header.batch_length + LOG_OVERHEAD
    header.base_offset = offset
    header.partition_leader_epoch = partition_leader_epoch
    appends_time = bool(timestamp_type)
    codec = header.attributes & COMPRESSION_MASK
    log_append_time = max_timestamp if appends_time else NO_TIMESTAMP
    parts: list[Buffer]
    if header.max_timestamp == max_timestamp and bool(header.attributes & TIMESTAMP_TYPE_MASK) is appends_time:
        prefix = UNCHECKED_PART.pack(offset, header.batch_length, partition_leader_epoch, CURRENT_MAGIC)
        parts = [prefix, memoryview(records)[len(prefix) : size]]
    else:
        header.attributes &= _KEPT_ATTRIBUTES
        if appends_time:
            header.attributes |= TIMESTAMP_TYPE_MASK
        header.max_timestamp = max_timestamp
        body = memoryview(records)[BATCH_OVERHEAD:size]
        header.seal(body)
        parts = [header.pack(), body]
    return ValidatedBatch(header, parts, log_append_time, codec)


def compress_anew(
    plain: bytes | memoryview,
    header: BatchHeader,
    offset: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
    target: int,
    level: int | None,
) -> ValidatedBatch:
    """The batch with its records, `plain`, compressed by `target`. `header` is changed to what will be stored."""
    source = header.attributes & COMPRESSION_MASK
    body = compress(target, plain, level)
    header.base_offset = offset
    header.partition_leader_epoch = partition_leader_epoch
    header.attributes = header.attributes & TRANSACTIONAL_MASK | target
    if timestamp_type:
        header.attributes |= TIMESTAMP_TYPE_MASK
    header.max_timestamp = max_timestamp
    header.seal(body)
    return ValidatedBatch(header, [header.pack(), body], max_timestamp if timestamp_type else NO_TIMESTAMP, source)


def renumber(records: bytes, header: BatchHeader) -> bytes:
    """The records of an uncompressed batch at the start of `records`, with offset deltas that count up from 0."""
    return b"".join(
        [
            record_bytes(record, index, wrap_int64(record.timestamp - header.base_timestamp))
            for index, record in enumerate(read_records(records, 0, header))
        ]
    )
