"""Heartbeats and sessions: a member that sends nothing for too long is removed."""

import pytest

from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.group_room import SESSION_MS, GroupRoom


def test_a_member_whose_session_expires_is_removed_and_the_others_rebalance() -> None:
    room = GroupRoom()
    leader, silent = room.stable(2)
    room.advance(SESSION_MS // 2)
    room.heartbeat(leader, 2)
    room.advance(SESSION_MS // 2 - 1)
    assert room.group.size == 2
    room.advance(1)
    assert room.group.member(silent) is None
    assert room.heartbeat(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert room.heartbeat(silent, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.join(leader).response.generation_id == 3


def test_a_group_whose_last_members_session_expires_becomes_empty() -> None:
    room = GroupRoom()
    room.stable()
    room.advance(SESSION_MS)
    assert (room.state, room.group.generation_id) == (GroupState.EMPTY, 2)
    assert room.waiting == (0, 0)


def test_heartbeats_keep_a_member_alive() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    for _ in range(1_000):
        room.advance(SESSION_MS - 1)
        assert room.heartbeat(member_id, 1) is ErrorCode.NONE
    room.advance(SESSION_MS)
    assert room.state is GroupState.EMPTY


@pytest.mark.parametrize("tick_ms", [1, 7, 50])
def test_a_coarser_wheel_expires_a_session_up_to_a_tick_early_and_never_loops(tick_ms: int) -> None:
    room = GroupRoom(tick_ms=tick_ms)
    (member_id,) = room.stable()
    for step in range(100):
        room.advance(SESSION_MS - tick_ms - step % 13)
        assert room.heartbeat(member_id, 1) is ErrorCode.NONE
    room.advance(SESSION_MS - tick_ms)
    before = room.state
    room.advance(tick_ms)
    assert (before, room.state) == (GroupState.STABLE, GroupState.EMPTY)


def test_heartbeats_do_not_touch_the_timing_wheel() -> None:
    room = GroupRoom()
    room.stable(3)
    ids = [member.member_id for member in room.group.members]
    operations = [member.heartbeat for member in room.group.members]
    due = [operation.expiration_ms for operation in operations if operation is not None]
    for _ in range(5):
        room.advance(1_000)
        assert [room.heartbeat(each, 2) for each in ids] == [ErrorCode.NONE] * 3
    assert [member.heartbeat for member in room.group.members] == operations
    assert [operation.expiration_ms for operation in operations if operation is not None] == due
    assert room.waits.heartbeat.watched == 3


def test_a_shorter_session_timeout_applies_from_the_next_generation_on() -> None:
    room = GroupRoom()
    (member_id,) = room.stable(session_ms=100_000)
    room.join(member_id, session_ms=6_000)
    room.sync(member_id, 2)
    room.advance(6_000)
    assert room.state is GroupState.EMPTY


def test_no_session_expires_while_its_join_waits() -> None:
    room = GroupRoom()
    leader, follower = room.stable(2)
    asked = room.join(leader)
    for _ in range(5):
        room.advance(SESSION_MS - 1)
        room.heartbeat(follower, 2)
    assert not asked.is_answered
    room.join(follower)
    assert asked.response.generation_id == 3
    room.advance(SESSION_MS - 1)
    assert room.group.size == 2


def test_an_offset_commit_renews_the_session() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    room.advance(SESSION_MS - 1)
    room.shard.heard_of(room.group, member_id)
    room.advance(SESSION_MS - 1)
    assert room.state is GroupState.STABLE


def test_a_heartbeat_at_the_instant_of_expiry_renews_the_session() -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    room.clock.advance(SESSION_MS)
    room.timer.advance_clock()  # the timer expires; its callback runs after the running handler
    assert room.heartbeat(member_id, 1) is ErrorCode.NONE
    before = room.state
    room.advance(SESSION_MS)
    assert (before, room.state) == (GroupState.STABLE, GroupState.EMPTY)


@pytest.mark.parametrize(
    ("member", "generation_id", "error"),
    [
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("nobody", 7, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 0, ErrorCode.ILLEGAL_GENERATION),
        (None, 2, ErrorCode.ILLEGAL_GENERATION),
        (None, -1, ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_heartbeats_of_unknown_members_and_other_generations_are_refused(
    member: str | None, generation_id: int, error: ErrorCode
) -> None:
    room = GroupRoom()
    (member_id,) = room.stable()
    assert room.heartbeat(member_id if member is None else member, generation_id) is error
    room.advance(SESSION_MS)
    assert room.state is GroupState.EMPTY, "a refused heartbeat does not renew the session"


def test_a_heartbeat_to_an_unknown_group_is_an_unknown_member() -> None:
    assert GroupRoom().heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
