"""A log for decisions about offsets. A test moves its high watermark and loads it as a restart does."""

from odradek.broker.coordinator.group.offsets.offsets import Commits, GroupOffsets
from odradek.broker.coordinator.group.offsets.records import CommittedOffset, read_offset, read_offset_key
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import AppendFailed, Decision
from odradek.protocol.errors import ErrorCode, ProtocolError

Entry = tuple[CoordinatorRecord | bool, int]
"""A record, or a marker (whether it commits), and the producer's id."""


def committed(offset: int, *, metadata: str = "", at_ms: int = 0, expires_ms: int = -1) -> CommittedOffset:
    return CommittedOffset(offset, -1, metadata, at_ms, expires_ms)


def commits(**topics: dict[int, int]) -> Commits:
    """`commits(orders={0: 5})`: offset 5 for partition 0 of the topic."""
    return {
        topic: {partition: committed(offset) for partition, offset in partitions.items()}
        for topic, partitions in topics.items()
    }


class OffsetLog:
    """`waiting` holds the decisions that are appended and not replicated yet."""

    def __init__(self, offsets: GroupOffsets | None = None) -> None:
        self.offsets = offsets or GroupOffsets()
        self.entries: list[Entry] = []
        self.waiting: list[Decision] = []
        self.outcomes: list[ProtocolError | None] = []

    def append(self, decision: Decision) -> Decision:
        decision.base_offset = len(self.entries)
        self.entries += [(record, decision.producer_id) for record in decision.records]
        self.waiting.append(decision)
        return decision

    def safe(self) -> None:
        """The high watermark reaches the end."""
        while self.waiting:
            self.waiting.pop(0).done(None)

    def fail(self, decision: Decision, cause: ErrorCode = ErrorCode.REQUEST_TIMED_OUT) -> None:
        """Fails a decision although its records are in the log."""
        if decision in self.waiting:
            self.waiting.remove(decision)
        decision.done(AppendFailed(cause))

    def commit(self, group: str, **topics: dict[int, int]) -> Decision:
        return self.append(self.offsets.commit(group, commits(**topics), self.outcomes.append))

    def commit_in(self, producer_id: int, group: str, **topics: dict[int, int]) -> Decision:
        return self.append(
            self.offsets.commit_in_transaction(group, producer_id, 0, commits(**topics), self.outcomes.append)
        )

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.entries.append((commit, producer_id))
        self.offsets.replay_end_transaction(producer_id, 0, commit)

    def delete(self, group: str, **topics: list[int]) -> Decision:
        decision = self.append(Decision(self.offsets.tombstones_of(group, topics)))
        self.offsets.remove(group, topics)
        return decision

    def reloaded(self) -> GroupOffsets:
        """Returns the offsets that a broker loads from this log."""
        fresh = GroupOffsets()
        for offset, (entry, producer_id) in enumerate(self.entries):
            if isinstance(entry, bool):
                fresh.replay_end_transaction(producer_id, 0, entry)
            else:
                fresh.replay(entry, offset=offset, timestamp_ms=0, producer_id=producer_id, producer_epoch=0)
        return fresh

    def numbers(self, group: str) -> dict[str, dict[int, int]]:
        """Returns the committed offsets that are in effect."""
        return numbers(self.offsets, group)


def numbers(offsets: GroupOffsets, group: str) -> dict[str, dict[int, int]]:
    return {
        topic: {partition: each.offset for partition, each in partitions.items()}
        for topic, partitions in offsets.committed(group).items()
    }


def reference(entries: list[Entry], group: str) -> dict[str, dict[int, int]]:
    """Returns the offsets after these entries by the rules alone: the last entry wins, a tombstone removes."""
    counts: dict[tuple[str, int], tuple[int, int]] = {}
    opened: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}
    for position, (entry, producer_id) in enumerate(entries):
        if isinstance(entry, bool):
            for key, value in opened.pop(producer_id, {}).items():
                if entry and counts.get(key, (-1, 0)) < value:
                    counts[key] = value
            continue
        name = read_offset_key(entry)
        key = (name.topic, name.partition)
        if name.group != group:
            continue
        if entry.value is None:
            for place in (counts, *opened.values()):
                place.pop(key, None)
        elif producer_id < 0:
            counts[key] = (position, read_offset(entry.value, position).offset)
        else:
            opened.setdefault(producer_id, {})[key] = (position, read_offset(entry.value, position).offset)
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), (_, offset) in counts.items():
        found.setdefault(topic, {})[partition] = offset
    return found
