"""The result of a Produce request for one partition."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.protocol.errors import ErrorCode

UNKNOWN = -1


class PartitionAppendResult:
    """The error, or where the batch was appended.

    `base_offset` and `last_offset` are inclusive, `log_append_time_ms` is -1 with CreateTime, `log_start_offset` is -1
    if unknown. `record_errors` are (index in the batch, message or None) of the invalid records (KIP-467). While the
    request waits, `error` is the code that it returns on timeout. `leadership` is the partition's at the append, -1 if
    the wait does not depend on it.
    """

    __slots__ = (
        "base_offset",
        "error",
        "error_message",
        "flush_required",
        "last_offset",
        "leadership",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error: ErrorCode = ErrorCode.NONE,
        base_offset: int = UNKNOWN,
        last_offset: int = UNKNOWN,
        log_append_time_ms: int = UNKNOWN,
        log_start_offset: int = UNKNOWN,
        record_errors: Sequence[tuple[int, str | None]] = (),
        error_message: str | None = None,
        flush_required: bool = False,
        leadership: int = UNKNOWN,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_errors = record_errors
        self.error_message = error_message
        self.flush_required = flush_required
        self.leadership = leadership

    @property
    def required_offset(self) -> int:
        """The offset (exclusive) that must be replicated, or flushed, before this append is acknowledged."""
        return self.last_offset + 1
