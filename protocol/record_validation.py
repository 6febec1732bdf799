"""What a leader does with the records of a Produce request before they reach the log.

This is ProduceRequest.validateRecords, the checks of UnifiedLog.append and LogValidator of Apache Kafka 3.9 in one
piece, for message format 2, in Kafka's order:

(A) the request: one whole batch, of format 2, and zstd only from version 7 on
(B) the batch: base offset 0, size, checksum
(C) the header: offsets and count agree, no control batch, a sequence with every producer id
(D) every record: its structure, a key on a compacted topic, a time within the topic's bounds
(E) the leader's part (leader_assignment): base offset, leader epoch, LogAppendTime or the true maximum timestamp, and
    the topic's own codec

Where Kafka answers -1 for bytes that only a faulty client sends, INVALID_RECORD is answered: as final, and it says why.
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from protocol.batch_contents import MAX_DECOMPRESSED_BYTES, inflate, read_records
from protocol.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    Compression,
    CorruptBatch,
    TimestampType,
    next_batch_size,
    read_batch_header,
)
from protocol.errors import ErrorCode, ProtocolError
from protocol.leader_assignment import ValidatedBatch, assign_in_place, build_anew
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

# compression.type of a topic; None keeps what the client chose.
TARGET_COMPRESSIONS: dict[str, int | None] = {
    "producer": None,
    "uncompressed": int(Compression.NONE),
    "gzip": int(Compression.GZIP),
    "snappy": int(Compression.SNAPPY),
    "lz4": int(Compression.LZ4),
    "zstd": int(Compression.ZSTD),
}

_ZSTD = int(Compression.ZSTD)
_COMPLAINTS = {
    BAD_LENGTH: "its length does not fit into the batch",
    BAD_VARINT: "a varint in it is cut or too long",
    FIELD_BEYOND_RECORD: "a field reaches beyond its end",
    BAD_HEADER_COUNT: "the number of its headers is negative or exceeds its bytes",
    BAD_HEADER_KEY: "the key of a header is null",
    BYTES_LEFT_IN_RECORD: "bytes are left behind its last field",
    TOO_FEW_RECORDS: "the batch ends before it",
}


class AppendOrigin(Enum):
    """Who appends (Kafka's AppendOrigin): clients are trusted with less than the broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


class InvalidRecord(ProtocolError):
    """Records that a leader refuses: INVALID_RECORD, or INVALID_TIMESTAMP.

    `record_errors` names the records at fault as (index in the batch, message), for the response's list; it is empty
    when the batch as a whole is at fault.
    """

    def __init__(
        self,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


def has_transactional_batch(records: bytes) -> bool:
    """Whether the first batch belongs to a transaction: a request that names no transactional id may not hold it (53).

    Says False of bytes that are no batch: their own error is found later.
    """
    try:
        return next_batch_size(records, 0) is not None and read_batch_header(records).is_transactional
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
    api_version: int = FIRST_VERSION_WITH_ZSTD,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> ValidatedBatch:
    """Check the one batch of `records` and give it its place in the log. `records` itself stays as it is.

    `offset` is the log's next offset; `now_ms` the wall clock; `api_version` that of the Produce request;
    `target_compression` the topic's compression.type, or a codec's number. Bytes behind the batch that are no whole batch
    are left out, as in Kafka.

    Raises ProtocolError: CORRUPT_MESSAGE, INVALID_RECORD and INVALID_TIMESTAMP (InvalidRecord names the records),
    MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, and for message formats 0 and 1 UNSUPPORTED_VERSION below Produce 3,
    INVALID_RECORD from there.
    """
    header = _only_batch(records, api_version)
    size = header.batch_length + LOG_OVERHEAD
    if origin is not AppendOrigin.CLIENT:
        _check_epoch(header, partition_leader_epoch, origin)
    elif header.base_offset != 0:
        raise InvalidRecord(f"the base offset of a batch from a client must be 0, not {header.base_offset}")
    _check_bytes(records, header, size, max_batch_bytes)
    if origin is AppendOrigin.CLIENT:
        _check_header(header)

    codec = header.attributes & COMPRESSION_MASK
    target = codec if target_compression == "producer" else _target_codec(target_compression, header)
    if codec:
        plain = inflate(memoryview(records)[BATCH_OVERHEAD:size], codec, max_decompressed_bytes)
        walk = walk_records(plain, 0, len(plain), header.record_count)
    else:
        walk = walk_records(records, BATCH_OVERHEAD, size, header.record_count)
    outcome, index, least, most, without_key, out_of_sequence = walk
    if outcome != WHOLE:
        raise _malformed(outcome, index)
    if codec and codec == target and out_of_sequence:
        raise InvalidRecord("the offset deltas of a compressed batch must count up from 0")

    rules = _RecordRules(compacted, timestamp_type, now_ms, timestamp_before_max_ms, timestamp_after_max_ms)
    latest = header.base_timestamp + most
    if rules.may_be_broken(header, header.base_timestamp + least, latest, without_key):
        latest = rules.check_each(records, header, max_decompressed_bytes)
    if codec == target:
        max_timestamp = now_ms if timestamp_type else max(latest, NO_TIMESTAMP)
        return assign_in_place(records, header, offset, partition_leader_epoch, timestamp_type, max_timestamp)
    return build_anew(
        records,
        header,
        offset,
        partition_leader_epoch,
        timestamp_type,
        now_ms,
        target,
        compression_level,
        max_batch_bytes,
        max_decompressed_bytes,
    )


def _target_codec(target_compression: str | int, header: BatchHeader) -> int:
    """The codec that the topic asks for. Control batches that come uncompressed stay so."""
    codec = header.attributes & COMPRESSION_MASK
    if header.attributes & CONTROL_MASK and not codec:
        return codec
    target = TARGET_COMPRESSIONS[target_compression] if isinstance(target_compression, str) else target_compression
    return codec if target is None else target


def _only_batch(records: bytes, api_version: int) -> BatchHeader:
    """(A). Whole batches of other formats are told apart before their headers are read."""
    size = next_batch_size(records, 0)
    if size is None:
        raise InvalidRecord("the records hold no whole batch")
    magic = records[MAGIC_POSITION]
    if magic != CURRENT_MAGIC:
        message = f"message format {magic} is not supported: only one batch of format {CURRENT_MAGIC} is taken"
        if api_version < FIRST_VERSION_WITH_FORMAT_2:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, message)
        raise InvalidRecord(message)
    header = read_batch_header(records)
    if api_version < FIRST_VERSION_WITH_ZSTD and header.attributes & COMPRESSION_MASK == _ZSTD:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {FIRST_VERSION_WITH_ZSTD} of Produce, the request has {api_version}",
        )
    if size < len(records) and next_batch_size(records, size) is not None:
        raise InvalidRecord("the records hold more than one batch")
    return header


