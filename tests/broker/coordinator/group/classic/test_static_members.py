"""Static members (KIP-345) keep their place while they are away, and an instance has one member."""

import pytest

from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.harness import REBALANCE_MS, SESSION_MS, GroupHarness


def with_instances(harness: GroupHarness) -> tuple[str, str]:
    """Returns the members of a Stable group in generation 2: instance one, the leader, and instance two."""
    first = harness.join(instance="one").response.member_id
    second = harness.join(instance="two")
    harness.join(first, instance="one")
    other = second.response.member_id
    harness.sync_all([first, other], 2)
    assert (harness.state, harness.group.leader_id) == (GroupState.STABLE, first)
    return first, other


def test_a_static_member_gets_its_id_in_the_first_response() -> None:
    harness = GroupHarness()
    request = harness.join(instance="one", known_ids=True)
    assert request.error is ErrorCode.NONE
    assert request.response.member_id.startswith("one-")
    assert request.response.members[0].group_instance_id == "one"


def test_a_returning_static_member_takes_its_place_without_a_rebalance() -> None:
    harness = GroupHarness()
    leader, follower = with_instances(harness)
    back = harness.join(instance="two")
    assert (back.error, back.response.generation_id, back.response.leader) == (ErrorCode.NONE, 2, leader)
    new_id = back.response.member_id
    assert new_id != follower
    assert harness.state is GroupState.STABLE
    assert harness.sync(new_id, 2, instance="two").response.assignment == b"1"
    assert harness.heartbeat(leader, 2, "one") is ErrorCode.NONE


def test_every_request_of_a_replaced_static_member_is_fenced() -> None:
    harness = GroupHarness()
    _, old = with_instances(harness)
    harness.join(instance="two")
    assert harness.heartbeat(old, 2, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.sync(old, 2, instance="two").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.join(old, instance="two").error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.leave(old, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(old, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.group.size == 2


def test_an_unknown_instance_is_an_unknown_member() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    assert harness.heartbeat(leader, 2, "three") is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.sync(leader, 2, instance="three").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.join(leader, instance="three").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_returning_leader_is_asked_to_skip_the_assignment() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    back = harness.join(instance="one", can_skip=True).response
    assert (back.leader, back.skip_assignment) == (back.member_id, True)
    assert len(back.members) == 2
    assert harness.state is GroupState.STABLE
    assert harness.group.leader_id == back.member_id != leader


def test_a_returning_leader_before_version_9_gets_another_leaders_id_and_assigns_nothing() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    back = harness.join(instance="one").response
    assert (back.leader, back.skip_assignment, back.members) == (leader, False, [])
    assert harness.group.leader_id == back.member_id


def test_a_returning_follower_is_not_asked_to_skip_the_assignment() -> None:
    harness = GroupHarness()
    with_instances(harness)
    back = harness.join(instance="two", can_skip=True).response
    assert (back.skip_assignment, back.members) == (False, [])


def test_a_static_member_that_returns_with_another_protocol_rebalances_the_group() -> None:
    harness = GroupHarness()
    first = harness.join(instance="one", protocols=["range", "sticky"]).response.member_id
    harness.sync(first, 1)
    assert harness.group.protocol_name == "range"
    back = harness.join(instance="one", protocols=["sticky"])
    assert (back.response.generation_id, back.response.protocol_name) == (2, "sticky")


def test_a_static_member_that_returns_during_completing_rebalance_rebalances_the_group() -> None:
    harness = GroupHarness()
    leader, follower = with_instances(harness)
    harness.join(leader, instance="one")
    harness.join(follower, instance="two")
    waiting = harness.sync(follower, 3, instance="two")
    back = harness.join(instance="two")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.state is GroupState.PREPARING_REBALANCE
    harness.join(leader, instance="one")
    assert back.response.generation_id == 4


def test_a_static_member_that_returns_during_preparing_rebalance_waits_with_the_others() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    joining = harness.join(leader, instance="one")  # the leader begins a rebalance
    back = harness.join(instance="two")
    assert joining.response.generation_id == back.response.generation_id == 3


def test_a_waiting_join_is_fenced_when_its_instance_joins_again() -> None:
    harness = GroupHarness()
    leader, follower = with_instances(harness)
    old = harness.join(follower, instance="two", protocols={"range": b"new"})
    back = harness.join(instance="two")
    assert (old.error, old.response.member_id) == (ErrorCode.FENCED_INSTANCE_ID, follower)
    harness.join(leader, instance="one")
    assert back.response.generation_id == 3


def test_a_static_member_that_does_not_rejoin_in_time_keeps_its_place() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    new = harness.join(session_ms=1_800_000)
    request = harness.join(leader, instance="one")
    for _ in range(REBALANCE_MS // 5_000):
        harness.advance(5_000)
        harness.heartbeat(harness.group.static_member_id("two") or "", 2, "two")
    assert new.response.generation_id == request.response.generation_id == 3
    assert harness.group.static_member_id("two") is not None


def test_a_static_member_whose_session_expires_is_removed() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(leader, 2, "one")
    harness.advance(1)
    assert harness.group.static_member_id("two") is None
    assert harness.state is GroupState.PREPARING_REBALANCE


def test_when_only_static_members_are_missing_the_rebalance_waits_for_their_sessions() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    for member in list(harness.group.members):
        member.session_timeout_ms = 200_000
        harness.heartbeat(member.member_id, 2, member.group_instance_id)
    harness.join()
    harness.leave(list(harness.group.members)[-1].member_id)
    harness.advance(REBALANCE_MS)
    assert harness.state is GroupState.PREPARING_REBALANCE, "no member has joined: the group waits again"
    assert harness.group.size == 2
    back = harness.join(leader, instance="one")
    harness.advance(REBALANCE_MS)
    assert back.response.generation_id == 3


def test_a_new_member_id_is_sent_once_replicated_and_survives_a_restart() -> None:
    harness = GroupHarness()
    with_instances(harness)
    harness.log.is_held = True
    back = harness.join(instance="two")
    assert not back.is_answered
    harness.log.settle()
    new_id = back.response.member_id
    harness.restart()
    assert harness.heartbeat(new_id, 2, "two") is ErrorCode.NONE


@pytest.mark.parametrize("cause", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_new_member_id_that_cannot_be_written_is_rolled_back(cause: ErrorCode) -> None:
    harness = GroupHarness()
    leader, follower = with_instances(harness)
    harness.log.failure = cause
    back = harness.join(instance="two", protocols=["range", "sticky"], session_ms=20_000)
    assert back.error is not ErrorCode.NONE
    assert harness.heartbeat(follower, 2, "two") is ErrorCode.NONE
    assert harness.group.member(follower).session_timeout_ms == SESSION_MS  # type: ignore[union-attr]
    assert (harness.state, harness.group.awaiting, harness.group.leader_id) == (GroupState.STABLE, 0, leader)


def test_a_new_member_id_written_as_a_rebalance_begins_is_sent_with_the_new_generation() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    harness.log.is_held = True
    back = harness.join(instance="two")
    harness.join(leader, instance="one")
    harness.log.settle()
    assert back.response.generation_id == 3


def test_waiting_for_static_members_without_a_rebalance_timeout_does_not_loop(
    capsys: pytest.CaptureFixture[str],
) -> None:
    harness = GroupHarness()
    with_instances(harness)
    for instance in ("one", "two"):  # they return, now without a rebalance timeout
        assert harness.join(instance=instance, rebalance_ms=-1).error is ErrorCode.NONE
    capsys.readouterr()
    harness.leave(instance="two")
    harness.advance(SESSION_MS - 1)
    assert harness.state is GroupState.PREPARING_REBALANCE
    assert capsys.readouterr().out.count("no member rejoined") <= SESSION_MS // 1000
    assert harness.join(instance="one", rebalance_ms=-1).response.generation_id == 3
