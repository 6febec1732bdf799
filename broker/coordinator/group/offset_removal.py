"""Removes offsets: on request, when their topic is deleted, or when they expire.

Each removal writes one batch of tombstones per group. An Empty group without any offset left is removed too; if its
membership was ever written, the batch contains its tombstone.

Source: Kafka's GroupMetadataManager.cleanupGroupMetadata, GroupCoordinator (handleDeleteOffsets,
handleDeletedPartitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from odradek.broker.background.stepwise import Pace
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.group_state import GroupState
from odradek.broker.coordinator.group.offset_expiry import expired_offsets
from odradek.broker.coordinator.group.offsets import Partitions
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.shard import Decision, OnDone, nobody_waits
from odradek.protocol.errors import ErrorCode, ProtocolError

ITEMS_PER_REMOVAL = 10
"""The cost of a batch of tombstones, in items of a step."""

log = structlog.get_logger("broker.coordinator.group")


def check_may_delete(shard: GroupShard, group_id: str) -> Group:
    """Returns the group whose offsets may be deleted. In a consumer group with members, offsets of subscribed topics
    are kept; see `Group.is_subscribed_to`.

    Raises GROUP_ID_NOT_FOUND, and NON_EMPTY_GROUP for a group with members and another protocol type.
    """
    group = shard.group(group_id)
    if group is None or group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
    return group


def keeps(group: Group, topic: str) -> bool:
    """Whether the offsets of the topic must be kept because members are subscribed to it."""
    return group.state is not GroupState.EMPTY and group.is_subscribed_to(topic)


def remove_offsets(shard: GroupShard, group: Group, partitions: Partitions, done: OnDone = nobody_waits) -> int:
    """Removes the group's offsets of `partitions`, including pending commits. Returns the number of tombstones.

    The offsets are removed from memory when the tombstones are appended. `done` is called once the tombstones are
    replicated.
    """
    offsets, group_id = shard.offsets, group.group_id
    records = offsets.tombstones_of(group_id, partitions)
    removed = len(records)
    if removed == offsets.size_of(group_id) and group.state is GroupState.EMPTY and not group.pending:
        records += shard.tombstone_of(group)

    def settled(error: ProtocolError | None) -> None:
        if error is None:
            shard.forget_if_unused(group)
        done(error)

    shard.act(Decision(records, settled))
    return removed


def remove_offsets_of_topic(shards: Iterable[GroupShard], topic: str) -> Iterator[None]:
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


def _remove_topic(shard: GroupShard, group_id: str, topic: str) -> int:
    """Removes the group's offsets of the topic. Returns the number of tombstones."""
    group, offsets = shard.group(group_id), shard.offsets.of_group(group_id)
    numbers = [] if offsets is None else offsets.partitions_of(topic)
    if group is None or not numbers:
        return 0
    removed = remove_offsets(shard, group, {topic: numbers})
    shard.offsets.remove(group_id, {topic: numbers})
    return removed


def expire_offsets(shards: Iterable[GroupShard], now_ms: int, retention_ms: int) -> Iterator[int]:
    """Removes expired offsets and Empty groups without offsets, one group per step. Yields the offsets removed."""
    for shard in shards:
        for group in list(shard.groups.values()):
            yield _expire(shard, group, now_ms, retention_ms)


def _expire(shard: GroupShard, group: Group, now_ms: int, retention_ms: int) -> int:
    if shard.group(group.group_id) is not group:
        return 0
    offsets = shard.offsets.of_group(group.group_id)
    expired = {} if offsets is None else expired_offsets(group, offsets, now_ms, retention_ms)
    if not expired and (offsets is not None or group.state is not GroupState.EMPTY):
        return 0
    removed = remove_offsets(shard, group, expired)
    if removed:
        log.info("offsets expired", group=group.group_id, offsets=removed)
    return removed
