"""Heartbeats and sessions: a member that sends nothing for too long is removed."""

import pytest

from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.group import Committer
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.harness import GROUP, SESSION_MS, GroupHarness


@pytest.mark.parametrize("tick_ms", [1, 7, 50])
def test_a_coarser_wheel_expires_a_session_up_to_a_tick_early_and_never_loops(tick_ms: int) -> None:
    harness = GroupHarness(tick_ms=tick_ms)
    (member_id,) = harness.stable()
    for step in range(100):
        harness.advance(SESSION_MS - tick_ms - step % 13)
        assert harness.heartbeat(member_id, 1) is ErrorCode.NONE
    harness.advance(SESSION_MS - tick_ms)
    before = harness.state
    harness.advance(tick_ms)
    assert (before, harness.state) == (GroupState.STABLE, GroupState.EMPTY)


def test_heartbeats_do_not_touch_the_timing_wheel() -> None:
    harness = GroupHarness()
    harness.stable(3)
    ids = [member.member_id for member in harness.group.members]
    operations = [member.heartbeat for member in harness.group.members]
    due = [operation.expiration_ms for operation in operations if operation is not None]
    for _ in range(5):
        harness.advance(1_000)
        assert [harness.heartbeat(each, 2) for each in ids] == [ErrorCode.NONE] * 3
    assert [member.heartbeat for member in harness.group.members] == operations
    assert [operation.expiration_ms for operation in operations if operation is not None] == due
    assert harness.waits.heartbeat.watched == 3


def test_a_shorter_session_timeout_applies_from_the_next_generation_on() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable(session_ms=100_000)
    harness.join(member_id, session_ms=6_000)
    harness.sync(member_id, 2)
    harness.advance(6_000)
    assert harness.state is GroupState.EMPTY


def test_an_offset_commit_renews_the_session() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.advance(SESSION_MS - 1)
    harness.group.accept_commit(Committer(GROUP, 1, member_id))
    harness.advance(SESSION_MS - 1)
    assert harness.state is GroupState.STABLE


def test_a_heartbeat_at_the_instant_of_expiry_renews_the_session() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.clock.advance(SESSION_MS)
    harness.timer.advance_clock()  # the timer expires; its callback runs after the running handler
    assert harness.heartbeat(member_id, 1) is ErrorCode.NONE
    before = harness.state
    harness.advance(SESSION_MS)
    assert (before, harness.state) == (GroupState.STABLE, GroupState.EMPTY)


def test_a_heartbeat_to_an_unknown_group_is_an_unknown_member() -> None:
    assert GroupHarness().heartbeat("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
