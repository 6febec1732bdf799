"""A range of offsets of many partitions, and the parts of it: readable, lost, the first N offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.kafka.topics import Topics


@dataclass(frozen=True, slots=True)
class Chunk:
    """Offsets from `start` (inclusive) to `end` (exclusive), of the same partitions."""

    start: Offsets
    end: Offsets

    def without_empty(self) -> Chunk:
        """Returns the chunk without the partitions of which it has no offset."""
        return _chunk(part for part in self._parts() if part[2] < part[3])

    def readable(self, topics: Topics) -> Chunk:
        """Returns the part of the chunk that is within the logs."""
        found = []
        for name, number, start, end in self._parts():
            first, last = _log(topics, name, number)
            if max(start, first) < min(end, last):
                found.append((name, number, max(start, first), min(end, last)))
        return _chunk(found)

    def skipping_lost(self, topics: Topics) -> Chunk:
        """Returns the chunk without the offsets before the log start offsets."""
        return _chunk(
            (name, number, min(max(start, _log(topics, name, number)[0]), end), end)
            for name, number, start, end in self._parts()
        )

    def lost(self, topics: Topics, first: Mapping[tuple[str, int], int]) -> int:
        """Counts the chunk's offsets that are before the log start offset and before the `first` offset that was read
        of the partition. All offsets of a deleted partition count as before the log start.
        """
        return sum(
            max(0, min(_log_start(topics, name, number, end), end, first.get((name, number), end)) - start)
            for name, number, start, end in self._parts()
        )

    def first(self, most: int) -> Chunk:
        """Returns the first offsets of the chunk, at most `most` in total, with the same share of each partition."""
        offsets = self.offsets()
        if offsets <= most:
            return self
        found, left = [], most
        for name, number, start, end in self._parts():
            share = min((end - start) * most // offsets, left)
            found.append((name, number, start, start + share))
            left -= share
        return _chunk(_topped_up(found, self.end, left))

    def offsets(self) -> int:
        """Returns the number of offsets in the chunk."""
        return sum(end - start for _, _, start, end in self._parts())

    def _parts(self) -> Iterator[tuple[str, int, int, int]]:
        for name, partitions in self.start.items():
            for number, start in partitions.items():
                yield name, number, start, self.end[name][number]


def _topped_up(
    parts: Iterable[tuple[str, int, int, int]], ends: Offsets, left: int
) -> Iterator[tuple[str, int, int, int]]:
    """Gives the offsets that rounding left over to the first partitions that have more."""
    for name, number, start, end in parts:
        more = min(left, ends[name][number] - end)
        left -= more
        yield name, number, start, end + more


def _log(topics: Topics, name: str, number: int) -> tuple[int, int]:
    topic = topics.get(name)
    return (topic.starts.get(number, 0), topic.ends.get(number, 0)) if topic else (0, 0)


def _log_start(topics: Topics, name: str, number: int, gone: int) -> int:
    return topics[name].starts.get(number, gone) if name in topics else gone


def _chunk(parts: Iterable[tuple[str, int, int, int]]) -> Chunk:
    start: dict[str, dict[int, int]] = {}
    end: dict[str, dict[int, int]] = {}
    for name, number, first, last in parts:
        start.setdefault(name, {})[number] = first
        end.setdefault(name, {})[number] = last
    return Chunk(start, end)
