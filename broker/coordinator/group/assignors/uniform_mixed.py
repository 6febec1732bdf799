"""The uniform assignor for members with different topics: loads as equal as subscriptions allow, then few moves.

Topics with the same subscribers form a pool: for balance their partitions are alike. Three stages:

(A) Each member keeps what it had and may still have.
(B) Free partitions go to the subscriber with the smallest load, pools with the fewest subscribers first.
(C) Within each pool a member gives partitions to one that has at least two fewer, those first that it did not have
    before. First only members give that have far more, then others, so that few partitions move on twice. A move in one
    pool can make room for one in another, so that the pools are gone through again until nothing moves, but at most 16
    times.

Afterwards no single move within a topic makes two loads more equal, unless 16 rounds did not suffice.

Source: Kafka's UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heapreplace
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.assignors.assignor import AssignmentSpec, MemberSpec, Partitions, Target
from odradek.broker.coordinator.group.assignors.kept import Kept

MOST_ROUNDS = 16
TopicPartition = tuple[UUID, int]


class _Share:
    """A member's partitions while they are dealt. `kept` it had before; `given` is by pool."""

    __slots__ = ("given", "index", "kept", "load", "member_id", "spec")

    def __init__(self, index: int, member_id: str, spec: MemberSpec, part: Partitions, load: int) -> None:
        self.index = index
        """Decides between equal loads, so that the outcome is the same each time."""
        self.member_id = member_id
        self.spec = spec
        self.kept = part
        self.load = load
        self.given: dict[int, list[TopicPartition]] = {}
        """By pool. Whatever it had before comes first, so that the last ones can be moved on at no cost."""

    def part(self) -> Partitions:
        partitions: dict[UUID, set[int]] = {}
        for given in self.given.values():
            for topic_id, partition in given:
                partitions.setdefault(topic_id, set()).add(partition)
        last = self.spec.target
        return last if partitions == last else {topic_id: frozenset(each) for topic_id, each in partitions.items()}


class _Pool:
    """Topics with the same subscribers."""

    __slots__ = ("free", "index", "members")

    def __init__(self, index: int, members: list[_Share]) -> None:
        self.index = index
        self.members = members
        self.free: list[TopicPartition] = []

    def smallest_first(self) -> list[tuple[int, int, _Share]]:
        heap = [(share.load, share.index, share) for share in self.members]
        heapify(heap)
        return heap

    def largest_first(self) -> list[tuple[int, int, _Share]]:
        heap = [(-share.load, share.index, share) for share in self.members if share.given.get(self.index)]
        heapify(heap)
        return heap


def assign(spec: AssignmentSpec) -> Steps[Target]:
    """Returns the target."""
    pace = Pace()
    kept = Kept(spec.partition_counts)
    shares = yield from _kept_shares(spec, kept, pace)  # (A)
    pools, pool_of = yield from _pools(spec, shares, pace)
    yield from _fill(pool_of, shares, kept, pace)
    for pool in sorted(pools, key=_subscribers):  # (B)
        yield from _deal(pool, pace)
    yield from _level_all(pools, max((share.load for share in shares), default=0), pace)  # (C)
    target: Target = {}
    for share in shares:
        target[share.member_id] = share.part()
        if pace.step_ends(1 + share.load):
            yield
    return target


def _kept_shares(spec: AssignmentSpec, kept: Kept, pace: Pace) -> Steps[list[_Share]]:
    shares = []
    for index, (member_id, member) in enumerate(spec.members.items()):
        part, load = kept.keep(member.topics, member.target, sum(map(len, member.target.values())))
        shares.append(_Share(index, member_id, member, part, load))
        if pace.step_ends(1 + len(part)):
            yield
    return shares


def _pools(spec: AssignmentSpec, shares: list[_Share], pace: Pace) -> Steps[tuple[list[_Pool], dict[UUID, _Pool]]]:
    """Returns the pools, and the pool of each topic."""
    alike: dict[frozenset[UUID], list[_Share]] = {}
    for share in shares:
        alike.setdefault(share.spec.topics, []).append(share)
        if pace.step_ends():
            yield
    groups_of_topic: dict[UUID, list[int]] = {topic_id: [] for topic_id in spec.partition_counts}
    for number, topics in enumerate(alike):
        for topic_id in topics:
            groups_of_topic[topic_id].append(number)
            if pace.step_ends():
                yield
    members = list(alike.values())
    pools: dict[tuple[int, ...], _Pool] = {}
    pool_of: dict[UUID, _Pool] = {}
    for topic_id, groups in groups_of_topic.items():
        pool = pools.get(tuple(groups))
        if pool is None:
            subscribers = [share for group in groups for share in members[group]]
            pool = pools[tuple(groups)] = _Pool(len(pools), subscribers)
            if pace.step_ends(len(subscribers)):
                yield
        pool_of[topic_id] = pool
    return list(pools.values()), pool_of


def _fill(pool_of: Mapping[UUID, _Pool], shares: list[_Share], kept: Kept, pace: Pace) -> Steps[None]:
    """Puts what members keep, and what is free, into the pools."""
    for share in shares:
        for topic_id, partitions in share.kept.items():
            given = share.given.setdefault(pool_of[topic_id].index, [])
            given.extend((topic_id, partition) for partition in sorted(partitions))
        if pace.step_ends(1 + share.load):
            yield
    for topic_id, partition in kept.free():
        pool_of[topic_id].free.append((topic_id, partition))
        if pace.step_ends():
            yield


def _subscribers(pool: _Pool) -> int:
    return len(pool.members)


def _deal(pool: _Pool, pace: Pace) -> Iterator[None]:
    if not pool.free or not pool.members:
        return
    smallest = pool.smallest_first()
    for partition in pool.free:
        share = smallest[0][2]
        share.given.setdefault(pool.index, []).append(partition)
        share.load += 1
        heapreplace(smallest, (share.load, share.index, share))
        if pace.step_ends():
            yield


def _level_all(pools: list[_Pool], largest: int, pace: Pace) -> Steps[None]:
    gap = largest // 2
    while gap > 1:
        for pool in pools:
            yield from _level(pool, gap, pace)
        gap //= 2
    for _ in range(MOST_ROUNDS):
        moved = 0
        for pool in pools:
            moved += yield from _level(pool, 1, pace)
        if not moved:
            break


def _level(pool: _Pool, gap: int, pace: Pace) -> Steps[int]:
    """Moves partitions within the pool until no loads differ by more than `gap`. Returns how many it moved."""
    moved = 0
    smallest, largest = pool.smallest_first(), pool.largest_first()
    while largest:
        giver = largest[0][2]
        if -largest[0][0] != giver.load:  # It was given some meanwhile.
            heapreplace(largest, (-giver.load, giver.index, giver))
            continue
        while smallest[0][0] != smallest[0][2].load:  # It gave some away meanwhile.
            heapreplace(smallest, (smallest[0][2].load, smallest[0][1], smallest[0][2]))
        taker = smallest[0][2]
        if giver.load <= taker.load + gap:
            break
        taker.given.setdefault(pool.index, []).append(giver.given[pool.index].pop())
        giver.load -= 1
        taker.load += 1
        moved += 1
        heapreplace(smallest, (taker.load, taker.index, taker))
        if giver.given[pool.index]:
            heapreplace(largest, (-giver.load, giver.index, giver))
        else:
            heappop(largest)
        if pace.step_ends():
            yield
    if pace.step_ends(1 + len(pool.members) // 8):
        yield
    return moved
