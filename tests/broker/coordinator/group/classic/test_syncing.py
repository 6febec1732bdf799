"""SyncGroup: the leader's assignment, the members that wait for it, and refused requests."""

import pytest

from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.harness import REBALANCE_MS, SESSION_MS, GroupHarness, SentRequest


def completing(harness: GroupHarness, count: int = 2) -> list[str]:
    """Returns the members of a generation that awaits its SyncGroups, the leader first."""
    ids = harness.stable(count)
    harness.rejoined(ids)
    assert harness.state is GroupState.COMPLETING_REBALANCE
    return ids


def errors(requests: list[SentRequest]) -> list[ErrorCode]:
    return [each.error for each in requests]


def test_every_member_gets_its_part_of_the_leaders_assignment() -> None:
    harness = GroupHarness()
    ids = completing(harness, 3)
    requests = harness.sync_all(ids, 3)
    assert [each.response.assignment for each in requests] == [b"0", b"1", b"2"]
    assert harness.rebalances == 2
    assert {(each.response.protocol_type, each.response.protocol_name) for each in requests} == {("consumer", "range")}
    assert harness.state is GroupState.STABLE


def test_followers_wait_for_the_leader() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    request = harness.sync(follower, 3)
    assert not request.is_answered
    harness.sync(leader, 3, {follower: b"theirs"})
    assert request.response.assignment == b"theirs"


def test_a_member_that_syncs_late_gets_its_assignment() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.sync(leader, 3, {follower: b"theirs"})
    assert harness.sync(follower, 3).response.assignment == b"theirs"
    assert harness.sync(leader, 3, {follower: b"something else"}).response.assignment == b""
    assert harness.sync(follower, 3).response.assignment == b"theirs"


def test_members_without_an_assignment_get_an_empty_one_and_unknown_members_are_ignored() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.sync(leader, 3, {"stranger": b"x"})
    assert harness.sync(follower, 3).response.assignment == b""
    assert harness.group.size == 2


def test_an_assignment_is_not_sent_before_it_is_replicated() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.log.is_held = True
    requests = harness.sync_all([leader, follower], 3)
    assert not any(each.is_answered for each in requests)
    before = harness.state
    harness.log.settle()
    assert errors(requests) == [ErrorCode.NONE] * 2
    assert (before, harness.state) == (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


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
    harness = GroupHarness()
    leader, follower = completing(harness)
    waiting = harness.sync(follower, 3)
    harness.log.failure = cause
    assert errors([harness.sync(leader, 3), waiting]) == [answered] * 2
    assert harness.state is GroupState.PREPARING_REBALANCE
    harness.log.failure = None
    harness.rejoined([leader, follower])
    assert errors(harness.sync_all([leader, follower], 4)) == [ErrorCode.NONE] * 2


def test_an_assignment_replicated_after_its_generation_has_ended_is_not_sent() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.log.is_held = True
    requests = harness.sync_all([leader, follower], 3)
    harness.join()
    assert errors(requests) == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    harness.log.settle()
    assert harness.state is GroupState.PREPARING_REBALANCE


def test_a_new_rebalance_answers_the_members_that_wait_for_the_leader() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    request = harness.sync(follower, 3)
    harness.leave(leader)
    assert request.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_does_not_sync_in_time_is_removed_and_the_others_rebalance() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    request = harness.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        harness.advance(5_000)
        harness.heartbeat(leader, 3)
    assert request.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert harness.group.member(leader) is None
    assert harness.join(follower).response.leader == follower


def test_a_follower_that_does_not_sync_in_time_is_removed_although_the_group_is_stable() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.sync(leader, 3)
    for _ in range(REBALANCE_MS // 5_000):
        assert harness.state is GroupState.STABLE
        harness.advance(5_000)
        harness.heartbeat(leader, 3)
        harness.heartbeat(follower, 3)
    assert harness.group.member(follower) is None
    assert harness.state is GroupState.PREPARING_REBALANCE


def test_only_session_timeouts_wait_after_all_members_have_synced() -> None:
    harness = GroupHarness()
    harness.sync_all(completing(harness, 3), 3)
    assert harness.waiting == (3, 0)


def test_no_session_expires_while_a_member_waits_for_the_leader() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    request = harness.sync(follower, 3)
    for _ in range(3):
        harness.advance(SESSION_MS - 1_000)
        harness.heartbeat(leader, 3)
    harness.sync(leader, 3)
    assert request.error is ErrorCode.NONE
    harness.advance(SESSION_MS - 1)
    assert harness.heartbeat(follower, 3) is ErrorCode.NONE
    assert harness.group.member(follower) is not None


@pytest.mark.parametrize("generation_id", [-1, 0, 2, 4])
def test_a_sync_with_another_generation_is_refused(generation_id: int) -> None:
    harness = GroupHarness()
    leader, _ = completing(harness)
    assert harness.sync(leader, generation_id).error is ErrorCode.ILLEGAL_GENERATION


def test_syncs_of_unknown_members_and_unknown_groups_are_refused() -> None:
    harness = GroupHarness()
    assert harness.sync("nobody", 0).error is ErrorCode.UNKNOWN_MEMBER_ID
    completing(harness)
    assert harness.sync("nobody", 3).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_during_preparing_rebalance_is_refused() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable(2)
    harness.join()
    assert harness.sync(leader, 2).error is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky"), ("", "range"), ("consumer", "")]
)
def test_a_sync_with_another_protocol_or_type_is_refused(protocol_type: str, protocol_name: str) -> None:
    harness = GroupHarness()
    leader, _ = completing(harness)
    request = harness.sync(leader, 3, protocol_type=protocol_type, protocol_name=protocol_name)
    assert request.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(leader, 3, protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE


def test_a_repeated_sync_replaces_the_first_and_both_are_answered() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    first, second = harness.sync(follower, 3), harness.sync(follower, 3)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    harness.sync(leader, 3, {follower: b"theirs"})
    assert second.response.assignment == b"theirs"
