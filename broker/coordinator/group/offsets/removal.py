"""Removes offsets: on request, when their topic is deleted, or when they expire.

Offsets expire by Kafka's rules since 2.1 (KIP-211). Each kind of group says which of its offsets may expire, and from
when their retention time counts (`OffsetExpiry`). A commit with its own expiry time (OffsetCommit v2-4) expires at that
time instead, if it may expire. An offset with a pending commit does not expire.

Each removal writes one batch of tombstones per group. An unused group without any offset left is removed too; if the
group itself was ever written, the batch contains its tombstones.

Source: Kafka's GroupMetadataManager.cleanupGroupMetadata, GroupCoordinator (handleDeleteOffsets,
handleDeletedPartitions), GroupMetadata.removeExpiredOffsets, OffsetExpirationConditionImpl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from odradek.broker.background.stepwise import Pace
from odradek.broker.coordinator.group.group import NO_TIMESTAMP, Group
from odradek.broker.coordinator.group.offsets.commits import OffsetShard
from odradek.broker.coordinator.group.offsets.offsets import OffsetsOfGroup, Partitions
from odradek.broker.coordinator.group.offsets.records import CommittedOffset
from odradek.broker.coordinator.runtime.shard import Decision, OnDone
from odradek.protocol.errors import ErrorCode, ProtocolError

NO_ACKS = 0
ITEMS_PER_REMOVAL = 10
"""The cost of a batch of tombstones, in items of a step."""

log = structlog.get_logger("broker.coordinator.group")


def check_may_delete(shard: OffsetShard, group_id: str) -> Group:
    """Returns the group whose offsets may be deleted, except of topics that `Group.is_subscribed_to` names.

    Raises GROUP_ID_NOT_FOUND, and the errors of `Group.check_offsets_deletable`.
    """
    group = shard.groups.get(group_id)
    if group is None:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    group.check_offsets_deletable()
    return group


def remove_offsets(shard: OffsetShard, group: Group, partitions: Partitions, done: OnDone | None = None) -> int:
    """Removes the group's offsets of `partitions`, including pending commits. Returns the number of tombstones.

    The offsets are removed from memory when the tombstones are appended. `done` is called once the tombstones are
    replicated. None: nobody waits, so the leader appends them even if too few replicas are in sync.
    """
    offsets, group_id = shard.offsets, group.group_id
    records = offsets.tombstones_of(group_id, partitions)
    removed = len(records)
    if removed == offsets.size_of(group_id) and group.is_unused:
        records += group.tombstones()

    def settled(error: ProtocolError | None) -> None:
        if error is None:
            shard.forget_if_unused(group)
        if done is not None:
            done(error)

    shard.act(Decision(records, settled, acks=NO_ACKS if done is None else None))
    return removed


def remove_offsets_of_topic(shards: Iterable[OffsetShard], topic: str) -> Iterator[None]:
    """Removes the offsets of a deleted topic from all groups, in steps, even if the tombstones cannot be written.

    Until the topic is created again, no new offsets can be committed between the steps.
    """
    removed = 0
    pace = Pace()
    for shard in shards:
        for group_id in shard.offsets.group_ids():
            count = _remove_topic(shard, group_id, topic)
            removed += count
            if pace.step_ends(ITEMS_PER_REMOVAL if count else 1):
                yield
    if removed:
        log.info("offsets of deleted topic removed", topic=topic, offsets=removed)


def _remove_topic(shard: OffsetShard, group_id: str, topic: str) -> int:
    """Removes the group's offsets of the topic. Returns the number of tombstones."""
    group, offsets = shard.groups.get(group_id), shard.offsets.of_group(group_id)
    numbers = [] if offsets is None else offsets.partitions_of(topic)
    if group is None or not numbers:
        return 0
    removed = remove_offsets(shard, group, {topic: numbers})
    shard.offsets.remove(group_id, {topic: numbers})
    return removed


def expire_offsets(shards: Iterable[OffsetShard], now_ms: int, retention_ms: int) -> Iterator[int]:
    """Removes expired offsets and unused groups without offsets, one group per step. Yields the offsets removed."""
    for shard in shards:
        for group in list(shard.groups.values()):
            yield _expire(shard, group, now_ms, retention_ms)


def _expire(shard: OffsetShard, group: Group, now_ms: int, retention_ms: int) -> int:
    if shard.groups.get(group.group_id) is not group:
        return 0
    offsets = shard.offsets.of_group(group.group_id)
    expired = {} if offsets is None else expired_offsets(group, offsets, now_ms, retention_ms)
    if not expired and (offsets is not None or not group.is_empty):
        return 0
    removed = remove_offsets(shard, group, expired)
    if removed:
        log.info("offsets expired", group=group.group_id, offsets=removed)
    return removed


def expired_offsets(group: Group, offsets: OffsetsOfGroup, now_ms: int, retention_ms: int) -> dict[str, list[int]]:
    """Returns the partitions of expired offsets by topic. No topic has an empty list."""
    expiry = group.offset_expiry()
    if expiry is None:
        return {}
    since_ms = expiry.since_ms

    def is_expired(topic: str, partition: int, committed: CommittedOffset) -> bool:
        if committed.expire_timestamp != NO_TIMESTAMP:
            is_over = now_ms >= committed.expire_timestamp
        else:
            is_over = now_ms - (committed.commit_timestamp if since_ms is None else since_ms) >= retention_ms
        return is_over and not offsets.is_unstable(topic, partition)

    found = {
        topic: [partition for partition, committed in partitions.items() if is_expired(topic, partition, committed)]
        for topic, partitions in offsets.committed.items()
        if topic not in expiry.kept_topics
    }
    return {topic: partitions for topic, partitions in found.items() if partitions}
