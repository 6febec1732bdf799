"""Ranges of offsets: their readable part, and fair chunks of them."""

from __future__ import annotations

import random

import pytest

from odradek.pipeline.kafka.chunks import Chunk
from odradek.pipeline.kafka.topics import Topic

TOPICS = {"a": Topic("id", {0: 10, 1: 0}, {0: 20, 1: 5})}


def chunk(**parts: tuple[int, int]) -> Chunk:
    """a0=(5, 8): offsets 5 to 7 of a-0."""
    start: dict[str, dict[int, int]] = {}
    end: dict[str, dict[int, int]] = {}
    for place, (first, last) in parts.items():
        start.setdefault(place[0], {})[int(place[1:])] = first
        end.setdefault(place[0], {})[int(place[1:])] = last
    return Chunk(start, end)


def taken(part: Chunk) -> dict[str, int]:
    return {
        f"{name}{number}": part.end[name][number] - at for name, ps in part.start.items() for number, at in ps.items()
    }


@pytest.mark.parametrize("seed", range(20))
def test_a_chunk_has_the_requested_offsets_and_an_equal_share_of_each_partition(seed: int) -> None:
    dice = random.Random(seed)
    starts = {f"{name}{number}": dice.randint(0, 10**9) for name in "abc" for number in range(dice.randint(1, 5))}
    waiting = {place: dice.choice([0, 1, 7, 1000, 10**6, 2**62]) for place in starts}
    whole = chunk(**{place: (start, start + waiting[place]) for place, start in starts.items()})
    total = whole.offsets()
    assert total == sum(waiting.values())
    for most in (1, 2, dice.randint(1, 10**7), total - 1, total, total + 1):
        part = whole.first(most)
        assert part.start == whole.start
        found = taken(part)
        assert sum(found.values()) == min(most, total)
        assert all(0 <= found[place] <= waiting[place] for place in waiting)
        if most < total:
            shares = {place: waiting[place] * most // total for place in waiting}
            assert all(found[place] >= shares[place] for place in waiting), "what rounding leaves comes on top"
            assert sum(found[place] - shares[place] for place in waiting) < len(waiting)


def test_every_partition_is_eventually_read_to_its_end() -> None:
    """Successive batches reach the end of every partition, and no partition waits for another."""
    left, seen = chunk(a0=(0, 1000), a1=(0, 3), b0=(0, 1)), []
    while left.offsets():
        part = left.first(10)
        seen.append(part.offsets())
        left = Chunk(part.end, left.end)
    assert seen == [10] * 100 + [4]


def test_partitions_without_offsets_are_left_out() -> None:
    assert chunk(a0=(5, 5), a1=(5, 6), b0=(7, 7), c0=(8, 2)).without_empty() == chunk(a1=(5, 6))


def test_a_readable_range_is_within_the_logs() -> None:
    assert chunk(a0=(5, 15), a1=(2, 9)).readable(TOPICS) == chunk(a0=(10, 15), a1=(2, 5))
    assert chunk(a0=(5, 10), a1=(5, 9), a2=(0, 1), b0=(0, 1)).readable(TOPICS) == chunk()


def test_lost_offsets_are_those_deleted_before_the_first_read_offset() -> None:
    assert chunk(a0=(4, 15), a1=(0, 5)).lost(TOPICS, {}) == 6
    assert chunk(a0=(4, 7)).lost(TOPICS, {}) == 3, "all of the batch"
    assert chunk(a0=(12, 15)).lost(TOPICS, {}) == 0
    assert chunk(a0=(4, 15)).lost(TOPICS, {("a", 0): 6}) == 2, "from 6 on it was read before it went"
    assert chunk(a7=(4, 9), b0=(1, 3)).lost(TOPICS, {}) == 7, "the partition, or the topic, is gone"


def test_lost_offsets_are_skipped_and_do_not_count_in_a_batch() -> None:
    assert chunk(a0=(5, 15), a1=(2, 9)).skipping_lost(TOPICS) == chunk(a0=(10, 15), a1=(2, 9))
    assert chunk(a0=(5, 7)).skipping_lost(TOPICS) == chunk(a0=(7, 7)), "all of it is lost"
    assert chunk(a0=(12, 15)).skipping_lost(TOPICS) == chunk(a0=(12, 15))
    assert chunk(b0=(3, 4)).skipping_lost(TOPICS) == chunk(b0=(3, 4)), "a missing topic changes nothing"
