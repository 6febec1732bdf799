"""Offsets with their positions in the files, as returned by appends, reads and lookups."""

from typing import NamedTuple

UNKNOWN_SEGMENT = -1


class LogOffsetMetadata:
    """An offset and, if known, its segment and its byte position in the segment (Kafka's LogOffsetMetadata)."""

    __slots__ = ("message_offset", "relative_position", "segment_base_offset")

    def __init__(
        self, message_offset: int, segment_base_offset: int = UNKNOWN_SEGMENT, relative_position: int = -1
    ) -> None:
        self.message_offset = message_offset
        self.segment_base_offset = segment_base_offset
        self.relative_position = relative_position

    @property
    def message_offset_only(self) -> bool:
        return self.segment_base_offset < 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LogOffsetMetadata):
            return NotImplemented
        return (
            self.message_offset == other.message_offset
            and self.segment_base_offset == other.segment_base_offset
            and self.relative_position == other.relative_position
        )

    def __hash__(self) -> int:
        return hash((self.message_offset, self.segment_base_offset, self.relative_position))

    def __repr__(self) -> str:
        where = "" if self.message_offset_only else f" in {self.segment_base_offset} at {self.relative_position}"
        return f"LogOffsetMetadata({self.message_offset}{where})"


class TimestampOffset(NamedTuple):
    """A record found by time: its timestamp (ms, -1 if the response has none), its offset, and its batch's leader epoch
    (-1 if unknown).
    """

    timestamp: int
    offset: int
    leader_epoch: int = -1


class EpochEndOffset(NamedTuple):
    """The largest epoch not above the requested one, and its end offset (-1, -1: unknown)."""

    epoch: int
    end_offset: int
