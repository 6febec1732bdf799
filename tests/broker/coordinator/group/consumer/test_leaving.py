"""Members that leave, leave for a while, come back, or are fenced."""

from __future__ import annotations

import pytest

from odradek.broker.coordinator.group.consumer.outcome import Timer
from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.consumer.group_at_work import GroupAtWork, assigned, owned


def test_the_partitions_of_who_leaves_go_to_the_others() -> None:
    group = GroupAtWork()
    group.join("a", "foo")
    group.join("b", "foo")
    response = group.leave("a")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", -1, 0)
    assert response.assignment is None
    assert group.kinds == [-8, -7, -5, 3]
    assert group.last.assign
    assert ("session", "a") not in group.timers
    got = group.beat("b", 3)
    assert (got.member_epoch, assigned(got)) == (4, {1: set(range(6))})


def test_the_last_one_leaves_a_target_for_nobody_that_delays_no_other() -> None:
    group = GroupAtWork()
    group.join("a", "foo")
    group.leave("a")
    assert group.kinds == [-8, -7, -5, 3, 6]
    assert not group.last.assign
    assert (group.state, group.group.epoch, group.group.target_epoch) == ("Empty", 3, 3)
    assert group.group.target_timestamp_ms == 0
    assert group.group.is_unused
    assert group.join("b", "foo").member_epoch == 4


def test_several_members_are_fenced_with_one_new_epoch() -> None:
    group = GroupAtWork()
    for name in "abc":
        group.join(name, "foo", "bar")
    group.fence("a", "b")
    assert (group.kinds, group.group.epoch) == ([-8, -7, -5, -8, -7, -5, 3], 5)
    group.fence()
    assert group.kinds == []


def test_who_is_unknown_cannot_leave() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    assert group.refused(group.leave, "x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refused(group.leave, "a", instance="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refused(group.leave, "x", instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert group.leave("a", instance="i").member_epoch == -1
    assert group.group.is_empty


# --- static members -------------------------------------------------------------------------------------------------


def test_a_static_member_that_is_away_keeps_its_partitions_and_its_session_goes_on() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    response = group.leave("a", instance="i", epoch=-2)
    assert (response.member_id, response.member_epoch, group.kinds) == ("a", -2, [8])
    assert group.last.timers == [Timer("rebalance", "a")]
    assert ("session", "a") in group.timers
    assert group.group.epoch == 2
    assert group.state == "Reconciling"
    other = group.join("b", "foo")
    assert assigned(other) == {}, "what is away is still owned"


@pytest.mark.parametrize("successor", ["a2", "a"])
def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(successor: str) -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    group.leave("a", instance="i", epoch=-2)
    back = group.join(successor, "foo", instance_id="i")
    assert (back.member_id, back.member_epoch, assigned(back)) == (successor, 2, {1: set(range(6))})
    assert group.kinds == [-8, -7, -5, 5, 7, 8, 8]
    assert group.group.epoch == 2
    assert group.member(successor).assigned == {next(iter(owned(back))): dict.fromkeys(range(6), 0)}
    assert {key for key in group.timers if key[0] == "session"} == {("session", successor)}
    if successor != "a":
        assert group.refused(group.beat, "a", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
        assert group.refused(group.beat, "a", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.beat(successor, 2, instance_id="i").member_epoch == 2


def test_a_static_member_comes_back_with_other_topics() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    group.leave("a", instance="i", epoch=-2)
    back = group.join("a2", "bar", instance_id="i")
    assert group.kinds == [-8, -7, -5, 5, 7, 8, 5, 3, 7, 6, 8]
    assert (back.member_epoch, assigned(back)) == (3, {2: {0, 1, 2}})


def test_an_instance_that_is_not_released_refuses_its_rival_and_itself() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    assert group.refused(group.join, "b", "foo", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.refused(group.join, "a", "foo", instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.refused(group.beat, "a", 2, instance_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refused(group.beat, "b", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    group.join("b", "foo")
    group.leave("a", instance="i", epoch=-2)
    group.fence("a")
    assert assigned(group.beat("b", 3)) == {1: set(range(6))}
    assert group.join("c", "foo", instance_id="i").member_epoch == 5


def test_a_static_member_that_comes_back_while_it_gave_up_partitions_has_the_rest() -> None:
    group = GroupAtWork()
    group.join("a", "foo", instance_id="i")
    group.join("b", "foo")
    assert assigned(group.beat("a", 2)) == {1: {0, 1, 2}}
    group.leave("a", instance="i", epoch=-2)
    assert assigned(group.beat("b", 3)) == {1: {3, 4, 5}}, "what it was giving up is free"
    back = group.join("a2", "foo", instance_id="i")
    assert (back.member_epoch, assigned(back)) == (3, {1: {0, 1, 2}})
