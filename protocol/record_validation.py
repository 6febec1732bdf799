"""What a leader does with the records of a Produce request before they reach the log.

This is ProduceRequest.validateRecords, the checks of UnifiedLog.append and LogValidator of Apache Kafka 3.9 in one piece,
for message format 2, in Kafka's order:

(A) the request: one whole batch, of format 2, and zstd only from version 7 on
(B) the batch: base offset 0, size, checksum
(C) the header: offsets and count agree, no control batch, a sequence with every producer id
(D) every record: its structure, a key on a compacted topic, a time within the topic's bounds
(E) the leader's part: base offset and leader epoch are written, LogAppendTime or the true maximum timestamp too,
    and the batch is compressed again when the topic asks for a codec of its own

Where Kafka answers -1 for bytes that only a faulty client sends, INVALID_RECORD is answered: it is as final, and it says why.
"""

from collections.abc import Sequence
from enum import Enum

from crc32c import crc32c

from protocol.batch_contents import MAX_DECOMPRESSED_BYTES, build_batch, inflate, read_records
from protocol.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    CHECKED_PART,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    UNCHECKED_PART,
    BatchHeader,
    Buffer,
    Compression,
    CorruptBatch,
    TimestampType,
    next_batch_size,
    read_batch_header,
)
from protocol.batch_header import COMPRESSION_MASK as _COMPRESSION_MASK
from protocol.errors import ErrorCode, ProtocolError
from protocol.record_walk import (
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_LENGTH,
    BAD_VARINT,
    BYTES_LEFT_IN_BATCH,
    BYTES_LEFT_IN_RECORD,
    FIELD_BEYOND_RECORD,
    TOO_FEW_RECORDS,
    WHOLE,
    walk_records,
)

FIRST_VERSION_WITH_FORMAT_2 = 3
FIRST_VERSION_WITH_ZSTD = 7
MAX_INT64 = (1 << 63) - 1

# compression.type of a topic: `producer` keeps what the client chose.
TARGET_COMPRESSIONS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}

_COMPLAINTS = {
    BAD_LENGTH: "its length does not fit into the batch",
    BAD_VARINT: "a varint in it is cut or too long",
    FIELD_BEYOND_RECORD: "a field reaches beyond its end",
    BAD_HEADER_COUNT: "the number of its headers is negative or exceeds its bytes",
    BAD_HEADER_KEY: "the key of a header is null",
    BYTES_LEFT_IN_RECORD: "bytes are left behind its last field",
    TOO_FEW_RECORDS: "the batch ends before it",
}
_KNOWN_ATTRIBUTES = _COMPRESSION_MASK | TRANSACTIONAL_MASK | CONTROL_MASK | DELETE_HORIZON_MASK


