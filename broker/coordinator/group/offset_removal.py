"""Offsets that go: deleted by somebody, with their topic, or by time.

All of it is one batch of tombstones per group. A group that is Empty and has no offset left goes with the last of
them, and where its membership was ever written, a tombstone for that is in the batch too.

Source: Kafka's GroupMetadataManager.cleanupGroupMetadata, GroupCoordinator (handleDeleteOffsets,
handleDeletedPartitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import structlog

from odradek.broker.background.stepwise import Pace
from odradek.broker.coordinator.group.group import Group
from odradek.broker.coordinator.group.offset_expiry import expired_offsets
from odradek.broker.coordinator.group.offsets import Partitions
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.group.state import GroupState
from odradek.broker.coordinator.shard import Decision, OnDone, nobody_waits
from odradek.protocol.errors import ErrorCode, ProtocolError

ITEMS_PER_REMOVAL = 10
"""What a batch of tombstones costs, in items of a step."""

log = structlog.get_logger("broker.coordinator.group")


def check_may_delete(shard: GroupShard, group_id: str) -> Group:
    """The group whose offsets are to be deleted. Members of a group of consumers only keep the topics that they
    subscribe to; see `Group.is_subscribed_to`.

    Raises GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP for a group of another kind that has members.
    """
    group = shard.group(group_id)
    if group is None or group.state is GroupState.DEAD:
        raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not GroupState.EMPTY and not group.is_consumer_group:
        raise ProtocolError(ErrorCode.NON_EMPTY_GROUP)
    return group


def keeps(group: Group, topic: str) -> bool:
    """Whether the offsets of the topic must stay, since members consume it."""
    return group.state is not GroupState.EMPTY and group.is_subscribed_to(topic)


def remove_offsets(shard: GroupShard, group: Group, partitions: Partitions, done: OnDone = nobody_waits) -> int:
    """Removes what the group has of these, waiting commits included; how many tombstones that takes.

    They are gone from memory as soon as the tombstones are appended; `done` is told when those are safe.
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
    """The topic is deleted: nobody has offsets of it any more, whether that can be written down or not.

    In steps. Nobody can commit any meanwhile, as long as there is no topic of that name.
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
        log.info("offsets of a deleted topic removed", topic=topic, offsets=removed)


def _remove_topic(shard: GroupShard, group_id: str, topic: str) -> int:
    """How many tombstones it takes."""
    group, offsets = shard.group(group_id), shard.offsets.of_group(group_id)
    numbers = [] if offsets is None else offsets.partitions_of(topic)
    if group is None or not numbers:
        return 0
    removed = remove_offsets(shard, group, {topic: numbers})
    shard.offsets.remove(group_id, {topic: numbers})
    return removed


def expire_offsets(shards: Iterable[GroupShard], now_ms: int, retention_ms: int) -> Iterator[int]:
    """Looks at one group per step; how many of its offsets have expired. Groups without offsets go, too."""
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
        log.info("offsets have expired", group=group.group_id, offsets=removed)
    return removed
