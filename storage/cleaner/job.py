"""The description of a clean and its results. Both are sent as JSON between the broker and the cleaner process."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from odradek.storage.segment.transaction_index import AbortedTransaction


class SourceSegment(NamedTuple):
    """A sealed segment. Sizes in bytes: of its log, and the maximum of its indexes. `end_offset`: where the next
    segment starts; `modified_ms`: when its file was last written.
    """

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


class ActiveProducer(NamedTuple):
    """A producer that the log knows: its last data offset, -1 if its last batch was a marker, and its epoch."""

    last_data_offset: int
    producer_epoch: int


class CleanJob(NamedTuple):
    """One log to clean. The offsets from `first_dirty_offset` to below `upper_bound_offset` are dirty; `segments` are
    all segments below that bound. Times in ms by the wall clock, sizes in bytes.

    `aborted` are the aborted transactions that end in the first segment or later. `map_bytes`: memory for the keys; the
    clean ends where it is full. `chunk_bytes`: the size of one read.
    """

    directory: str
    segments: list[SourceSegment]
    first_dirty_offset: int
    upper_bound_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_decompressed_bytes: int
    map_bytes: int
    chunk_bytes: int
    aborted: list[AbortedTransaction]
    producers: dict[int, ActiveProducer]

    def to_json(self) -> str:
        return json.dumps([*self[:-1], [[key, *value] for key, value in self.producers.items()]])

    @classmethod
    def from_json(cls, text: str | bytes) -> CleanJob:
        fields: list[Any] = json.loads(text)
        fields[1] = [SourceSegment(*segment) for segment in fields[1]]
        fields[-2] = [AbortedTransaction(*transaction) for transaction in fields[-2]]
        fields[-1] = {key: ActiveProducer(offset, epoch) for key, offset, epoch in fields[-1]}
        return cls(*fields)


class CleanedGroup(NamedTuple):
    """The segments with the `replaced` base offsets are now one, in synced files that end in `.cleaned`.

    `base_offset` is that of the new segment and of the first replaced one. Not `changed`: a single segment that loses
    nothing; it has no new files.
    """

    base_offset: int
    replaced: list[int]
    changed: bool


class CleanStats:
    """Kafka's CleanerStats. Bytes and records; times in ms, set by the caller that drives the clean."""

    __slots__ = (
        "buffer_utilization",
        "bytes_read",
        "bytes_written",
        "invalid_messages_read",
        "map_bytes_read",
        "map_messages_read",
        "messages_read",
        "messages_written",
    )

    def __init__(self) -> None:
        self.map_bytes_read = 0
        self.map_messages_read = 0
        self.bytes_read = 0
        self.bytes_written = 0
        self.messages_read = 0
        self.messages_written = 0
        self.invalid_messages_read = 0
        self.buffer_utilization = 0.0

    def as_dict(self) -> dict[str, int | float]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CleanStats:
        stats = cls()
        for name, value in values.items():
            setattr(stats, name, value)
        return stats


class CleanDone(NamedTuple):
    """The log is clean up to `end_offset`."""

    end_offset: int
    stats: CleanStats


class UncleanableLog(Exception):
    """A segment cannot be cleaned: a batch is damaged, or its records are unreadable."""
