"""Committing offsets: by members, by whoever needs no membership, and within transactions.

A commit is refused as a whole by raising ProtocolError, before anything has changed. What can be wrong with a single
partition the handlers see to.

Source: Kafka's GroupCoordinator (handleCommitOffsets, handleTxnCommitOffsets, doCommitOffsets).
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.broker.coordinator.group.offset_fencing import NO_GENERATION, NO_MEMBER, check_may_commit
from odradek.broker.coordinator.group.offsets import Commits
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.group.state import GroupState
from odradek.broker.coordinator.shard import AppendFailed, OnDone
from odradek.protocol.errors import ErrorCode, ProtocolError

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)


class Committer(NamedTuple):
    """Who commits, as it says."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER
    group_instance_id: str | None = None


class CommittingProducer(NamedTuple):
    """In whose transaction."""

    producer_id: int
    producer_epoch: int


def commit_offsets(shard: GroupShard, who: Committer, commits: Commits, done: OnDone) -> None:
    """`done` is told, perhaps at once, when the commits count, or an AppendFailed; see `commit_error`.

    A group comes to be with its first commit, if that names no generation. Raises ILLEGAL_GENERATION,
    UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, REBALANCE_IN_PROGRESS; COORDINATOR_NOT_AVAILABLE for a group that is going.
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
    """`done` is told when the commits are safe; they count when the transaction is committed.

    The caller has verified that the transaction is open. Raises as `commit_offsets`, but a rebalance is no hindrance.
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
    """What a client is told whose commit could not be written."""
    if isinstance(error, AppendFailed) and error.cause in _TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return error.code
