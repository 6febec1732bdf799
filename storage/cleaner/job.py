"""What a cleaner is told of the log that it is to clean, and what it tells of its work. Both travel as JSON to and
from a process of its own.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from odradek.storage.transaction_index import AbortedTransaction


class SourceSegment(NamedTuple):
    """A sealed segment. Sizes in bytes, of its log and of what its indexes take at the most; `end_offset`: where the
    next one begins; `modified_ms`: when its file was written last.
    """

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


class ActiveProducer(NamedTuple):
    """The last data offset of a producer that the log remembers, -1 where its last batch was a marker; its epoch."""

    last_data_offset: int
    producer_epoch: int


class CleanJob(NamedTuple):
    """One log to clean: the offsets from `first_dirty_offset` to below `upper_bound_offset` are dirty; `segments` are
    all below that bound, from the log's first one on. Times in ms by the wall clock, sizes in bytes.

    `aborted` are the aborted transactions that end at or behind the first segment. `map_bytes`: memory for the keys;
    when it is used up the clean ends there. `chunk_bytes`: how much is read at once.
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
    """The segments with these base offsets are now one, in files that end in `.cleaned` and are on the disk.

    `base_offset` is the new one's, and the first of theirs. Not `changed`: a single segment of which nothing goes;
    there are no files then.
    """

    base_offset: int
    replaced: list[int]
    changed: bool


class CleanStats:
    """Kafka's CleanerStats. Bytes and records; times in ms of the one who drives the clean."""

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
    """What is in a segment cannot be cleaned: a batch that is not what was written, or records that nobody can read."""
