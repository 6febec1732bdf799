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


def test_a_sync_after_the_others_renews_the_session() -> None:
    harness = GroupHarness()
    leader, follower = completing(harness)
    harness.sync(leader, 3, {leader: b"1", follower: b"2"})
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(leader, 3)
    assert harness.sync(follower, 3).response.assignment == b"2"
    harness.advance(SESSION_MS - 1)
    assert harness.group.member(follower) is not None


def test_a_sync_is_not_overdue_in_the_next_generation() -> None:
    harness = GroupHarness()
    long = 10 * REBALANCE_MS
    leader, follower = harness.stable(2, session_ms=long)
    harness.rejoined([leader, follower], session_ms=long)
    harness.advance(REBALANCE_MS - 1)
    harness.join(leader, session_ms=long, protocols=["range", "sticky"])
    harness.join(follower, session_ms=long)
    harness.advance(REBALANCE_MS - 1)
    assert (harness.group.generation_id, harness.group.size) == (4, 2)


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name"), [("connect", "range"), ("consumer", "sticky"), ("", "range"), ("consumer", "")]
)
def test_a_sync_with_another_protocol_or_type_is_refused(protocol_type: str, protocol_name: str) -> None:
    harness = GroupHarness()
    leader, _ = completing(harness)
    request = harness.sync(leader, 3, protocol_type=protocol_type, protocol_name=protocol_name)
    assert request.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert harness.sync(leader, 3, protocol_type="consumer", protocol_name="range").error is ErrorCode.NONE
