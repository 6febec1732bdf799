"""A topic's rules for its records: a key if it is compacted, a timestamp within its bounds (Kafka's LogValidator).

The walk has found the extremes of all records. Only if those may break a rule is each record checked, to name the
invalid ones.
"""

from collections.abc import Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from odradek.protocol.batch_header import NO_TIMESTAMP, TIMESTAMP_TYPE_MASK, BatchHeader, TimestampType
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record_walk import RefusedRecords

MAX_INT32: Final = (1 << 31) - 1
MAX_INT64: Final = (1 << 63) - 1
# How many records a response names; a batch may hold millions.
MOST_RECORD_ERRORS = 1000


@mypyc_attr(native_class=False)
class InvalidRecord(ProtocolError):
    """Records that a leader refuses: INVALID_RECORD, or INVALID_TIMESTAMP.

    `record_errors` lists the invalid records as (index in the batch, message) for the response; it is empty if the
    batch as a whole is invalid.
    """

    def __init__(
        self,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
        code: ErrorCode = ErrorCode.INVALID_RECORD,
    ) -> None:
        super().__init__(code, message)
        self.record_errors = list(record_errors)


@mypyc_attr(native_class=False)
class UnfitRecords(InvalidRecord):
    """The records are not exactly one batch of the current format, which every topic refuses."""


class RecordRules:
    """The topic's settings: cleanup.policy, message.timestamp.type, the clock in ms, message.timestamp.*.max.ms."""

    __slots__ = ("after_max_ms", "before_max_ms", "compacted", "now_ms", "timestamp_type")

    def __init__(
        self, compacted: bool, timestamp_type: TimestampType, now_ms: int, before_max_ms: int, after_max_ms: int
    ) -> None:
        self.compacted = compacted
        self.timestamp_type = timestamp_type
        self.now_ms = now_ms
        self.before_max_ms = before_max_ms
        self.after_max_ms = after_max_ms

    def may_be_broken(self, header: BatchHeader, earliest: int, latest: int, without_key: int) -> bool:
        """Whether a record may break a rule, given that all timestamps are between `earliest` and `latest`."""
        if (without_key and self.compacted) or header.attributes & TIMESTAMP_TYPE_MASK:
            return True
        if latest > MAX_INT64 or earliest < -MAX_INT64:
            return True
        if self.timestamp_type:
            return False
        return self.now_ms - earliest > self.before_max_ms or latest - self.now_ms > self.after_max_ms

    def latest(self, header: BatchHeader, latest: int) -> int:
        """Returns the batch's largest timestamp; `latest` is that of its records. In a batch with LogAppendTime, all
        records have the maximum timestamp; a topic with CreateTime resets the type.
        """
        return header.max_timestamp if header.attributes & TIMESTAMP_TYPE_MASK else latest

    def search(self, plain: bytes, start: int, header: BatchHeader, is_open: bool) -> RefusedRecords:
        """Returns a search for the invalid records, among those from `start` of `plain`, see RecordPassage."""
        base = header.base_timestamp
        if header.attributes & TIMESTAMP_TYPE_MASK:
            latest = header.max_timestamp
            refuses_all = bool(self.timestamp_type) or latest == NO_TIMESTAMP or self._is_out_of_range(latest)
            least, most = (1, 0) if refuses_all else (-MAX_INT64, MAX_INT64)
            exempt = 0
        else:
            least, most = self._bounds(base)
            exempt = NO_TIMESTAMP - base
        return RefusedRecords(
            plain,
            start,
            header.record_count,
            self.compacted,
            _fit_int64(least),
            _fit_int64(most),
            _fit_int64(exempt),
            MOST_RECORD_ERRORS,
            is_open,
        )

    def _bounds(self, base: int) -> tuple[int, int]:
        """Returns the range of valid timestamp deltas; timestamps beyond 64 bits are never valid."""
        if self.timestamp_type:
            return -MAX_INT64 - base, MAX_INT64 - base
        earliest = -MAX_INT64 if self.before_max_ms == MAX_INT64 else self.now_ms - self.before_max_ms
        latest = min(self.now_ms + self.after_max_ms, MAX_INT64)
        return earliest - base, latest - base

    def _is_out_of_range(self, timestamp: int) -> bool:
        return self.now_ms - timestamp > self.before_max_ms or timestamp - self.now_ms > self.after_max_ms

    def complaint(self, header: BatchHeader, refused: list[tuple[int, bool, int]]) -> InvalidRecord:
        """Returns the error that names the invalid records."""
        errors = []
        code = ErrorCode.INVALID_RECORD
        for index, wants_key, delta in refused:
            if wants_key:
                errors.append((index, "a compacted topic requires a key"))
            else:
                code = ErrorCode.INVALID_TIMESTAMP
                errors.append((index, self._timestamp_complaint(header, delta)))
        reason = "their timestamps" if code is ErrorCode.INVALID_TIMESTAMP else "missing keys"
        count = f"{len(errors)}" if len(errors) < MOST_RECORD_ERRORS else f"{len(errors)} or more"
        return InvalidRecord(f"{count} of {header.record_count} records are refused for {reason}", errors, code)

    def _timestamp_complaint(self, header: BatchHeader, delta: int) -> str:
        if header.attributes & TIMESTAMP_TYPE_MASK and (self.timestamp_type or header.max_timestamp == NO_TIMESTAMP):
            return "a producer may not set the timestamp type LogAppendTime"
        earliest, latest = self.now_ms - self.before_max_ms, self.now_ms + self.after_max_ms
        return f"timestamp {header.base_timestamp + delta} is not between {earliest} and {latest}"


def _fit_int64(value: int) -> int:
    return min(max(value, -MAX_INT64), MAX_INT64)
