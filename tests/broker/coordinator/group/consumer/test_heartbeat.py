"""Heartbeats of members that join and stay: refusals, epochs, assignments, and the records in their order."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat, check_request
from odradek.broker.coordinator.group.consumer.member import NOTHING, ClassicMemberMetadata, Partitions
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.outcome import Timer
from odradek.broker.coordinator.group.consumer.records import assignment_record, member_record
from odradek.broker.coordinator.group.consumer.subscriptions import MOST_NAMED
from odradek.broker.coordinator.group.consumer.target import LARGEST_AT_ONCE
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import (
    GROUP,
    REBALANCE_MS,
    SETTINGS,
    FakeTopics,
    GroupAtWork,
    assigned,
    owned,
)

FOO = UUID(int=1)
JOIN: dict[str, Any] = {"rebalance_timeout_ms": 1000, "owned": {}, "topics": ["foo"]}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "epoch": 5, "version": 0}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "", "epoch": -1, "version": 0}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"owned": None}, ErrorCode.INVALID_REQUEST),
        ({"owned": {FOO: frozenset((0,))}}, ErrorCode.INVALID_REQUEST),
        ({"topics": None}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"epoch": -3, "instance_id": "i"}, ErrorCode.INVALID_REQUEST),
        ({"assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"epoch": 3, "assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({}, None),
        ({"member_id": "", "version": 0}, None),
        ({"topics": None, "regex": ""}, None),
        ({"epoch": -2, "instance_id": "i"}, None),
        ({"epoch": 3, "owned": None, "topics": None, "rebalance_timeout_ms": -1}, None),
        ({"assignor": "uniform"}, None),
    ],
)
def test_a_request_that_no_group_could_accept_is_refused(fields: dict[str, Any], code: ErrorCode | None) -> None:
    request = Heartbeat(**{"group_id": GROUP, "member_id": "m", "epoch": 0, **JOIN, **fields})
    if code is None:
        check_request(request, SETTINGS.assignors)
        return
    with pytest.raises(ProtocolError) as refused:
        check_request(request, SETTINGS.assignors)
    assert refused.value.code is code


# --- joining --------------------------------------------------------------------------------------------------------


def test_the_first_member_gets_everything_in_epoch_two() -> None:
    group = GroupAtWork()
    response = group.join("m", "foo")
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("m", 2, 5000)
    assert assigned(response) == {1: {0, 1, 2, 3, 4, 5}}
    assert group.kinds == [5, 3, 7, 6, 8]
    assert group.last.timers == [Timer("rebalance", "m"), Timer("session", "m", 45_000)]
    assert group.state == "Stable"


def test_a_member_without_topics_stays_in_the_first_epoch_and_needs_no_target() -> None:
    group = GroupAtWork()
    response = group.join("m", topics=[])
    assert (response.member_epoch, assigned(response), group.kinds) == (1, {}, [5, 8])


def test_a_topic_that_does_not_exist_is_assigned_when_it_does() -> None:
    group = GroupAtWork()
    response = group.join("m", "later")
    assert (response.member_epoch, assigned(response)) == (2, {})
    group.topics.create("later", 2)
    assert group.beat("m", 2).assignment is None, "nobody has said that it changed"
    group.group.refresh_at_ms = 0
    response = group.beat("m", 2)
    assert (response.member_epoch, assigned(response)) == (3, {3: {0, 1}})
    assert group.kinds == [3, 7, 6, 8]


def test_old_clients_get_a_member_id() -> None:
    group = GroupAtWork()
    assert group.join("", "foo", version=0).member_id == "made-1"
    assert group.group.member("made-1") is not None


def test_a_second_member_gets_what_the_first_gives_up_and_only_then() -> None:
    group = GroupAtWork()
    first = group.join("a", "foo")
    second = group.join("b", "foo")
    assert (second.member_epoch, assigned(second)) == (3, {})
    assert group.kinds == [5, 3, 7, 7, 6, 8]
    assert group.member("b").state is MemberState.UNRELEASED_PARTITIONS
    assert group.state == "Reconciling"

    told = group.beat("a", 2)
    assert (told.member_epoch, assigned(told)) == (2, {1: {0, 1, 2}})
    assert group.kinds == [8]
    assert group.timers["rebalance", "a"] == Timer("rebalance", "a", REBALANCE_MS, 2)
    assert group.beat("a", 2, owned=owned(first)).assignment is None
    assert group.kinds == [], "it still owns what it must give up"
    assert assigned(group.beat("b", 3)) is None

    done = group.beat("a", 2, owned=owned(told))
    assert (done.member_epoch, done.assignment) == (3, None)
    assert ("rebalance", "a") not in group.timers
    got = group.beat("b", 3)
    assert (got.member_epoch, assigned(got)) == (3, {1: {3, 4, 5}})
    assert group.state == "Stable"
    assert group.beat("b", 3).assignment is None
    assert group.kinds == [], "a quiet heartbeat writes nothing"


def test_a_member_that_joins_again_keeps_its_epoch_and_its_assignment() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    again = group.join("m", "foo")
    assert (again.member_epoch, assigned(again), group.kinds) == (2, {1: set(range(6))}, [])


def test_a_full_request_is_told_its_assignment() -> None:
    group = GroupAtWork()
    first = group.join("m", "foo")
    full: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "topics": ["foo"], "owned": owned(first)}
    assert assigned(group.beat("m", 2, **full)) == {1: set(range(6))}
    for field, null in (("rebalance_timeout_ms", -1), ("topics", None), ("owned", None)):
        assert group.beat("m", 2, **{**full, field: null}).assignment is None


def test_the_group_takes_no_more_members_than_the_setting_allows() -> None:
    group = GroupAtWork(settings=SETTINGS._replace(max_size=1))
    group.join("a", "foo", instance_id="i")
    assert group.refused(group.join, "b", "foo") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join("a", "foo").member_epoch == 2
    group.leave("a", instance="i", epoch=-2)
    assert group.join("c", "foo", instance_id="i").member_epoch == 2


# --- epochs ---------------------------------------------------------------------------------------------------------


def test_who_is_unknown_or_of_a_wrong_epoch_is_refused() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    assert group.refused(group.beat, "x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.refused(group.beat, "m", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refused(group.beat, "m", 1) is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("partitions", "is_accepted"),
    [({}, True), ({FOO: frozenset((0, 1))}, True), ({FOO: frozenset((3,))}, False), (None, False)],
)
def test_the_previous_epoch_is_accepted_of_who_owns_nothing_else(
    partitions: Partitions | None, is_accepted: bool
) -> None:
    group = GroupAtWork()
    group.join("a", "foo")
    group.join("b", "foo")
    told = group.beat("a", 2)
    assert group.beat("a", 2, owned=owned(told)).member_epoch == 3, "this response is lost"
    if is_accepted:
        assert group.beat("a", 2, owned=partitions).member_epoch == 3
    else:
        assert group.refused(group.beat, "a", 2, owned=partitions) is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.refused(group.beat, "a", 1, owned={}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_a_state_of_a_later_release_must_rejoin() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    group.carry_out(
        group.last._replace(records=[assignment_record(GROUP, group.member("m")._replace(state=MemberState.UNKNOWN))])
    )
    assert group.refused(group.beat, "m", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert assigned(group.join("m", "foo")) == {1: set(range(6))}
    assert group.member("m").state is MemberState.STABLE


# --- changes --------------------------------------------------------------------------------------------------------


def test_a_new_subscription_takes_effect_at_once() -> None:
    group = GroupAtWork()
    first = group.join("m", "foo")
    told = group.beat("m", 2, topics=["bar"])
    assert (told.member_epoch, assigned(told)) == (2, {})
    assert group.kinds == [5, 3, 7, 6, 8]
    assert group.beat("m", 2, owned=owned(first)).assignment is None
    got = group.beat("m", 2, owned={})
    assert (got.member_epoch, assigned(got)) == (3, {2: {0, 1, 2}})


def test_the_same_topics_in_another_order_or_twice_are_no_new_subscription() -> None:
    group = GroupAtWork()
    group.join("m", "foo", "bar")
    group.beat("m", 2, topics=["bar", "foo", "bar"])
    assert group.kinds == []


@pytest.mark.parametrize(
    "fields", [{"rack_id": "r"}, {"client_id": "c"}, {"client_host": "/::1"}, {"rebalance_timeout_ms": 1}]
)
def test_what_no_assignment_depends_on_is_written_without_a_new_epoch(fields: dict[str, Any]) -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    assert group.beat("m", 2, **fields).member_epoch == 2
    assert group.kinds == [5]


def test_the_assignor_that_most_members_want_assigns() -> None:
    group = GroupAtWork(FakeTopics(foo=4))
    group.join("a", "foo", assignor="range")
    assert group.group.epoch == 2, "range is the first of the known ones"
    group.beat("a", 2, assignor="uniform")
    assert (group.group.epoch, group.kinds) == (3, [5, 3, 6, 8])
    group.join("b", "foo", assignor="range")
    group.join("c", "foo", assignor="range")
    assert group.group.preferred_assignor(SETTINGS.assignors) == "range"
    group.fence("b", "c")
    assert group.group.preferred_assignor(SETTINGS.assignors) == "uniform"
    assert group.group.preferred_assignor(("range",)) == "range", "uniform is no longer known"


def test_the_metadata_is_looked_at_again_after_a_change_and_only_a_new_hash_makes_a_new_epoch() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    group.topics.counts["bar"] = 9
    group.group.refresh_at_ms = 0
    assert (group.beat("m", 2).member_epoch, group.kinds) == (2, [])
    group.topics.counts["foo"] = 7
    assert (group.beat("m", 2).member_epoch, group.kinds) == (2, []), "nobody has said that it changed"
    group.group.refresh_at_ms = 0
    response = group.beat("m", 2)
    assert (response.member_epoch, assigned(response)) == (3, {1: set(range(7))})
    group.topics.rack = "other"
    group.group.refresh_at_ms = 0
    assert (group.beat("m", 3).member_epoch, group.kinds) == (4, [3, 6, 8])


def test_a_deleted_topic_is_given_up_without_a_word_of_the_client() -> None:
    group = GroupAtWork()
    group.join("m", "foo", "bar")
    group.topics.delete("bar")
    group.group.refresh_at_ms = 0
    told = group.beat("m", 2)
    assert assigned(told) == {1: set(range(6))}
    assert group.member("m").state is MemberState.UNREVOKED_PARTITIONS
    assert group.beat("m", 2, owned=owned(told)).member_epoch == 3


def test_a_topic_that_is_created_anew_has_another_id_and_is_assigned_anew() -> None:
    group = GroupAtWork()
    group.join("m", "bar")
    group.topics.delete("bar")
    group.topics.create("bar", 2)
    group.group.refresh_at_ms = 0
    assert assigned(group.beat("m", 2)) == {}
    assert assigned(group.beat("m", 2, owned={})) == {3: {0, 1}}


def test_partition_metadata_of_an_earlier_release_is_deleted() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    group.group.has_partition_metadata = True
    group.group.refresh_at_ms = 0
    group.beat("m", 2)
    assert group.kinds == [-4]
    assert not group.group.has_partition_metadata


def test_a_classic_member_that_sends_a_heartbeat_becomes_one_of_this_protocol() -> None:
    group = GroupAtWork()
    group.join("m", "foo")
    classic = group.member("m")._replace(classic=ClassicMemberMetadata(10_000, (("range", b""),)))
    group.carry_out(group.last._replace(records=[member_record(GROUP, classic)]))
    assert group.group.classic_members == 1
    group.join("m", "foo")
    assert group.group.classic_members == 0
    assert {Timer("join", "m"), Timer("sync", "m")} <= set(group.last.timers)


# --- the assignment interval ----------------------------------------------------------------------------------------


def test_members_that_join_within_the_interval_are_assigned_together() -> None:
    group = GroupAtWork(settings=SETTINGS._replace(assignment_interval_ms=1000))
    group.join("a", "foo")
    assert not group.last.assign
    for name in "bc":
        response = group.join(name, "foo")
        assert (response.member_epoch, assigned(response)) == (2, {})
        assert group.kinds == [5, 3, 8]
        assert group.last.assign
    assert group.state == "Assigning"
    group.now_ms += 999
    assert group.beat("a", 2).assignment is None
    group.now_ms += 1
    told = group.beat("a", 2)
    assert assigned(told) == {1: {0, 1}}
    assert group.kinds == [7, 7, 7, 6, 8]
    assert not group.last.assign


def test_the_clock_that_goes_back_does_not_delay_a_target() -> None:
    group = GroupAtWork(settings=SETTINGS._replace(assignment_interval_ms=1000))
    group.join("a", "foo")
    group.now_ms -= 100_000
    group.join("b", "foo")
    assert group.group.target_epoch == 3


def test_a_timer_assigns_without_a_heartbeat() -> None:
    group = GroupAtWork(settings=SETTINGS._replace(assignment_interval_ms=1000))
    group.join("a", "foo")
    group.join("b", "foo")
    group.now_ms += 1000
    group.assign()
    assert group.kinds == [7, 7, 6]
    assert assigned(group.beat("a", 2)) == {1: {0, 1, 2}}


def test_a_large_group_is_not_assigned_within_a_heartbeat() -> None:
    group = GroupAtWork(FakeTopics(foo=2001))
    response = group.join("a", "foo")
    assert (response.member_epoch, assigned(response), group.last.assign) == (1, {}, True)
    group.assign()
    response = group.beat("a", 1)
    assert (response.member_epoch, len(assigned(response)[1])) == (2, 2001)  # type: ignore[index]
    assert group.group.target_of("a") != NOTHING


def test_the_members_of_a_group_name_a_limited_number_of_topics_together() -> None:
    group = GroupAtWork()
    half = [f"t{number}" for number in range(MOST_NAMED // 2)]
    group.join("a", *half)
    group.join("b", *half, "foo")
    group.join("c", *(f"u{number}" for number in range(MOST_NAMED // 2 - 1)))
    assert group.refused(group.join, "d", "one too many") is ErrorCode.POLICY_VIOLATION
    group.join("d", "foo")
    group.leave("c")
    group.join("e", "one that is not")


def test_a_group_of_many_topics_that_do_not_exist_is_not_assigned_within_a_heartbeat() -> None:
    group = GroupAtWork()
    group.join("a", "foo", *(f"t{number}" for number in range(LARGEST_AT_ONCE)))
    assert group.group.target_epoch < group.group.epoch
    group.assign()
    assert group.group.target_epoch == group.group.epoch
