"""A task: a range of offsets within one segment, as it was planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Aborted(NamedTuple):
    """An aborted transaction: what its producer wrote in transactions from first to last offset, the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class Planned(NamedTuple):
    """A segment when the read was planned; `identity` is its file's inode, which a rename keeps."""

    base_offset: int
    identity: int


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The records of [start_offset, end_offset); in the planned file they are in [start_position, end_position)."""

    directory: str
    topic: str
    partition: int
    segment: Planned
    previous: Planned | None
    """The segment before: if it is still what it was, then this one was not merged into it."""
    start_offset: int
    end_offset: int
    start_position: int
    end_position: int
    aborted: tuple[Aborted, ...]
