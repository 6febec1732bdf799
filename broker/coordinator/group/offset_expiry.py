"""Which offsets of a group have expired. The rules are Kafka's since 2.1 (KIP-211); times in ms since 1970.

(a) A group of a protocol type that is Empty: all of them, `retention_ms` after it became so; where its record is too
    old to say when, each that long after its commit.
(b) A Stable group of consumers: those of topics that no member subscribes to, that long after their commit. Where the
    subscriptions cannot be read, none.
(c) A group that only stores offsets (no protocol type): each that long after its commit.
(d) Any other group, so one that rebalances or is of another protocol and has members: none.
(e) A commit that brought a time of expiry of its own (OffsetCommit v2-4) expires then, where (a)-(c) look at it.

One for which another commit waits does not expire.

Source: Kafka's GroupMetadata.removeExpiredOffsets, OffsetExpirationConditionImpl.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.offset_records import NO_TIMESTAMP, CommittedOffset
from odradek.broker.coordinator.group.offsets import OffsetsOfGroup
from odradek.broker.coordinator.group.state import GroupState

BaseTimestamp = Callable[[CommittedOffset], int]


def expired_offsets(group: Group, offsets: OffsetsOfGroup, now_ms: int, retention_ms: int) -> dict[str, list[int]]:
    """Partitions by topic; no topic without partitions."""
    rule = _rule(group)
    if rule is None:
        return {}
    base_timestamp, spared_topics = rule

    def is_expired(topic: str, partition: int, committed: CommittedOffset) -> bool:
        if committed.expire_timestamp != NO_TIMESTAMP:
            is_over = now_ms >= committed.expire_timestamp
        else:
            is_over = now_ms - base_timestamp(committed) >= retention_ms
        return is_over and not offsets.is_unstable(topic, partition)

    found = {
        topic: [partition for partition, committed in partitions.items() if is_expired(topic, partition, committed)]
        for topic, partitions in offsets.committed.items()
        if topic not in spared_topics
    }
    return {topic: partitions for topic, partitions in found.items() if partitions}


def _rule(group: Group) -> tuple[BaseTimestamp, frozenset[str]] | None:
    """From when an offset's time counts, and the topics that are spared; None: nothing expires (d)."""
    if group.protocol_type is None:
        return _commit_timestamp, frozenset()
    if group.state is GroupState.EMPTY:
        since_ms = group.current_state_timestamp_ms
        return (_commit_timestamp if since_ms == NO_TIMESTAMP else lambda _: since_ms), frozenset()
    if group.state is GroupState.STABLE and group.is_consumer_group and group.subscribed_topics is not None:
        return _commit_timestamp, group.subscribed_topics
    return None


def _commit_timestamp(committed: CommittedOffset) -> int:
    return committed.commit_timestamp
