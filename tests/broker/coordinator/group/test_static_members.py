"""Static members (KIP-345) keep their place while they are away, and an instance has one member."""

import pytest

from odradek.broker.coordinator.group.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.group_room import REBALANCE_MS, SESSION_MS, GroupRoom


def with_instances(room: GroupRoom) -> tuple[str, str]:
    """Returns the members of a Stable group in generation 2: instance one, the leader, and instance two."""
    first = room.join(instance="one").response.member_id
    second = room.join(instance="two")
    room.join(first, instance="one")
    other = second.response.member_id
    room.sync_all([first, other], 2)
    assert (room.state, room.group.leader_id) == (GroupState.STABLE, first)
    return first, other


def test_a_static_member_gets_its_id_in_the_first_response() -> None:
    room = GroupRoom()
    asked = room.join(instance="one", known_ids=True)
    assert asked.error is ErrorCode.NONE
    assert asked.response.member_id.startswith("one-")
    assert asked.response.members[0].group_instance_id == "one"


def test_a_returning_static_member_takes_its_place_without_a_rebalance() -> None:
    room = GroupRoom()
    leader, follower = with_instances(room)
    back = room.join(instance="two")
    assert (back.error, back.response.generation_id, back.response.leader) == (ErrorCode.NONE, 2, leader)
    new_id = back.response.member_id
    assert new_id != follower
    assert room.state is GroupState.STABLE
    assert room.sync(new_id, 2, instance="two").response.assignment == b"1"
    assert room.heartbeat(leader, 2, "one") is ErrorCode.NONE


