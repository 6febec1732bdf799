"""A task: a range of offsets within one segment, as planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Aborted(NamedTuple):
    """An aborted transaction: its producer's transactional records from the first offset to the last, the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int


class Planned(NamedTuple):
    """A segment when the read was planned. `identity` is its file's inode, which a rename keeps."""

    base_offset: int
    identity: int


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The records of [start_offset, end_offset), which the planned file has in [start_position, end_position)."""

    directory: str
    topic: str
    partition: int
    segment: Planned
    previous: Planned | None
    """The segment before this one. If it is unchanged, this one was not merged into it."""
    start_offset: int
    end_offset: int
    start_position: int
    end_position: int
    aborted: tuple[Aborted, ...]
