"""A checked batch gets its place in the log: base offset, leader epoch and timestamps are the leader's to write.

Base offset and leader epoch lie before the checksum: a batch that needs no more is not read again, let alone copied. With
LogAppendTime, or where the client's maximum timestamp was wrong, the header's checked part changes and the checksum with
it. Only a topic with a codec of its own makes the leader build the batch anew.
"""

from crc32c import crc32c

from protocol.batch_contents import build_batch, read_records
from protocol.batch_header import (
    BATCH_OVERHEAD,
    CHECKED_PART,
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
    read_batch_header,
)
from protocol.errors import ErrorCode, ProtocolError

# A header that is written anew keeps only the attributes that mean something, without the timestamp type.
_KEPT_ATTRIBUTES = COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class ValidatedBatch:
    """A batch that is ready for the log.

    `header` is the one to be stored. `parts` are the bytes to write, one after the other, `size_in_bytes` in all: the
    records are a view of the request's bytes wherever they stay as they are. `max_timestamp` goes into the time index with
    `offset_of_max_timestamp`, the batch's last offset (-1 without timestamps). `log_append_time_ms` is -1 with CreateTime.
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
        header.crc = crc32c(body, crc32c(_checked_part(header)))
        parts = [header.pack(), body]
    return ValidatedBatch(header, parts, log_append_time, codec)


def _checked_part(header: BatchHeader) -> bytes:
    return CHECKED_PART.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )


def build_anew(
    records: bytes,
    header: BatchHeader,
    offset: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType,
    now_ms: int,
    target: int,
    level: int | None,
    max_batch_bytes: int,
    max_decompressed_bytes: int,
) -> ValidatedBatch:
    """The batch at the start of `records`, compressed by the codec `target`; its offsets count up from `offset`.

    Raises MESSAGE_TOO_LARGE when it is larger than `max_batch_bytes` afterwards, INVALID_TIMESTAMP for times below -1,
    which no batch can begin with.
    """
    rebuilt = read_records(records, 0, header, max_decompressed_bytes=max_decompressed_bytes)
    for index, record in enumerate(rebuilt):
        record.offset = offset + index
        if record.timestamp < NO_TIMESTAMP:
            raise ProtocolError(
                ErrorCode.INVALID_TIMESTAMP,
                f"timestamp {record.timestamp} cannot be stored where batches are built anew",
            )
    batch = build_batch(
        rebuilt,
        base_offset=offset,
        compression=target,
        compression_level=level,
        timestamp_type=timestamp_type,
        log_append_time=now_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=header.is_transactional,
    )
    if len(batch) > max_batch_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {len(batch)} bytes when compressed as the topic asks, above its limit of {max_batch_bytes}",
        )
    log_append_time = now_ms if timestamp_type else NO_TIMESTAMP
    return ValidatedBatch(read_batch_header(batch), [batch], log_append_time, header.compression)
