"""Finds the expired offsets of a group. The rules are Kafka's since 2.1 (KIP-211). Times are in ms since 1970.

(a) Empty group with a protocol type: all offsets expire `retention_ms` after the group became Empty. If the group's
    record is too old to contain that time, each offset expires `retention_ms` after its commit.
(b) Stable consumer group: offsets of topics without a subscribed member expire `retention_ms` after their commit. If
    the subscriptions cannot be decoded, no offset expires.
(c) Group that only stores offsets (no protocol type): each offset expires `retention_ms` after its commit.
(d) Any other group (rebalancing, or of another protocol type and with members): no offset expires.
(e) A commit with its own expiry time (OffsetCommit v2-4) expires at that time, if (a)-(c) apply to it.

An offset with a pending commit does not expire.

Source: Kafka's GroupMetadata.removeExpiredOffsets, OffsetExpirationConditionImpl.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.group_state import GroupState
from odradek.broker.coordinator.group.offset_records import NO_TIMESTAMP, CommittedOffset
from odradek.broker.coordinator.group.offsets import OffsetsOfGroup

BaseTimestamp = Callable[[CommittedOffset], int]


def expired_offsets(group: Group, offsets: OffsetsOfGroup, now_ms: int, retention_ms: int) -> dict[str, list[int]]:
    """Returns the partitions of expired offsets by topic. No topic has an empty list."""
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
    """Returns the function for the time from which retention counts, and the topics that do not expire.

    None: nothing expires (d).
    """
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
