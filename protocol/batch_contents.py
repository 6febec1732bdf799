"""The contents of a record batch of message format 2: reads its records, and builds a batch from records."""

from collections.abc import Iterator, Sequence
from io import BytesIO

from odradek.protocol.batch_header import (
    BATCH_OVERHEAD,
    CONTROL_MASK,
    CURRENT_MAGIC,
    DELETE_HORIZON_MASK,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Buffer,
    Compression,
    CorruptBatch,
    TimestampType,
)
from odradek.protocol.compression import NO_LIMIT, compress, decompress, decompressed_pieces
from odradek.protocol.compression_errors import CompressionFailed, TooLarge
from odradek.protocol.control_records import ControlType, control_key, end_transaction_value
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record import MalformedRecord, Record, read_each, record_bytes, wrap_int64

# The limit to which one batch may inflate.
MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024


def read_records(
    data: Buffer, position: int, header: BatchHeader, *, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[Record]:
    """Returns all records of the batch at `position`, which has this header.

    The batch may be a control batch: `read_control_type(record.key)` decodes its record. Does not check the checksum.
    Raises ProtocolError: CORRUPT_MESSAGE for a truncated batch, INVALID_RECORD for records that disagree with their
    lengths, counts or codec, MESSAGE_TOO_LARGE if the batch inflates beyond `max_decompressed_bytes`.
    """
    return list(each_record(plain_records(data, position, header, max_decompressed_bytes), header))


def plain_records(
    data: Buffer, position: int, header: BatchHeader, max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES
) -> bytes:
    """Returns the decompressed bytes of a batch's records. Raises as `read_records`."""
    end = position + header.size_in_bytes
    if end > len(data):
        raise CorruptBatch(f"a batch of {header.size_in_bytes} bytes is truncated after {len(data) - position}")
    if header.record_count < 0:
        raise ProtocolError(ErrorCode.INVALID_RECORD, f"a batch of {header.record_count} records")
    body = memoryview(data)[position + BATCH_OVERHEAD : end]
    return inflate(body, header.compression, max_decompressed_bytes)


def each_record(plain: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yields the records in `plain_records`, as a batch may hold millions. Raises INVALID_RECORD while iterating."""
    log_append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    try:
        yield from read_each(
            plain,
            0,
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            header.base_sequence,
            log_append_time,
        )
    except MalformedRecord as error:
        raise ProtocolError(ErrorCode.INVALID_RECORD, str(error)) from error


def inflate(body: memoryview, codec: int, max_decompressed_bytes: int, *, is_sent: bool = False) -> bytes:
    """Returns the decompressed bytes of a batch's records, see `decompress` for `is_sent`. Raises INVALID_RECORD;
    MESSAGE_TOO_LARGE beyond the limit.
    """
    if codec == Compression.NONE:
        return bytes(body)
    try:
        return decompress(codec, body, max_decompressed_bytes, is_sent=is_sent)
    except (TooLarge, CompressionFailed) as error:
        raise _refusal(error) from error


def inflated_pieces(
    body: memoryview, codec: int, max_decompressed_bytes: int = NO_LIMIT, *, is_sent: bool = False
) -> Iterator[bytes]:
    """Yields the decompressed bytes of a batch's records in pieces, see `decompressed_pieces`. Raises as `inflate`,
    while iterating.
    """
    try:
        yield from decompressed_pieces(codec, body, max_decompressed_bytes, is_sent=is_sent)
    except (TooLarge, CompressionFailed) as error:
        raise _refusal(error) from error


def joined_pieces(pieces: Iterator[bytes], least_bytes: int) -> Iterator[tuple[bytes, bool]]:
    """Joins pieces to parts of at least this size, except for the last one; yields each with whether it is the last."""
    part = BytesIO()
    for piece in pieces:
        if part.tell() >= least_bytes:
            yield part.getvalue(), False
            part = BytesIO()
        part.write(piece)
    yield part.getvalue(), True


def _refusal(error: TooLarge | CompressionFailed) -> ProtocolError:
    if isinstance(error, TooLarge):
        return ProtocolError(ErrorCode.MESSAGE_TOO_LARGE, f"batch refused: {error}")
    return ProtocolError(ErrorCode.INVALID_RECORD, str(error))


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: int = Compression.NONE,
    compression_level: int | None = None,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    last_offset_delta: int | None = None,
    attributes: int = 0,
) -> bytes:
    """Builds one batch of the records, byte for byte like Kafka's builder.

    The records' offsets are absolute, at or above `base_offset`. The header's maximum timestamp is their largest, or
    `log_append_time` with LOG_APPEND_TIME; its base timestamp is the first record's, or `delete_horizon_ms`.
    `base_timestamp`, `max_timestamp` and `last_offset_delta` override the values derived from the records: batches that
    compaction has emptied or thinned out keep their old ones. `attributes` adds raw bits.
    """
    first_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if base_timestamp is None:
        base_timestamp = first_timestamp if delete_horizon_ms is None else delete_horizon_ms
    body = b"".join(
        [
            record_bytes(record, record.offset - base_offset, wrap_int64(record.timestamp - base_timestamp))
            for record in records
        ]
    )
    if compression != Compression.NONE and records:
        body = compress(compression, body, compression_level)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset - base_offset if records else -1
    if max_timestamp is None:
        if timestamp_type is TimestampType.LOG_APPEND_TIME:
            max_timestamp = log_append_time
        else:
            max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
            max_timestamp = max(max_timestamp, NO_TIMESTAMP)
    attributes |= (
        compression
        | (TIMESTAMP_TYPE_MASK if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
        | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
    )
    header = BatchHeader(
        base_offset,
        0,
        partition_leader_epoch,
        CURRENT_MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    header.seal(body)
    return header.pack() + body


def build_end_transaction_marker(
    control_type: ControlType,
    *,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Builds the control batch that ends a transaction: COMMIT or ABORT (Kafka's EndTransactionMarker, KIP-98)."""
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=control_key(control_type),
        value=end_transaction_value(coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )
