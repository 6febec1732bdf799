"""Static members (KIP-345) keep their place while they are away, and an instance has one member."""

import pytest

from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.runtime.shard import AppendFailed
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


@pytest.mark.parametrize("cause", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
@pytest.mark.parametrize("instance", ["one", "two"])
def test_a_new_member_id_that_is_written_but_not_replicated_in_time_stays(instance: str, cause: ErrorCode) -> None:
    harness = GroupHarness()
    with_instances(harness)
    harness.log.is_held = True
    returns = [harness.join(instance=instance, session_ms=20_000) for _ in range(2)]
    harness.log.settle(cause)
    assert [back.error for back in returns] == [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.group.check()
    before = {member.member_id: member.session_timeout_ms for member in harness.group.members}
    leader = harness.group.leader_id
    harness.restart()
    after = {member.member_id: member.session_timeout_ms for member in harness.group.members}
    assert (after, harness.group.leader_id) == (before, leader)


def test_a_new_member_id_that_cannot_be_written_gives_way_to_the_one_that_is_being_written() -> None:
    harness = GroupHarness()
    with_instances(harness)
    harness.log.is_held = True
    harness.join(instance="two")
    harness.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    harness.join(instance="two")
    harness.log.settle()
    before = {member.member_id for member in harness.group.members}
    harness.restart()
    assert {member.member_id for member in harness.group.members} == before


def test_a_member_whose_replacement_took_longer_than_its_session_and_failed_has_a_session() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    harness.log.is_held = True
    back = harness.join(instance="two")
    for _ in range(2):
        harness.advance(SESSION_MS - 1)
        harness.heartbeat(leader, 2, "one")
    harness.log.settle(ErrorCode.REQUEST_TIMED_OUT)
    assert (back.error is ErrorCode.NONE, harness.group.size) == (False, 2)
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(leader, 2, "one")
    before = harness.group.size
    harness.advance(1)
    assert (before, harness.group.size) == (2, 1), "nobody has been heard of since"


def test_a_new_member_id_written_as_a_rebalance_begins_is_sent_with_the_new_generation() -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    harness.log.is_held = True
    back = harness.join(instance="two")
    harness.join(leader, instance="one")
    harness.log.settle()
    assert back.response.generation_id == 3


@pytest.mark.parametrize("failure", [None, AppendFailed(ErrorCode.REQUEST_TIMED_OUT)])
def test_a_new_member_id_of_the_next_generation_stays_whatever_becomes_of_its_write(
    failure: AppendFailed | None,
) -> None:
    harness = GroupHarness()
    leader, _ = with_instances(harness)
    harness.log.is_held = True
    back = harness.join(instance="two")
    written, harness.log.waiting = harness.log.waiting, []
    harness.join(leader, instance="one")
    harness.sync_all([leader, back.response.member_id], 3)
    harness.log.settle()
    assert harness.state is GroupState.STABLE
    for decision in written:
        decision.done(failure)
    assert (back.response.generation_id, harness.state) == (3, GroupState.STABLE)
    assert harness.heartbeat(back.response.member_id, 3, "two") is ErrorCode.NONE


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
