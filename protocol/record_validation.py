"""What a leader does with the records of a Produce request before they reach the log.

This module combines ProduceRequest.validateRecords, the checks of UnifiedLog.append and LogValidator of Apache Kafka
3.9, for message format 2, in Kafka's order:

(A) the request: one whole batch, of format 2; zstd only from version 7 on
(B) the batch: base offset 0, size, checksum
(C) the header: offsets and count agree, not a control batch, a sequence with every producer id
(D) every record: its structure and, if the batch is compressed, its size (record_walk), a key on a compacted topic, a
    timestamp within the bounds (record_rules)
(E) the leader's changes (leader_assignment): base offset, leader epoch, LogAppendTime or the true maximum timestamp,
    and the topic's own codec

For bytes that only a faulty client sends, Kafka returns -1; this module raises INVALID_RECORD, which is just as final,
and names the reason.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final

from crc32c import crc32c

from odradek.protocol.append_allowance import (
    APPEND_BYTES,
    COMPRESSED_ANEW,
    TURN_RECORDS,
    AppendAllowance,
    TooMuchForOneTurn,
)
from odradek.protocol.batch_contents import MAX_DECOMPRESSED_BYTES, inflate, inflated_pieces, joined_pieces
from odradek.protocol.batch_header import (
    ATTRIBUTES_POSITION,
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL_MASK,
    CURRENT_MAGIC,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    CorruptBatch,
    TimestampType,
    next_batch_size,
    read_batch_header,
)
from odradek.protocol.compression import NO_LIMIT, compress, compress_pieces
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import Renumbering, ValidatedBatch, keep_records, replace_records
from odradek.protocol.record_rules import MAX_INT32, MAX_INT64, InvalidRecord, RecordRules, UnfitRecords
from odradek.protocol.record_walk import (
    BAD_HEADER_COUNT,
    BAD_HEADER_KEY,
    BAD_LENGTH,
    BAD_NULL,
    BAD_VARINT,
    BYTES_LEFT_IN_BATCH,
    BYTES_LEFT_IN_RECORD,
    FIELD_BEYOND_RECORD,
    TOO_FEW_RECORDS,
    WHOLE,
    RecordWalk,
    RefusedRecords,
)

FIRST_VERSION_WITH_FORMAT_2: Final = 3
FIRST_VERSION_WITH_ZSTD: Final = 7
PART_BYTES: Final = 512 << 10
"""How much of a large batch is inflated at a time."""

# compression.type of a topic; None keeps the client's codec.
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
    BAD_VARINT: "it contains a varint that is truncated or too long",
    FIELD_BEYOND_RECORD: "a field extends beyond its end",
    BAD_HEADER_COUNT: "the number of its headers is negative or exceeds its bytes",
    BAD_HEADER_KEY: "the key of a header is null",
    BYTES_LEFT_IN_RECORD: "bytes follow its last field",
    TOO_FEW_RECORDS: "the batch ends before it",
    BAD_NULL: "the length of its key, its value or a header's value is below -1",
}


class AppendOrigin(Enum):
    """The origin of an append (Kafka's AppendOrigin): clients are trusted less than the broker's own coordinators."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


def has_transactional_batch(records: bytes) -> bool:
    """Whether the first batch is transactional: without a transactional id, a request may not contain it (53).

    Returns False for bytes that are not a batch: their own error is found later.
    """
    if len(records) < BATCH_OVERHEAD or not records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_MASK:
        return False  # the common case, without decoding the batch
    try:
        return next_batch_size(records, 0) is not None and read_batch_header(records).is_transactional
    except ProtocolError:
        return False


class BatchValidation:
    """Validates one batch: either all of it with `at_once`, or, if that would take too long for one turn of the event
    loop, step by step: `check_header`; `read`; `check_records` until it returns True; while `has_more`, `read_on` and
    again `check_records` until it returns True; and `settle`. (`read`, `read_on` and `settle` mostly run without
    Python's lock, and may run in a thread.)

    Step by step, the inflated records are never in memory as a whole, but a part of PART_BYTES at a time: (D) reads
    them once, once more if some may break a rule, and `settle` once more if they are recompressed.

    `now_ms` is the wall clock; `api_version` is the Produce request's; `target_compression` is the topic's
    compression.type, or a codec's number. An incomplete batch after the batch is dropped, as in Kafka. `records` itself
    is not changed.

    Raises ProtocolError: CORRUPT_MESSAGE, INVALID_RECORD and INVALID_TIMESTAMP (InvalidRecord names the records),
    MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, and for message formats 0 and 1 UNSUPPORTED_VERSION below
    Produce 3, INVALID_RECORD from there.
    """

    def __init__(
        self,
        records: bytes,
        *,
        now_ms: int,
        partition_leader_epoch: int,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        timestamp_before_max_ms: int = MAX_INT64,
        timestamp_after_max_ms: int = MAX_INT64,
        compacted: bool = False,
        max_batch_bytes: int = 1_048_588,
        max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
        max_record_bytes: int = MAX_INT32,
        target_compression: str | int = "producer",
        compression_level: int | None = None,
        api_version: int = FIRST_VERSION_WITH_ZSTD,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        self._records = records
        self._rules = RecordRules(compacted, timestamp_type, now_ms, timestamp_before_max_ms, timestamp_after_max_ms)
        self._partition_leader_epoch = partition_leader_epoch
        self._max_batch_bytes = max_batch_bytes
        self._max_decompressed_bytes = max_decompressed_bytes
        self._max_record_bytes = max_record_bytes
        self._compression_level = compression_level
        self._origin = origin
        header = self._header = _only_batch(records, api_version)
        self._size = header.batch_length + LOG_OVERHEAD
        self._codec = header.attributes & COMPRESSION_MASK
        self._target = self._codec if target_compression == "producer" else _target_codec(target_compression, header)
        self.has_more = False
        """Whether a part of the records is still to be inflated."""
        self._parts: Iterator[tuple[bytes, bool]] = iter(())
        self._is_whole = True
        self._plain = records
        self._start = BATCH_OVERHEAD
        self._end = self._size
        self._inflated_bytes = 0
        self._part_bytes = PART_BYTES
        self._walk = RecordWalk(records, BATCH_OVERHEAD, self._size, header.record_count)
        self._search: RefusedRecords | None = None
        self._renumbering: Renumbering | None = None
        self._latest = NO_TIMESTAMP
        self._is_judged = False

    def at_once(self, allowance: AppendAllowance | None = None) -> ValidatedBatch:
        """Does all steps. Raises TooMuchForOneTurn if that exceeds the allowance; None is no limit."""
        self.check_header()
        if allowance is None:
            self._check_batch()
            if self._codec:
                self._walk_over(inflate(self._body(), self._codec, self._max_decompressed_bytes, is_sent=True))
            self.check_records(NO_LIMIT)
            return self.settle()
        weight = COMPRESSED_ANEW if self._codec != self._target else 1
        turn_bytes = allowance.turn_bytes // weight - APPEND_BYTES
        if self._size > turn_bytes:
            raise TooMuchForOneTurn
        self._check_batch()
        if self._codec:
            self._walk_over(allowance.inflate(self._body(), self._codec, self._max_decompressed_bytes, turn_bytes))
        if not self.check_records(TURN_RECORDS):
            raise TooMuchForOneTurn
        allowance.turn_bytes -= (len(self._plain) + APPEND_BYTES) * weight
        return self.settle()

    def check_header(self) -> None:
        """Checks the part of (B) that needs only the header."""
        header = self._header
        if self._origin is not AppendOrigin.CLIENT:
            _check_epoch(header, self._partition_leader_epoch, self._origin)
        elif header.base_offset != 0:
            raise InvalidRecord(f"the base offset of a batch from a client must be 0, not {header.base_offset}")
        check_size(self._size, self._max_batch_bytes)

    def read(self, allowance: AppendAllowance, part_bytes: int = PART_BYTES) -> None:
        """Checks the rest of (B) and (C), and inflates the first part of the records."""
        self._check_batch()
        if not self._codec:
            return
        pieces = allowance.inflated_pieces(self._body(), self._codec, self._max_decompressed_bytes)
        self._part_bytes = part_bytes
        self._parts = joined_pieces(pieces, part_bytes)
        part, is_last = next(self._parts)
        if is_last:
            self._walk_over(part)
            return
        self._is_whole = False
        self.has_more = True
        self._inflated_bytes = len(part)
        self._walk = RecordWalk(part, 0, len(part), self._header.record_count, is_open=True)

    def read_on(self) -> None:
        """Inflates the next part of the records. After an invalid record, it inflates and drops the rest, since an
        invalid stream is refused as such.
        """
        if self._walk.has_failed:
            for _ in self._parts:
                pass
            self.has_more = False
            return
        part, is_last = next(self._parts)
        self.has_more = not is_last
        if self._search is not None:
            self._search.feed(part, is_last)
        else:
            self._inflated_bytes += len(part)
            self._walk.feed(part, is_last)

    def check_records(self, items: int) -> bool:
        """Checks (D) as far as the records are read, and renumbers records that are recompressed, up to `items` records
        and headers at a time, fewer in the slower phases. Returns whether that is done.
        """
        if not self._is_judged:
            if not self._walk.take(items):
                return False
            if self.has_more:
                return True
            self._is_judged = True
            if self._judge(self._walk):
                return True
        if self._search is not None:
            if not self._search.take(items // 2):
                return False
            if self.has_more and not self._search.has_ended:
                return True
            self.has_more = False
            if self._search.found:
                raise self._rules.complaint(self._header, self._search.found)
        return self._renumbering is None or self._renumbering.take(items // 4)

    def _check_batch(self) -> None:
        """Checks the rest of (B) and (C)."""
        _check_bytes(self._records, self._header, self._size)
        if self._origin is AppendOrigin.CLIENT:
            _check_header(self._header)

    def _body(self) -> memoryview:
        return memoryview(self._records)[BATCH_OVERHEAD : self._size]

    def _walk_over(self, plain: bytes) -> None:
        """Continues with all inflated records."""
        self._plain, self._start, self._end = plain, 0, len(plain)
        self._walk = RecordWalk(plain, 0, len(plain), self._header.record_count)

    def _read_again(self) -> Iterator[bytes]:
        return inflated_pieces(self._body(), self._codec)

    def _judge(self, walk: RecordWalk) -> bool:
        """Evaluates the finished walk over all records. Returns whether these must be inflated once more."""
        header = self._header
        if walk.outcome != WHOLE:
            raise _malformed(walk.outcome, walk.index)
        if self._codec and walk.out_of_sequence:
            raise InvalidRecord("the offset deltas of a compressed batch must count up from 0")
        if self._codec and walk.largest > self._max_record_bytes:
            raise InvalidRecord(f"a record of {walk.largest} bytes exceeds the limit of {self._max_record_bytes}")
        earliest, latest = header.base_timestamp + int(walk.least), header.base_timestamp + int(walk.most)
        if self._rules.may_be_broken(header, earliest, latest, walk.without_key):
            latest = self._rules.latest(header, latest)
            if self._is_whole:
                self._search = self._rules.search(self._plain, self._start, header, is_open=False)
            else:
                self._search = self._rules.search(b"", 0, header, is_open=True)
                self._parts = joined_pieces(self._read_again(), self._part_bytes)
                self.has_more = True
        self._latest = latest
        if walk.out_of_sequence and self._codec != self._target:
            self._renumbering = Renumbering(self._plain, self._start, header.record_count)
        return self.has_more

    def settle(self) -> ValidatedBatch:
        """Makes the changes of (E), except offset and leader epoch."""
        rules = self._rules
        max_timestamp = rules.now_ms if rules.timestamp_type else max(self._latest, NO_TIMESTAMP)
        if self._codec == self._target:
            return keep_records(self._records, self._header, rules.timestamp_type, max_timestamp)
        return replace_records(self._recompressed(), self._header, rules.timestamp_type, max_timestamp, self._target)

    def _recompressed(self) -> bytes:
        """Returns the records in the topic's codec. Raises MESSAGE_TOO_LARGE."""
        target, level, most_bytes = self._target, self._compression_level, self._max_batch_bytes - BATCH_OVERHEAD
        if not self._is_whole:
            body, size = compress_pieces(target, self._read_again(), self._inflated_bytes, level, most_bytes)
        else:
            renumbering = self._renumbering
            plain = memoryview(self._plain)[self._start : self._end] if renumbering is None else renumbering.result()
            body = compress(target, plain, level)
            size = len(body)
        check_size(BATCH_OVERHEAD + size, self._max_batch_bytes)
        return body


def _target_codec(target_compression: str | int, header: BatchHeader) -> int:
    """Returns the codec of the stored batch. Uncompressed control batches stay uncompressed."""
    codec = header.attributes & COMPRESSION_MASK
    if header.attributes & CONTROL_MASK and not codec:
        return codec
    target = TARGET_COMPRESSIONS[target_compression] if isinstance(target_compression, str) else target_compression
    return codec if target is None else target


def _only_batch(records: bytes, api_version: int) -> BatchHeader:
    """Checks (A). Whole batches of other formats are recognized before their headers are read."""
    size = next_batch_size(records, 0)
    if size is None:
        raise UnfitRecords("the records contain no whole batch")
    magic = records[MAGIC_POSITION]
    if magic != CURRENT_MAGIC:
        message = f"message format {magic} is not supported: only one batch of format {CURRENT_MAGIC} is accepted"
        if api_version < FIRST_VERSION_WITH_FORMAT_2:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, message)
        raise UnfitRecords(message)
    header = read_batch_header(records)
    if api_version < FIRST_VERSION_WITH_ZSTD and header.attributes & COMPRESSION_MASK == _ZSTD:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {FIRST_VERSION_WITH_ZSTD} of Produce, but the request has {api_version}",
        )
    if size < len(records) and next_batch_size(records, size) is not None:
        raise UnfitRecords("the records contain more than one batch")
    return header


def _check_epoch(header: BatchHeader, partition_leader_epoch: int, origin: AppendOrigin) -> None:
    if origin is AppendOrigin.RAFT_LEADER and header.partition_leader_epoch != partition_leader_epoch:
        raise InvalidRecord(
            f"the batch has leader epoch {header.partition_leader_epoch}, but the leader's is {partition_leader_epoch}"
        )


def _check_bytes(records: bytes, header: BatchHeader, size: int) -> None:
    """Checks the checksum of (B)."""
    crc = crc32c(memoryview(records)[ATTRIBUTES_POSITION:size])
    if crc != header.crc:
        raise CorruptBatch(f"the batch has checksum {header.crc:#010x}, but its bytes have {crc:#010x}")


def check_size(size: int, max_batch_bytes: int) -> None:
    """Raises MESSAGE_TOO_LARGE above `max_batch_bytes`."""
    if size > max_batch_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch of {size} bytes exceeds the topic's limit of {max_batch_bytes}"
        )


def _check_header(header: BatchHeader) -> None:
    """Checks (C)."""
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise InvalidRecord(f"a batch of {count} records cannot have the last offset delta {header.last_offset_delta}")
    if header.attributes & CONTROL_MASK:
        raise InvalidRecord("only brokers may write control batches")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise InvalidRecord(f"a batch with producer id {header.producer_id} has sequence {header.base_sequence}")


def _malformed(outcome: int, index: int) -> InvalidRecord:
    if outcome == BYTES_LEFT_IN_BATCH:
        return InvalidRecord(f"bytes follow the batch's {index} records")
    return InvalidRecord(f"record {index} is malformed: {_COMPLAINTS[outcome]}")
