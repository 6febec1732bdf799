"""The offsets of a log and how they move. Only this class writes them: each change is a named transition."""


class LogState:
    """Invariants before and after every transition:

    (A) `log_start_offset` <= `high_watermark` <= `log_end_offset`.
    (B) `recovery_point` <= `log_end_offset`. Everything below the recovery point is on the disk, so recovery starts
        there.
    (C) `generation` increases when offsets get other records, or records other files. A flush, a clean or a copy that
        began in an older generation does not count.
    (D) Everything below `cleaned_offset` has been cleaned; None: nothing has. It comes from a checkpoint and may lie
        outside the log until the cleaner checks it. A truncation lowers it.
    (E) `closed`: everything is on the disk, with the indexes, and nothing is appended any more.
    (F) `truncating_to`: while a truncation is under way, the offset from which on records are removed, otherwise None.
        Until then, nothing at this offset or above it becomes flushed, cleaned or deleted, so that no checkpoint that
        is written meanwhile claims it.
    """

    __slots__ = (
        "being_cleaned",
        "cleaned_offset",
        "closed",
        "generation",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "truncating_to",
    )

    def __init__(self) -> None:
        self.log_start_offset: int = 0
        self.high_watermark: int = 0
        self.log_end_offset: int = 0
        self.recovery_point: int = 0
        self.generation: int = 0
        self.cleaned_offset: int | None = None
        self.being_cleaned: bool = False
        self.closed: bool = False
        self.truncating_to: int | None = None

    def __repr__(self) -> str:
        offsets = f"{self.log_start_offset}-{self.log_end_offset}, high_watermark={self.high_watermark}"
        return f"LogState({offsets}, recovery_point={self.recovery_point})"

    def check(self) -> None:
        """Asserts (A), (B), (E) and (F)."""
        assert 0 <= self.log_start_offset <= self.high_watermark <= self.log_end_offset, self
        assert self.recovery_point <= self.log_end_offset, self
        assert not self.closed or self.recovery_point == self.log_end_offset, f"{self} is closed"
        kept = self.truncating_to
        if kept is not None:
            assert max(self.log_start_offset, self.recovery_point) <= kept, f"{self} is being truncated to {kept}"
            assert self.cleaned_offset is None or self.cleaned_offset <= kept, f"cleaned to {self.cleaned_offset}"

    # ---- opening and closing

    def opened(self, log_start_offset: int, log_end_offset: int, recovery_point: int) -> None:
        """The segments are loaded, with these bounds. How much of them is replicated is not known yet."""
        self.log_end_offset = log_end_offset
        self.log_start_offset = self.high_watermark = min(log_start_offset, log_end_offset)
        self.recovery_point = min(recovery_point, log_end_offset)

    def closed_cleanly(self) -> None:
        self.closed = True

    # ---- growing

    def appended(self, end_offset: int) -> None:
        """A batch that ends before `end_offset` has been written."""
        self.log_end_offset = end_offset

    def replicated_to(self, offset: int) -> int:
        """Moves the high watermark to the offset, or to the nearest bound of the log; returns its new value."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        self.high_watermark = offset
        return offset

    def flushed_to(self, offset: int) -> None:
        """Everything below the offset is on the disk."""
        if offset > self.recovery_point:
            self.recovery_point = max(self.recovery_point, self._kept(min(offset, self.log_end_offset)))

    def _kept(self, offset: int) -> int:
        """Returns the offset, or the one from which on records are being removed, if that is smaller (F)."""
        return offset if self.truncating_to is None else min(offset, self.truncating_to)

    # ---- shrinking

    def started_at(self, offset: int) -> None:
        """Moves the log's start, at most to its end. Records below need neither replicas nor a flush."""
        self.log_start_offset = offset = max(self.log_start_offset, self._kept(min(offset, self.log_end_offset)))
        self.high_watermark = max(self.high_watermark, offset)
        self.recovery_point = max(self.recovery_point, offset)

    def truncation_begun(self, offset: int) -> None:
        """Records at the offset and above are about to be removed: they no longer count as flushed, cleaned or
        replicated, nor as deleted. Flushes and cleans in progress do not count.
        """
        self.generation += 1
        self.truncating_to = offset
        self._withdraw_from(offset)

    def _withdraw_from(self, offset: int) -> None:
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.high_watermark = min(self.high_watermark, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)

    def truncated_to(self, offset: int) -> None:
        """The log ends at the offset now. The truncation is over if it is the one that it began with; until then, a
        part of the files is removed.
        """
        self.generation += 1
        self._withdraw_from(offset)
        self.log_end_offset = offset
        if self.truncating_to is not None and offset <= self.truncating_to:
            self.truncating_to = None

    def truncation_ended(self) -> None:
        """Nothing more is removed, because the truncation is complete or was given up."""
        self.truncating_to = None

    def started_over(self, offset: int) -> None:
        """The log has lost all its records, and starts and ends at the offset now."""
        self.generation += 1
        self.truncating_to = None
        self.log_start_offset = self.log_end_offset = self.high_watermark = self.recovery_point = offset
        if self.cleaned_offset is not None:
            self.cleaned_offset = offset

    # ---- other files

    def relocated(self) -> None:
        """The files are in another folder."""
        self.generation += 1

    def cleaning_begun(self) -> None:
        self.being_cleaned = True

    def cleaning_ended(self) -> None:
        self.being_cleaned = False

    def cleaned_to(self, offset: int | None) -> None:
        """Sets the offset up to which the log is cleaned, from the cleaner or from a checkpoint."""
        self.cleaned_offset = offset if offset is None else self._kept(offset)
