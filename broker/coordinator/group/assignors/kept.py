"""Kept: what members keep of their last targets, and what is free after that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from uuid import UUID

from odradek.broker.coordinator.group.assignors.assignor import Partitions

_NONE: frozenset[int] = frozenset()


class Kept:
    """No partition is kept by two members, whatever the last target says."""

    __slots__ = ("_counts", "_taken")

    def __init__(self, partition_counts: Mapping[UUID, int]) -> None:
        self._counts = partition_counts
        self._taken: dict[UUID, set[int]] = {}

    def keep(self, topics: frozenset[UUID], last: Partitions, most: int) -> tuple[Partitions, int]:
        """Returns what the member keeps, which is at most `most` partitions, and how many they are."""
        part: dict[UUID, frozenset[int]] = {}
        size = 0
        for topic_id, partitions in last.items():
            if topic_id not in topics or size == most:
                continue
            taken = self._taken.setdefault(topic_id, set())
            count = self._counts[topic_id]
            if not taken.isdisjoint(partitions) or max(partitions) >= count or min(partitions) < 0:
                partitions = frozenset(each for each in partitions if 0 <= each < count) - taken
            if len(partitions) > most - size:
                partitions = frozenset(sorted(partitions)[: most - size])
            if partitions:
                part[topic_id] = partitions
                taken |= partitions
                size += len(partitions)
        return (last if part == last else part), size

    def free(self) -> Iterator[tuple[UUID, int]]:
        """Yields the partitions that nobody keeps, by topic."""
        for topic_id in sorted(self._counts, key=_id):
            taken = self._taken.get(topic_id, _NONE)
            for partition in range(self._counts[topic_id]):
                if partition not in taken:
                    yield topic_id, partition


def _id(topic_id: UUID) -> int:
    return topic_id.int
