"""Who may commit and fetch offsets of a consumer group: each row of the table of commits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member import ClassicMemberMetadata
from odradek.broker.coordinator.group.consumer.records import member_record
from odradek.broker.coordinator.group.group import Committer
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import GROUP, GroupAtWork, owned

FOO = UUID(int=1)


@pytest.fixture
def group() -> GroupAtWork:
    """The member a is in epoch 3: it has the partitions 0 to 2 since 2, and has given up 3 to 5."""
    group = GroupAtWork()
    group.join("a", "foo")
    group.join("b", "foo")
    told = group.beat("a", 2)
    group.beat("a", 2, owned=owned(told))
    return group


def classic(group: GroupAtWork, member_id: str) -> None:
    member = group.member(member_id)._replace(classic=ClassicMemberMetadata(10_000, ()))
    group.carry_out(group.last._replace(records=[member_record(GROUP, member)]))


def result(group: ConsumerGroup, partition: int, *, in_transaction: bool = False, **who: Any) -> ErrorCode | None:
    """Returns the error of a commit of one partition; None if it is accepted."""
    try:
        check = group.accept_commit(Committer(GROUP, **who), in_transaction=in_transaction)
        if check is not None:
            check(FOO, partition)
    except ProtocolError as error:
        return error.code
    return None


@pytest.mark.parametrize(
    ("partition", "who", "code"),
    [
        (0, {"generation_id": 3, "member_id": "a"}, None),
        (5, {"generation_id": 3, "member_id": "a"}, None),
        (0, {"generation_id": 2, "member_id": "a"}, None),
        (3, {"generation_id": 2, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
        (0, {"generation_id": 1, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
        (0, {"generation_id": 4, "member_id": "a"}, ErrorCode.STALE_MEMBER_EPOCH),
        (0, {"generation_id": 3, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (0, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (0, {"generation_id": 3, "member_id": "a", "api_version": 8}, ErrorCode.UNSUPPORTED_VERSION),
        (0, {"generation_id": 3, "member_id": "a", "api_version": 9}, None),
        (0, {"in_transaction": True}, None),
        (0, {"in_transaction": True, "member_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (0, {"in_transaction": True, "generation_id": 3, "member_id": "a", "api_version": 3}, None),
        (
            0,
            {"in_transaction": True, "generation_id": 4, "member_id": "a", "api_version": 5},
            ErrorCode.ILLEGAL_GENERATION,
        ),
        (
            3,
            {"in_transaction": True, "generation_id": 2, "member_id": "a", "api_version": 5},
            ErrorCode.ILLEGAL_GENERATION,
        ),
        (
            0,
            {"in_transaction": True, "generation_id": 4, "member_id": "a", "api_version": 6},
            ErrorCode.STALE_MEMBER_EPOCH,
        ),
    ],
)
def test_a_commit(group: GroupAtWork, partition: int, who: dict[str, Any], code: ErrorCode | None) -> None:
    assert result(group.group, partition, **who) is code


@pytest.mark.parametrize(
    ("epoch", "partition", "code"),
    [
        (3, 5, None),
        (2, 0, None),
        (2, 5, ErrorCode.ILLEGAL_GENERATION),
        (4, 0, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_a_commit_of_a_classic_member(group: GroupAtWork, epoch: int, partition: int, code: ErrorCode | None) -> None:
    classic(group, "a")
    assert result(group.group, partition, generation_id=epoch, member_id="a", api_version=7) is code


def test_a_partition_that_must_be_given_up_may_still_be_committed(group: GroupAtWork) -> None:
    group.join("c", "foo")
    group.beat("a", 3)
    assert group.member("a").revoking == {FOO: {2: 2}}
    assert result(group.group, 2, generation_id=2, member_id="a") is None


def test_a_group_without_members_accepts_commits_without_an_epoch() -> None:
    empty = GroupAtWork().group
    assert result(empty, 0) is None
    assert result(empty, 0, generation_id=3, member_id="a") is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, None),
        ("a", 3, None),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_fetch(group: GroupAtWork, member_id: str | None, epoch: int, code: ErrorCode | None) -> None:
    if code is None:
        group.group.accept_fetch(member_id, epoch)
        return
    with pytest.raises(ProtocolError) as refused:
        group.group.accept_fetch(member_id, epoch)
    assert refused.value.code is code


def test_a_fetch_of_a_classic_member(group: GroupAtWork) -> None:
    classic(group, "a")
    with pytest.raises(ProtocolError) as refused:
        group.group.accept_fetch("a", 2)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_offsets_of_subscribed_topics_are_kept(group: GroupAtWork) -> None:
    group.join("c", regex="b.*")
    group.resolve()
    assert group.group.offset_expiry().kept_topics == {"foo", "bar"}
    assert group.group.offset_expiry().since_ms is None
    assert [group.group.is_subscribed_to(name) for name in ("foo", "bar", "x")] == [True, True, False]
    group.group.check_offsets_deletable()