def _check_epoch(header: BatchHeader, partition_leader_epoch: int, origin: AppendOrigin) -> None:
    if origin is AppendOrigin.RAFT_LEADER and header.partition_leader_epoch != partition_leader_epoch:
        raise InvalidRecord(
            f"the batch has leader epoch {header.partition_leader_epoch} where {partition_leader_epoch} appends"
        )


def _check_bytes(records: bytes, header: BatchHeader, size: int, max_batch_bytes: int) -> None:
    """(B)."""
    if size > max_batch_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch of {size} bytes exceeds the topic's limit of {max_batch_bytes}"
        )
    crc = crc32c(memoryview(records)[ATTRIBUTES_POSITION:size])
    if crc != header.crc:
        raise CorruptBatch(f"the batch has checksum {header.crc:#010x}, its bytes have {crc:#010x}")


def _check_header(header: BatchHeader) -> None:
    """(C)."""
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {count} records cannot have the last offset delta {header.last_offset_delta}")
    if header.attributes & CONTROL_MASK:
        raise InvalidRecord("control batches are written by brokers alone")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"a batch with producer id {header.producer_id} has sequence {header.base_sequence}")


def _malformed(outcome: int, index: int) -> InvalidRecord:
    if outcome == BYTES_LEFT_IN_BATCH:
        return InvalidRecord(f"bytes are left behind the batch's {index} records")
    return InvalidRecord(f"record {index} is malformed: {_COMPLAINTS[outcome]}")


class _RecordRules(NamedTuple):
    """(D), as far as the topic decides it."""

    compacted: bool
    timestamp_type: TimestampType
    now_ms: int
    before_max_ms: int
    after_max_ms: int

    def may_be_broken(self, header: BatchHeader, earliest: int, latest: int, without_key: int) -> bool:
        """Whether some record may break a rule, judged by what the walk has seen of all: then each must be looked at."""
        if (without_key and self.compacted) or header.attributes & TIMESTAMP_TYPE_MASK or latest > MAX_INT64:
            return True
        if self.timestamp_type:
            return False
        return self.now_ms - earliest > self.before_max_ms or latest - self.now_ms > self.after_max_ms

    def check_each(self, records: bytes, header: BatchHeader, max_decompressed_bytes: int) -> int:
        """The largest timestamp; raises InvalidRecord that names all records at fault."""
        errors: list[tuple[int, str]] = []
        code = ErrorCode.INVALID_RECORD
        latest = NO_TIMESTAMP
        has_append_time = bool(header.attributes & TIMESTAMP_TYPE_MASK)
        for index, record in enumerate(read_records(records, 0, header, max_decompressed_bytes=max_decompressed_bytes)):
            latest = max(latest, record.timestamp)
            if self.compacted and record.key is None:
                errors.append((index, "a compacted topic takes no record without a key"))
            elif not self.timestamp_type and record.timestamp != NO_TIMESTAMP:
                if self._is_out_of_range(record.timestamp):
                    code = ErrorCode.INVALID_TIMESTAMP
                    errors.append((index, self._range_complaint(record.timestamp)))
            elif has_append_time:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, "a producer may not set the timestamp type LogAppendTime"))
        if errors:
            reason = "their timestamps" if code is ErrorCode.INVALID_TIMESTAMP else "want of a key"
            raise InvalidRecord(
                f"{len(errors)} of {header.record_count} records are refused for {reason}", errors, code
            )
        return latest

    def _is_out_of_range(self, timestamp: int) -> bool:
        return self.now_ms - timestamp > self.before_max_ms or timestamp - self.now_ms > self.after_max_ms

    def _range_complaint(self, timestamp: int) -> str:
        earliest, latest = self.now_ms - self.before_max_ms, self.now_ms + self.after_max_ms
        return f"timestamp {timestamp} is not between {earliest} and {latest}"
