"""Commits offsets: by members, by clients without membership, and within transactions.

A refused commit raises ProtocolError before anything has changed. The handlers check single partitions.

Source: Kafka's GroupCoordinator (handleCommitOffsets, handleTxnCommitOffsets, doCommitOffsets).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from odradek.broker.coordinator.group.group import (
    FIRST_TRANSACTIONAL_WITH_EPOCHS,
    FIRST_WITH_EPOCHS,
    Committer,
    Group,
    PartitionCheck,
)
from odradek.broker.coordinator.group.offsets.offsets import Commits, GroupOffsets
from odradek.broker.coordinator.group.offsets.records import NO_TOPIC_ID
from odradek.broker.coordinator.runtime.shard import Act, AppendFailed, OnDone
from odradek.protocol.errors import ErrorCode, ProtocolError

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


class OffsetShard(Protocol):
    """The part of `GroupShard` that committing and removing offsets needs."""

    act: Act
    groups: dict[str, Group]
    offsets: GroupOffsets

    def group_or_new(self, group_id: str) -> Group: ...

    def forget_if_unused(self, group: Group) -> bool: ...


class CommittingProducer(NamedTuple):
    """The producer of the transaction that a commit belongs to."""

    producer_id: int
    producer_epoch: int


def commit_offsets(
    shard: OffsetShard, who: Committer, commits: Commits, done: OnDone, *, stores_ids: bool = True
) -> None:
    """Commits offsets. Calls `done`, possibly at once, when they take effect or with an AppendFailed; see
    `commit_error`. `stores_ids`: the ids of the topics are stored, by which partitions are checked in any case.

    A commit without a generation creates the group if it does not exist. Raises GROUP_ID_NOT_FOUND for another one,
    ILLEGAL_GENERATION to older clients, and the errors of `Group.accept_commit`.
    """
    group = _group(shard, who, FIRST_WITH_EPOCHS)
    _check_each(group.accept_commit(who), commits)
    if not stores_ids:
        _leave_out_ids(commits)
    if commits:
        shard.act(shard.offsets.commit(who.group_id, commits, done))
    else:
        done(None)


def commit_offsets_in_transaction(
    shard: OffsetShard,
    who: Committer,
    producer: CommittingProducer,
    commits: Commits,
    done: OnDone,
    *,
    stores_ids: bool = True,
) -> None:
    """Commits offsets within a transaction. Calls `done` once they are replicated; they take effect when the
    transaction commits.

    The caller has verified that the transaction is open. Raises as `commit_offsets` does.
    """
    group = _group(shard, who, FIRST_TRANSACTIONAL_WITH_EPOCHS)
    _check_each(group.accept_commit(who, in_transaction=True), commits)
    if not stores_ids:
        _leave_out_ids(commits)
    if commits:
        shard.act(
            shard.offsets.commit_in_transaction(
                who.group_id, producer.producer_id, producer.producer_epoch, commits, done
            )
        )
    else:
        done(None)


def _group(shard: OffsetShard, who: Committer, first_with_epochs: int) -> Group:
    group = shard.groups.get(who.group_id)
    if group is None:
        if who.generation_id >= 0:
            knows = who.api_version >= first_with_epochs
            raise ProtocolError(ErrorCode.GROUP_ID_NOT_FOUND if knows else ErrorCode.ILLEGAL_GENERATION)
        group = shard.group_or_new(who.group_id)
    return group


def _check_each(check: PartitionCheck | None, commits: Commits) -> None:
    """The first partition that is refused refuses all."""
    if check is not None:
        for partitions in commits.values():
            for partition, committed in partitions.items():
                check(committed.topic_id, partition)


def _leave_out_ids(commits: Commits) -> None:
    for partitions in commits.values():
        for committed in partitions.values():
            committed.topic_id = NO_TOPIC_ID


def commit_error(error: ProtocolError) -> ErrorCode:
    """Returns the client's error code for a commit that could not be written."""
    if isinstance(error, AppendFailed) and error.cause in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error.code
