"""SyncGroup: the leader's assignment, the members that wait for it, and refused requests."""

import pytest

from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.group_room import REBALANCE_MS, SESSION_MS, Asked, GroupRoom


def completing(room: GroupRoom, count: int = 2) -> list[str]:
    """Returns the members of a generation that awaits its SyncGroups, the leader first."""
    ids = room.stable(count)
    room.rejoined(ids)
    assert room.state is GroupState.COMPLETING_REBALANCE
    return ids


def errors(asked: list[Asked]) -> list[ErrorCode]:
    return [each.error for each in asked]


def test_every_member_gets_its_part_of_the_leaders_assignment() -> None:
    room = GroupRoom()
    ids = completing(room, 3)
    asked = room.sync_all(ids, 3)
    assert [each.response.assignment for each in asked] == [b"0", b"1", b"2"]
    assert room.rebalances == 2
    assert {(each.response.protocol_type, each.response.protocol_name) for each in asked} == {("consumer", "range")}
    assert room.state is GroupState.STABLE


def test_followers_wait_for_the_leader() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    asked = room.sync(follower, 3)
    assert not asked.is_answered
    room.sync(leader, 3, {follower: b"theirs"})
    assert asked.response.assignment == b"theirs"


def test_a_member_that_syncs_late_gets_its_assignment() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    room.sync(leader, 3, {follower: b"theirs"})
    assert room.sync(follower, 3).response.assignment == b"theirs"
    assert room.sync(leader, 3, {follower: b"something else"}).response.assignment == b""
    assert room.sync(follower, 3).response.assignment == b"theirs"


def test_members_without_an_assignment_get_an_empty_one_and_unknown_members_are_ignored() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    room.sync(leader, 3, {"stranger": b"x"})
    assert room.sync(follower, 3).response.assignment == b""
    assert room.group.size == 2


def test_an_assignment_is_not_sent_before_it_is_replicated() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    room.log.is_held = True
    asked = room.sync_all([leader, follower], 3)
    assert not any(each.is_answered for each in asked)
    before = room.state
    room.log.settle()
    assert errors(asked) == [ErrorCode.NONE] * 2
    assert (before, room.state) == (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


@pytest.mark.parametrize(
    ("cause", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_written_is_refused_and_the_group_rebalances(
    cause: ErrorCode, answered: ErrorCode
) -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    waiting = room.sync(follower, 3)
    room.log.failure = cause
    assert errors([room.sync(leader, 3), waiting]) == [answered] * 2
    assert room.state is GroupState.PREPARING_REBALANCE
    room.log.failure = None
    room.rejoined([leader, follower])
    assert errors(room.sync_all([leader, follower], 4)) == [ErrorCode.NONE] * 2


def test_an_assignment_replicated_after_its_generation_has_ended_is_not_sent() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    room.log.is_held = True
    asked = room.sync_all([leader, follower], 3)
    room.join()
    assert errors(asked) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    room.log.settle()
    assert room.state is GroupState.PREPARING_REBALANCE


def test_a_new_rebalance_answers_the_members_that_wait_for_the_leader() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    asked = room.sync(follower, 3)
    room.leave(leader)
    assert asked.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_does_not_sync_in_time_is_removed_and_the_others_rebalance() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    asked = room.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        room.advance(5_000)
        room.heartbeat(leader, 3)
    assert asked.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.group.member(leader) is None
    assert room.join(follower).response.leader == follower


def test_a_follower_that_does_not_sync_in_time_is_removed_although_the_group_is_stable() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    room.sync(leader, 3)
    for _ in range(REBALANCE_MS // 5_000):
        assert room.state is GroupState.STABLE
        room.advance(5_000)
        room.heartbeat(leader, 3)
        room.heartbeat(follower, 3)
    assert room.group.member(follower) is None
    assert room.state is GroupState.PREPARING_REBALANCE


def test_only_session_timeouts_wait_after_all_members_have_synced() -> None:
    room = GroupRoom()
    room.sync_all(completing(room, 3), 3)
    assert room.waiting == (3, 0)


def test_no_session_expires_while_a_member_waits_for_the_leader() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    asked = room.sync(follower, 3)
    for _ in range(3):
        room.advance(SESSION_MS - 1_000)
        room.heartbeat(leader, 3)
    room.sync(leader, 3)
    assert asked.error is ErrorCode.NONE
    room.advance(SESSION_MS - 1)
    assert room.heartbeat(follower, 3) is ErrorCode.NONE
    assert room.group.member(follower) is not None


@pytest.mark.parametrize("generation_id", [-1, 0, 2, 4])
def test_a_sync_with_another_generation_is_refused(generation_id: int) -> None:
    room = GroupRoom()
    leader, _ = completing(room)
    assert room.sync(leader, generation_id).error is ErrorCode.ILLEGAL_GENERATION


def test_syncs_of_unknown_members_and_unknown_groups_are_refused() -> None:
    room = GroupRoom()
    assert room.sync("nobody", 0).error is ErrorCode.UNKNOWN_MEMBER_ID
    completing(room)
    assert room.sync("nobody", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_during_preparing_rebalance_is_refused() -> None:
    room = GroupRoom()
    leader, _ = room.stable(2)
    room.join()
    assert room.sync(leader, 2).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky"), ("", "range"), ("consumer", "")]
)
def test_a_sync_with_another_protocol_or_type_is_refused(protocol_type: str, protocol_name: str) -> None:
    room = GroupRoom()
    leader, _ = completing(room)
    asked = room.sync(leader, 3, protocol_type=protocol_type, protocol_name=protocol_name)
    assert asked.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert room.sync(leader, 3, protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE


def test_a_repeated_sync_replaces_the_first_and_both_are_answered() -> None:
    room = GroupRoom()
    leader, follower = completing(room)
    first, second = room.sync(follower, 3), room.sync(follower, 3)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    room.sync(leader, 3, {follower: b"theirs"})
    assert second.response.assignment == b"theirs"
