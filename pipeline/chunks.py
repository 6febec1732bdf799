"""What of a chunk of history can be read, and what is lost, by a look at the topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from odradek.pipeline.ledger import Offsets
from odradek.pipeline.topic_ids import Topics


@dataclass(frozen=True, slots=True)
class Chunk:
    """Offsets from `start` to before `end`, of the same partitions."""

    start: Offsets
    end: Offsets

    def without_empty(self) -> Chunk:
        """The partitions that have any offset in it."""
        return _chunk(part for part in self._parts() if part[2] < part[3])

    def readable(self, topics: Topics, gone: Collection[str] = ()) -> Chunk:
        """What is within the logs, of topics that are not `gone`."""
        found = []
        for name, number, start, end in self._parts():
            first, last = (0, 0) if name in gone else _log(topics, name, number)
            if max(start, first) < min(end, last):
                found.append((name, number, max(start, first), min(end, last)))
        return _chunk(found)

    def only(self, name: str) -> Chunk:
        """Its part of one topic."""
        return _chunk(part for part in self._parts() if part[0] == name)

    def offsets(self) -> int:
        """How many offsets it has."""
        return sum(end - start for _, _, start, end in self._parts())

    def _parts(self) -> Iterator[tuple[str, int, int, int]]:
        for name, partitions in self.start.items():
            for number, start in partitions.items():
                yield name, number, start, self.end[name][number]


def _log(topics: Topics, name: str, number: int) -> tuple[int, int]:
    topic = topics.get(name)
    return (topic.starts.get(number, 0), topic.ends.get(number, 0)) if topic else (0, 0)


def _chunk(parts: Iterable[tuple[str, int, int, int]]) -> Chunk:
    start: dict[str, dict[int, int]] = {}
    end: dict[str, dict[int, int]] = {}
    for name, number, first, last in parts:
        start.setdefault(name, {})[number] = first
        end.setdefault(name, {})[number] = last
    return Chunk(start, end)