class AppendOrigin(Enum):
    """Who appends (Kafka's AppendOrigin): clients are trusted with less than the broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"
    REPLICATION = "replication"


class InvalidRecord(ProtocolError):
    """Records that a leader refuses: INVALID_RECORD, or INVALID_TIMESTAMP.

    `record_errors` names the records at fault as (index in the batch, message); empty when the batch as a whole is at fault.
    """

    def __init__(
        self,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


class ValidatedBatch:
    """A batch that is ready for the log.

    `header` as it will be stored; `parts` the bytes to write, one after the other (the records by reference to the request's
    bytes wherever they stay as they are), `size_in_bytes` in all; `max_timestamp` and the offset the time index has for it
    (the batch's last, -1 without timestamps); `log_append_time_ms` -1 with CreateTime; `source_compression` the client's codec.
    """

    __slots__ = (
        "header",
        "log_append_time_ms",
        "max_timestamp",
        "offset_of_max_timestamp",
        "parts",
        "record_errors",
        "size_in_bytes",
        "source_compression",
    )

    def __init__(
        self,
        header: BatchHeader,
        parts: list[Buffer],
        offset_of_max_timestamp: int,
        log_append_time_ms: int,
        source_compression: int,
    ) -> None:
        self.header = header
        self.parts = parts
        self.size_in_bytes = header.batch_length + LOG_OVERHEAD
        self.max_timestamp = header.max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.log_append_time_ms = log_append_time_ms
        self.record_errors: list[tuple[int, str]] = []
        self.source_compression = source_compression

    def to_bytes(self) -> bytes:
        """The batch in one piece."""
        return b"".join(self.parts)


def has_transactional_batch(records: bytes) -> bool:
    """Whether the first batch belongs to a transaction: a request that names no transactional id may not hold it.

    Says False of bytes that are no batch: their own error is found later.
    """
    try:
        if not next_batch_size(records, 0):
            return False
        return read_batch_header(records).is_transactional
    except ProtocolError:
        return False


def validate_for_append(
    records: bytes,
    *,
    offset: int,
    now_ms: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    timestamp_before_max_ms: int = MAX_INT64,
    timestamp_after_max_ms: int = MAX_INT64,
    compacted: bool = False,
    max_batch_bytes: int = 1_048_588,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    target_compression: str | int = "producer",
    compression_level: int | None = None,
    api_version: int | None = None,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedBatch:
    """Check the one batch of `records` and give it its place in the log.

    `offset` is the log's next offset; `now_ms` the wall clock; `target_compression` the topic's compression.type or a codec's
    number; `api_version` that of the Produce request, None for the broker's own appends. Nothing is changed in `records`.

    Raises ProtocolError: CORRUPT_MESSAGE, INVALID_RECORD and INVALID_TIMESTAMP (as InvalidRecord), MESSAGE_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE, and for message formats 0 and 1 UNSUPPORTED_VERSION below Produce 3, INVALID_RECORD from there.
    """
    header = _only_batch(records, FIRST_VERSION_WITH_ZSTD if api_version is None else api_version)
    size = header.batch_length + LOG_OVERHEAD
    if origin is AppendOrigin.CLIENT and header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a batch from a client must be 0, not {header.base_offset}")
    if origin is AppendOrigin.RAFT_LEADER and header.partition_leader_epoch != partition_leader_epoch:
        raise InvalidRecord(
            f"the batch has leader epoch {header.partition_leader_epoch} where {partition_leader_epoch} appends"
        )
    if size > max_batch_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch of {size} bytes exceeds the topic's limit of {max_batch_bytes}"
        )
    crc = crc32c(memoryview(records)[ATTRIBUTES_POSITION:size])
    if crc != header.crc:
        raise CorruptBatch(f"the batch has checksum {header.crc:#010x}, its bytes have {crc:#010x}")
    if origin is AppendOrigin.CLIENT:
        _check_header(header)

    codec = header.compression
    target = codec if target_compression == "producer" else _target_codec(target_compression)
    if codec == Compression.NONE and header.is_control:
        target = codec
    in_place = codec == target
    plain, start = records, BATCH_OVERHEAD
    if codec != Compression.NONE:
        plain, start = inflate(memoryview(records)[BATCH_OVERHEAD:size], codec, max_decompressed_bytes), 0
        end = len(plain)
    else:
        end = size
    outcome, index, least, most, without_key, out_of_sequence = walk_records(plain, start, end, header.record_count)
    if outcome != WHOLE and header.record_count > 0:
        raise _malformed(outcome, index)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME or header.record_count <= 0:
        earliest = latest = header.max_timestamp if header.record_count > 0 else NO_TIMESTAMP
    else:
        earliest, latest = header.base_timestamp + least, header.base_timestamp + most
    if (
        (compacted and without_key)
        or header.timestamp_type is TimestampType.LOG_APPEND_TIME
        or (
            timestamp_type is TimestampType.CREATE_TIME
            and (now_ms - earliest > timestamp_before_max_ms or latest - now_ms > timestamp_after_max_ms)
        )
        or latest > MAX_INT64
        or earliest < -MAX_INT64
    ):
        latest = _check_records(
            records, header, compacted, timestamp_type, now_ms, timestamp_before_max_ms, timestamp_after_max_ms
        )
    if in_place and codec != Compression.NONE and out_of_sequence:
        raise InvalidRecord("the offset deltas of a compressed batch must count up from 0")

    max_timestamp = now_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else max(latest, NO_TIMESTAMP)
    log_append_time = now_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
    if in_place:
        parts = _assign(records, header, offset, partition_leader_epoch, timestamp_type, max_timestamp)
    else:
        parts = _rebuild(
            records,
            header,
            offset,
            partition_leader_epoch,
            timestamp_type,
            now_ms,
            target,
            compression_level,
            max_batch_bytes,
        )
        header = read_batch_header(parts[0])
    has_time = header.max_timestamp != NO_TIMESTAMP
    return ValidatedBatch(header, parts, header.last_offset if has_time else -1, log_append_time, codec)


def _target_codec(target_compression: str | int) -> int:
    if isinstance(target_compression, int):
        return target_compression
    target = TARGET_COMPRESSIONS[target_compression]
    assert target is not None
    return target


def _only_batch(records: bytes, api_version: int) -> BatchHeader:
    """(A). Whole batches of other formats are told apart before their headers are read."""
    size = next_batch_size(records, 0)
    if size is None:
        raise InvalidRecord("the records hold no whole batch")
    magic = records[MAGIC_POSITION]
    if magic != CURRENT_MAGIC:
        message = (
            f"message format {magic} is not supported: records must be one batch of message format {CURRENT_MAGIC}"
        )
        if api_version < FIRST_VERSION_WITH_FORMAT_2:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, message)
        raise InvalidRecord(message)
    header = read_batch_header(records)
    if api_version < FIRST_VERSION_WITH_ZSTD and header.compression == Compression.ZSTD:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {FIRST_VERSION_WITH_ZSTD} of Produce, the request has {api_version}",
        )
    if size < len(records) and next_batch_size(records, size) is not None:
        raise InvalidRecord("the records hold more than one batch")
    return header


def _check_header(header: BatchHeader) -> None:
    """(C)."""
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {count} records cannot have the last offset delta {header.last_offset_delta}")
    if header.is_control:
        raise InvalidRecord("control batches are written by brokers alone")
    if header.has_producer_id and header.base_sequence < 0:
        raise InvalidRecord(
            f"sequence {header.base_sequence} is none for a batch with producer id {header.producer_id}"
        )


def _malformed(outcome: int, index: int) -> InvalidRecord:
    if outcome == BYTES_LEFT_IN_BATCH:
        return InvalidRecord(f"bytes are left behind the batch's {index} records")
    return InvalidRecord(f"record {index} is malformed: {_COMPLAINTS[outcome]}")


def _check_records(
    records: bytes,
    header: BatchHeader,
    compacted: bool,
    timestamp_type: TimestampType,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
) -> int:
    """(D) again, record by record, once the walk has seen something to complain of: the largest timestamp if all is well."""
    errors: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    latest = NO_TIMESTAMP
    for index, record in enumerate(read_records(records, 0, header)):
        latest = max(latest, record.timestamp)
        if compacted and record.key is None:
            errors.append((index, "a compacted topic takes no record without a key"))
        elif timestamp_type is TimestampType.CREATE_TIME and record.timestamp != NO_TIMESTAMP:
            if now_ms - record.timestamp > before_max_ms or record.timestamp - now_ms > after_max_ms:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append(
                    (
                        index,
                        f"timestamp {record.timestamp} is not within {now_ms - before_max_ms} and {now_ms + after_max_ms}",
                    )
                )
        elif header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            code = ErrorCode.INVALID_TIMESTAMP
            errors.append((index, "a producer may not set the timestamp type LogAppendTime"))
    if errors:
        reason = "timestamps" if code is ErrorCode.INVALID_TIMESTAMP else "missing keys"
        raise InvalidRecord(f"{len(errors)} of {header.record_count} records are refused for {reason}", errors, code)
    return latest


def _assign(
    records: bytes,
    header: BatchHeader,
    offset: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType,
    max_timestamp: int,
) -> list[Buffer]:
    """(E) without touching a record: the parts to write. Changes `header` to what they say."""
    size = header.batch_length + LOG_OVERHEAD
    header.base_offset = offset
    header.partition_leader_epoch = partition_leader_epoch
    if header.timestamp_type is timestamp_type and header.max_timestamp == max_timestamp:
        prefix = UNCHECKED_PART.pack(offset, header.batch_length, partition_leader_epoch, CURRENT_MAGIC)
        return [prefix, memoryview(records)[len(prefix) : size]]
    header.attributes &= _KNOWN_ATTRIBUTES
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        header.attributes |= TIMESTAMP_TYPE_MASK
    header.max_timestamp = max_timestamp
    body = memoryview(records)[BATCH_OVERHEAD:size]
    checked = CHECKED_PART.pack(
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    header.crc = crc32c(body, crc32c(checked))
    return [header.pack(), body]


def _rebuild(
    records: bytes,
    header: BatchHeader,
    offset: int,
    partition_leader_epoch: int,
    timestamp_type: TimestampType,
    now_ms: int,
    target: int,
    compression_level: int | None,
    max_batch_bytes: int,
) -> list[Buffer]:
    """(E) with the records compressed as the topic wants them; their offsets count up from `offset`."""
    all_records = read_records(records, 0, header)
    for index, record in enumerate(all_records):
        record.offset = offset + index
        if record.timestamp < NO_TIMESTAMP:
            message = f"timestamp {record.timestamp} cannot be stored by a topic that compresses again"
            raise InvalidRecord(message, [(index, message)], ErrorCode.INVALID_TIMESTAMP)
    batch = build_batch(
        all_records,
        base_offset=offset,
        compression=target,
        compression_level=compression_level,
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
            f"the batch of {len(batch)} bytes, compressed as the topic asks, exceeds its limit of {max_batch_bytes}",
        )
    return [batch]
