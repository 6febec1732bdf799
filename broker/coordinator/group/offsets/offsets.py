"""GroupOffsets: the committed offsets of the groups of one partition of `__consumer_offsets`.

The life of a commit:

(A) Pending: it is appended and waits for the high watermark. OffsetFetch still returns the previous offset; with
    require_stable it returns a retriable error.
(B) In effect: the high watermark has passed it. A commit at a higher log offset that is already in effect wins.
(C) In a transaction: after (A) it is kept apart until the producer's marker. If the transaction commits, it takes
    effect under the same condition as (B): a plain commit that was appended later wins.
(D) Failed: it is dropped.
(E) Deleted: a tombstone removes the offset in effect and all pending commits for the same partition, including those
    in transactions.

Replay after a restart has no case (A): every record in the log takes effect. Commits are kept by topic and partition,
so that a subscription, a deleted topic and a request need one lookup per topic.

Source: Kafka's GroupMetadata (offsets, pendingOffsetCommits, pendingTransactionalOffsetCommits), OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from odradek.broker.coordinator.group.offsets.records import (
    CommittedOffset,
    key_prefix,
    offset_records,
    offset_tombstone,
    read_offset,
    read_offset_key,
)
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Decision, OnDone, nobody_waits
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.group_records import OffsetCommitKey

Commits = dict[str, dict[int, CommittedOffset]]
"""Commits by topic and partition. No topic has an empty dict."""
Partitions = Mapping[str, Iterable[int]]
"""Partitions by topic."""
COMMITS_SEQUENCE = 0
"""The base sequence of commit batches, with and without a producer id, as in Kafka."""
_NOTHING: Mapping[str, Mapping[int, CommittedOffset]] = {}


class PendingCommit(Decision):
    """The decision for a commit in case A. Its `base_offset` is set as soon as the batch is appended."""

    __slots__ = ("commits",)

    def __init__(
        self, records: Sequence[CoordinatorRecord], commits: Commits, producer_id: int, producer_epoch: int
    ) -> None:
        super().__init__(
            records,
            replay=False,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=COMMITS_SEQUENCE,
        )
        self.commits = commits


class OffsetsOfGroup:
    """The offsets of one group: `committed` (in effect), `pending` (case A), `transactions` (C, by producer id)."""

    __slots__ = ("committed", "key_prefixes", "pending", "transactions")

    def __init__(self) -> None:
        self.committed: Commits = {}
        self.pending: list[PendingCommit] = []
        self.transactions: dict[int, Commits] = {}
        self.key_prefixes: dict[str, bytes] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.committed or self.pending or self.transactions)

    def waiting(self) -> Iterator[Commits]:
        """Yields the commits that are not in effect yet."""
        yield from self.transactions.values()
        for each in self.pending:
            yield each.commits

    def is_unstable(self, topic: str, partition: int) -> bool:
        """Whether the partition has a commit that is not in effect yet."""
        if not self.pending and not self.transactions:
            return False
        return any(partition in commits.get(topic, ()) for commits in self.waiting())

    def has(self, topic: str, partition: int) -> bool:
        """Whether the partition has an offset, including commits not yet in effect."""
        return partition in self.committed.get(topic, ()) or self.is_unstable(topic, partition)

    def partitions(self) -> Commits:
        """Returns all partitions with an offset, including commits not yet in effect. Each value is any one of them."""
        if not self.pending and not self.transactions:
            return self.committed
        merged: Commits = {topic: dict(partitions) for topic, partitions in self.committed.items()}
        for commits in self.waiting():
            for topic, partitions in commits.items():
                merged.setdefault(topic, {}).update(partitions)
        return merged

    def partitions_of(self, topic: str) -> list[int]:
        """Returns the topic's partitions with an offset, including commits not yet in effect."""
        found = set(self.committed.get(topic, ()))
        for commits in self.waiting():
            found.update(commits.get(topic, ()))
        return sorted(found)