def test_every_request_of_a_replaced_static_member_is_fenced() -> None:
    room = GroupRoom()
    _, old = with_instances(room)
    room.join(instance="two")
    assert room.heartbeat(old, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert room.sync(old, 2, instance="two").error is ErrorCode.FENCED_INSTANCE_ID
    assert room.join(old, instance="two").error is ErrorCode.FENCED_INSTANCE_ID
    assert room.leave(old, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert room.heartbeat(old, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.group.size == 2


def test_an_unknown_instance_is_an_unknown_member() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    assert room.heartbeat(leader, 2, "three") is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.sync(leader, 2, instance="three").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.join(leader, instance="three").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_returning_leader_is_asked_to_skip_the_assignment() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    back = room.join(instance="one", can_skip=True).response
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2
    assert room.state is GroupState.STABLE
    assert room.group.leader_id == back.member_id != leader


def test_a_returning_leader_before_version_9_gets_another_leaders_id_and_assigns_nothing() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    back = room.join(instance="one").response
    assert (back.leader, back.skip_assignment, back.members) == (leader, False, [])
    assert room.group.leader_id == back.member_id


def test_a_returning_follower_is_not_asked_to_skip_the_assignment() -> None:
    room = GroupRoom()
    with_instances(room)
    back = room.join(instance="two", can_skip=True).response
    assert (back.skip_assignment, back.members) == (False, [])


def test_a_static_member_that_returns_with_another_protocol_rebalances_the_group() -> None:
    room = GroupRoom()
    first = room.join(instance="one", protocols=["range", "sticky"]).response.member_id
    room.sync(first, 1)
    assert room.group.protocol_name == "range"
    back = room.join(instance="one", protocols=["sticky"])
    assert (back.response.generation_id, back.response.protocol_name) == (2, "sticky")


def test_a_static_member_that_returns_during_completing_rebalance_rebalances_the_group() -> None:
    room = GroupRoom()
    leader, follower = with_instances(room)
    room.join(leader, instance="one")
    room.join(follower, instance="two")
    waiting = room.sync(follower, 3, instance="two")
    back = room.join(instance="two")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert room.state is GroupState.PREPARING_REBALANCE
    room.join(leader, instance="one")
    assert back.response.generation_id == 4


def test_a_static_member_that_returns_during_preparing_rebalance_waits_with_the_others() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    joining = room.join(leader, instance="one")  # the leader begins a rebalance
    back = room.join(instance="two")
    assert joining.response.generation_id == back.response.generation_id == 3


def test_a_waiting_join_is_fenced_when_its_instance_joins_again() -> None:
    room = GroupRoom()
    leader, follower = with_instances(room)
    old = room.join(follower, instance="two", protocols={"range": b"new"})
    back = room.join(instance="two")
    assert (old.error, old.response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower)
    room.join(leader, instance="one")
    assert back.response.generation_id == 3


def test_a_static_member_that_does_not_rejoin_in_time_keeps_its_place() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    new = room.join(session_ms=1_800_000)
    asked = room.join(leader, instance="one")
    for _ in range(REBALANCE_MS // 5_000):
        room.advance(5_000)
        room.heartbeat(room.group.static_member_id("two") or "", 2, "two")
    assert new.response.generation_id == asked.response.generation_id == 3
    assert room.group.static_member_id("two") is not None


def test_a_static_member_whose_session_expires_is_removed() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    room.advance(SESSION_MS - 1)
    room.heartbeat(leader, 2, "one")
    room.advance(1)
    assert room.group.static_member_id("two") is None
    assert room.state is GroupState.PREPARING_REBALANCE


def test_when_only_static_members_are_missing_the_rebalance_waits_for_their_sessions() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    for member in list(room.group.members):
        member.session_timeout_ms = 200_000
        room.heartbeat(member.member_id, 2, member.group_instance_id)
    room.join()
    room.leave(list(room.group.members)[-1].member_id)
    room.advance(REBALANCE_MS)
    assert room.state is GroupState.PREPARING_REBALANCE, "no member has joined: the group waits again"
    assert room.group.size == 2
    back = room.join(leader, instance="one")
    room.advance(REBALANCE_MS)
    assert back.response.generation_id == 3


def test_a_new_member_id_is_sent_once_replicated_and_survives_a_restart() -> None:
    room = GroupRoom()
    with_instances(room)
    room.log.is_held = True
    back = room.join(instance="two")
    assert not back.is_answered
    room.log.settle()
    new_id = back.response.member_id
    room.restart()
    assert room.heartbeat(new_id, 2, "two") is ErrorCode.NONE


@pytest.mark.parametrize("cause", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_new_member_id_that_cannot_be_written_is_rolled_back(cause: ErrorCode) -> None:
    room = GroupRoom()
    leader, follower = with_instances(room)
    room.log.failure = cause
    back = room.join(instance="two", protocols=["range", "sticky"], session_ms=20_000)
    assert back.error is not ErrorCode.NONE
    assert room.heartbeat(follower, 2, "two") is ErrorCode.NONE
    assert room.group.member(follower).session_timeout_ms == SESSION_MS  # type: ignore[union-attr]
    assert (room.state, room.group.awaiting, room.group.leader_id) == (GroupState.STABLE, 0, leader)


def test_a_new_member_id_written_as_a_rebalance_begins_is_sent_with_the_new_generation() -> None:
    room = GroupRoom()
    leader, _ = with_instances(room)
    room.log.is_held = True
    back = room.join(instance="two")
    room.join(leader, instance="one")
    room.log.settle()
    assert back.response.generation_id == 3


def test_waiting_for_static_members_without_a_rebalance_timeout_does_not_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    room = GroupRoom()
    with_instances(room)
    for instance in ("one", "two"):  # they return, now without a rebalance timeout
        assert room.join(instance=instance, rebalance_ms=-1).error is ErrorCode.NONE
    capsys.readouterr()
    room.leave(instance="two")
    room.advance(SESSION_MS - 1)
    assert room.state is GroupState.PREPARING_REBALANCE
    assert capsys.readouterr().out.count("no member rejoined") <= SESSION_MS // 1000
    assert room.join(instance="one", rebalance_ms=-1).response.generation_id == 3
