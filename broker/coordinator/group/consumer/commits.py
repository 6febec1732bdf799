"""Who may commit and fetch offsets of a consumer group.

A commit is accepted if it has the member's epoch. An older epoch is accepted for partitions that the member has had
since then or before. (KIP-1251)

| commit                                                           | result                                          |
|------------------------------------------------------------------|-------------------------------------------------|
| epoch < 0, the group has no members                              | accepted                                        |
| in a transaction, without member id, instance id and epoch       | accepted                                        |
| else: the member is unknown                                      | UNKNOWN_MEMBER_ID                               |
| not in a transaction, not a classic member, OffsetCommit below 9 | UNSUPPORTED_VERSION                             |
| the member's epoch                                               | accepted                                        |
| a later epoch                                                    | STALE_MEMBER_EPOCH, classic: ILLEGAL_GENERATION |
| an earlier epoch                                                 | the same for a partition assigned after it      |

Clients before TxnOffsetCommit 6 do not know STALE_MEMBER_EPOCH. They get ILLEGAL_GENERATION.

Source: Kafka's ConsumerGroup (validateOffsetCommit, validateOffsetFetch).
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from odradek.broker.coordinator.group.consumer.member import ConsumerMember
from odradek.broker.coordinator.group.group import (
    FIRST_TRANSACTIONAL_WITH_EPOCHS,
    FIRST_WITH_EPOCHS,
    NO_GENERATION,
    NO_MEMBER,
    Committer,
    PartitionCheck,
)
from odradek.protocol.errors import ErrorCode, ProtocolError

_NO_EPOCHS: Mapping[int, int] = {}


def is_anonymous(who: Committer) -> bool:
    """Whether a transactional commit names no member: it is not checked."""
    return who.generation_id == NO_GENERATION and who.member_id == NO_MEMBER and who.group_instance_id is None


def check_commit(
    member: ConsumerMember | None, who: Committer, api_version: int, *, in_transaction: bool
) -> PartitionCheck | None:
    """Returns the check of each partition; None if all are accepted. `member` is the one that the commit names.

    Raises UNKNOWN_MEMBER_ID, UNSUPPORTED_VERSION, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if not in_transaction and member.classic is None and api_version < FIRST_WITH_EPOCHS:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION)
    epoch = who.generation_id
    if epoch == member.epoch:
        return None
    stale = _stale(member)
    if in_transaction and api_version < FIRST_TRANSACTIONAL_WITH_EPOCHS:
        stale = ErrorCode.ILLEGAL_GENERATION
    if epoch > member.epoch:
        raise ProtocolError(stale)

    def check(topic_id: UUID, partition: int) -> None:
        assigned_at = member.assigned.get(topic_id, _NO_EPOCHS).get(partition)
        if assigned_at is None:
            assigned_at = member.revoking.get(topic_id, _NO_EPOCHS).get(partition)
        if assigned_at is None or epoch < assigned_at:
            raise ProtocolError(stale)

    return check


def check_fetch(member: ConsumerMember | None, epoch: int) -> None:
    """Raises UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION if the member may not fetch offsets."""
    if member is None:
        raise ProtocolError(ErrorCode.UNKNOWN_MEMBER_ID)
    if epoch != member.epoch:
        raise ProtocolError(_stale(member))


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