class GroupOffsets:
    """See the module docstring. `count` is the number of offsets in effect in all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, OffsetsOfGroup] = {}
        self._groups_of_producer: dict[int, dict[str, None]] = {}
        self.count = 0

    # --- reading ------------------------------------------------------------------------------------------------

    def of_group(self, group_id: str) -> OffsetsOfGroup | None:
        """Returns the group's offsets, read-only. None if it has neither offsets nor pending commits."""
        return self._groups.get(group_id)

    def committed(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Returns the offsets in effect by topic and partition, read-only."""
        group = self._groups.get(group_id)
        return _NOTHING if group is None else group.committed

    def group_ids(self) -> list[str]:
        """Returns the groups with offsets, including commits not yet in effect."""
        return list(self._groups)

    def has_offsets(self, group_id: str) -> bool:
        """Whether the group has offsets, including commits not yet in effect."""
        return group_id in self._groups

    def size_of(self, group_id: str) -> int:
        """Returns the number of partitions with an offset, including commits not yet in effect."""
        group = self._groups.get(group_id)
        return 0 if group is None else sum(map(len, group.partitions().values()))

    # --- committing ---------------------------------------------------------------------------------------------

    def commit(self, group_id: str, commits: Commits, done: OnDone) -> Decision:
        """Returns the decision for cases A, B and D. Takes ownership of `commits`. `done` is called after the outcome
        has been applied.
        """
        return self._decide(group_id, commits, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, done)

    def commit_in_transaction(
        self, group_id: str, producer_id: int, producer_epoch: int, commits: Commits, done: OnDone
    ) -> Decision:
        """Returns the decision for cases A, C and D."""
        return self._decide(group_id, commits, producer_id, producer_epoch, done)

    def _decide(
        self, group_id: str, commits: Commits, producer_id: int, producer_epoch: int, done: OnDone
    ) -> PendingCommit:
        group = self._groups.get(group_id) or OffsetsOfGroup()
        pending = PendingCommit(_records(group_id, group, commits), commits, producer_id, producer_epoch)
        self._groups[group_id] = group
        group.pending.append(pending)
        if producer_id >= 0:
            self._groups_of_producer.setdefault(producer_id, {})[group_id] = None

        def settled(error: ProtocolError | None) -> None:
            pending.done = nobody_waits  # breaks the reference cycle without the garbage collector
            self._settled(group_id, group, pending, error)
            done(error)

        pending.done = settled
        return pending

    def _settled(
        self, group_id: str, group: OffsetsOfGroup, pending: PendingCommit, error: ProtocolError | None
    ) -> None:
        """Applies case B, C or D. Does nothing if a marker took the commit out of `pending`."""
        if pending not in group.pending:
            return
        group.pending.remove(pending)
        if error is None:
            _stamp(pending)
            if pending.producer_id < 0:
                self._count_in(group, pending.commits)
            else:
                _merge(group.transactions.setdefault(pending.producer_id, {}), pending.commits)
        self._tidy(group_id, group, pending.producer_id)

    def _count_in(self, group: OffsetsOfGroup, commits: Commits) -> None:
        """Puts the commits into effect, except where the offset in effect has a higher log offset."""
        for topic, partitions in commits.items():
            known = group.committed.get(topic)
            if known is None:
                if partitions:
                    group.committed[topic] = partitions
                    self.count += len(partitions)
                continue
            before = len(known)
            for partition, committed in partitions.items():
                current = known.get(partition)
                if current is None or current.log_offset < committed.log_offset:
                    known[partition] = committed
            self.count += len(known) - before

    def _tidy(self, group_id: str, group: OffsetsOfGroup, producer_id: int = NO_PRODUCER_ID) -> None:
        """Removes empty entries."""
        if (
            producer_id >= 0
            and producer_id not in group.transactions
            and not any(each.producer_id == producer_id for each in group.pending)
        ):
            self._forget_producer(producer_id, group_id)
        if group.is_empty and self._groups.get(group_id) is group:
            del self._groups[group_id]

    def _forget_producer(self, producer_id: int, group_id: str) -> None:
        groups = self._groups_of_producer.get(producer_id)
        if groups is not None:
            groups.pop(group_id, None)
            if not groups:
                del self._groups_of_producer[producer_id]

    # --- removing -----------------------------------------------------------------------------------------------

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Returns a tombstone for each of the group's partitions with an offset.

        Commits not yet in effect need tombstones too, because otherwise a restart would restore them.
        """
        group = self._groups.get(group_id)
        return [] if group is None else self.tombstones_of(group_id, group.partitions())

    def tombstones_of(self, group_id: str, partitions: Partitions) -> list[CoordinatorRecord]:
        """Returns a tombstone for each of `partitions` with an offset, including commits not yet in effect."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        return [
            offset_tombstone(_prefix(group_id, group, topic), partition)
            for topic, numbers in partitions.items()
            for partition in numbers
            if group.has(topic, partition)
        ]

    def remove(self, group_id: str, partitions: Partitions) -> int:
        """Applies case E in memory. Returns the number of offsets in effect that were removed."""
        group = self._groups.get(group_id)
        if group is None:
            return 0
        count = self.count
        for topic, numbers in partitions.items():
            for partition in list(numbers):
                self._remove(group, topic, partition)
        for producer_id in [producer for producer, commits in group.transactions.items() if not commits]:
            del group.transactions[producer_id]
            self._tidy(group_id, group, producer_id)
        self._tidy(group_id, group)
        return count - self.count

    def _remove(self, group: OffsetsOfGroup, topic: str, partition: int) -> None:
        self.count -= _take(group.committed, topic, partition)
        if topic not in group.committed:
            group.key_prefixes.pop(topic, None)
        for commits in group.waiting():
            _take(commits, topic, partition)

    # --- replaying ----------------------------------------------------------------------------------------------

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
    ) -> None:
        """Applies an offset commit record. Raises MalformedMessage if it does not decode."""
        key = read_offset_key(record)
        if record.value is None:
            self._replay_tombstone(key, producer_id)
            return
        committed = read_offset(record.value, offset)
        group = self._groups.get(key.group)
        if group is None:
            group = self._groups[key.group] = OffsetsOfGroup()
        if producer_id >= 0:
            self._groups_of_producer.setdefault(producer_id, {})[key.group] = None
            group.transactions.setdefault(producer_id, {}).setdefault(key.topic, {})[key.partition] = committed
        else:
            self._count_in(group, {key.topic: {key.partition: committed}})

    def _replay_tombstone(self, key: OffsetCommitKey, producer_id: int) -> None:
        if producer_id < 0:
            self.remove(key.group, {key.topic: (key.partition,)})
            return
        group = self._groups.get(key.group)
        if group is not None and producer_id in group.transactions:
            _take(group.transactions[producer_id], key.topic, key.partition)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Applies a marker of the producer in this partition. Commits in case A are in the log, before the marker."""
        for group_id in self._groups_of_producer.pop(producer_id, ()):
            group = self._groups[group_id]
            commits = group.transactions.pop(producer_id, {})
            for pending in [each for each in group.pending if each.producer_id == producer_id]:
                group.pending.remove(pending)
                _stamp(pending)
                _merge(commits, pending.commits)
            if committed:
                self._count_in(group, commits)
            self._tidy(group_id, group)


def _records(group_id: str, group: OffsetsOfGroup, commits: Commits) -> Sequence[CoordinatorRecord]:
    records: list[CoordinatorRecord] = []
    for topic, partitions in commits.items():
        records += offset_records(_prefix(group_id, group, topic), partitions)
    return records


def _prefix(group_id: str, group: OffsetsOfGroup, topic: str) -> bytes:
    prefix = group.key_prefixes.get(topic)
    if prefix is None:
        prefix = group.key_prefixes[topic] = key_prefix(group_id, topic)
    return prefix


def _stamp(pending: PendingCommit) -> None:
    """Sets the log offset of each commit."""
    log_offset = pending.base_offset
    for partitions in pending.commits.values():
        for committed in partitions.values():
            committed.log_offset = log_offset


def _merge(into: Commits, commits: Commits) -> None:
    for topic, partitions in commits.items():
        into.setdefault(topic, {}).update(partitions)


def _take(commits: Commits, topic: str, partition: int) -> bool:
    """Removes the partition's commit, and the topic if it is then empty. Returns whether there was one."""
    partitions = commits.get(topic)
    if partitions is None or partition not in partitions:
        return False
    del partitions[partition]
    if not partitions:
        del commits[topic]
    return True
