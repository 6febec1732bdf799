"""Commits offsets: by members, by clients without membership, and within transactions.

A refused commit raises ProtocolError before anything has changed. The handlers check single partitions.

Source: Kafka's GroupCoordinator (handleCommitOffsets, handleTxnCommitOffsets, doCommitOffsets).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.coordinator.group.group_state import GroupState
from odradek.broker.coordinator.group.offset_fencing import NO_GENERATION, NO_MEMBER, check_may_commit
from odradek.broker.coordinator.group.offsets import Commits
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.shard import AppendFailed, OnDone
from odradek.protocol.errors import ErrorCode, ProtocolError

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


class Committer(NamedTuple):
    """The group, generation and member that a commit request names."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class CommittingProducer(NamedTuple):
    """The producer of the transaction that a commit belongs to."""

    producer_id: int
    producer_epoch: int


def commit_offsets(shard: GroupShard, who: Committer, commits: Commits, done: OnDone) -> None:
    """Commits offsets. Calls `done`, possibly at once, when they take effect or with an AppendFailed; see
    `commit_error`.

    A commit without a generation creates the group if it does not exist. Raises ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS, and COORDINATOR_NOT_AVAILABLE for a Dead group.
    """
    group = shard.group(who.group_id)
    if group is None:
        if who.generation_id >= 0:
            raise ProtocolError(ErrorCode.ILLEGAL_GENERATION)
        group = shard.group_or_new(who.group_id)
    member = check_may_commit(group, who.generation_id, who.member_id, who.group_instance_id)
    if group.state is GroupState.COMPLETING_REBALANCE:
        raise ProtocolError(ErrorCode.REBALANCE_IN_PROGRESS)
    if member is not None:
        shard.heard_of(group, member.member_id)
    if commits:
        shard.act(shard.offsets.commit(who.group_id, commits, done))
    else:
        done(None)


def commit_offsets_in_transaction(
    shard: GroupShard, who: Committer, producer: CommittingProducer, commits: Commits, done: OnDone
) -> None:
    """Commits offsets within a transaction. Calls `done` once they are replicated; they take effect when the
    transaction commits.

    The caller has verified that the transaction is open. Raises as `commit_offsets` does, except for
    REBALANCE_IN_PROGRESS.
    """
    group = shard.group_or_new(who.group_id)
    check_may_commit(group, who.generation_id, who.member_id, who.group_instance_id, in_transaction=True)
    if commits:
        shard.act(
            shard.offsets.commit_in_transaction(
                who.group_id, producer.producer_id, producer.producer_epoch, commits, done
            )
        )
    else:
        done(None)


def commit_error(error: ProtocolError) -> ErrorCode:
    """Returns the client's error code for a commit that could not be written."""
    if isinstance(error, AppendFailed) and error.cause in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error.code
