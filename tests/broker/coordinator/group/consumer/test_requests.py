"""Heartbeats of consumer groups in a shard: the log, sessions, revocations, assignments and expressions."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.group.admin import GroupOverview, delete_group, overviews
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.target import LARGEST_AT_ONCE
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.offsets.commits import commit_offsets
from odradek.broker.coordinator.group.offsets.removal import expire_offsets
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.shard import AppendFailed, Decision
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import REBALANCE_MS, SETTINGS, FakeTopics, assigned, owned
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork, kinds
from tests.broker.coordinator.group.harness import GROUP
from tests.broker.coordinator.group.offsets.offset_log import committed

SESSION_MS = SETTINGS.session_timeout_ms
INTERVAL_MS = 1000


@pytest.fixture
def shard() -> ShardAtWork:
    return ShardAtWork()


def with_interval(topics: FakeTopics | None = None, **more: int) -> ShardAtWork:
    return ShardAtWork(topics, SETTINGS._replace(assignment_interval_ms=INTERVAL_MS), **more)


# --- the log ------------------------------------------------------------------------------------------------------


def test_a_response_waits_for_its_records(shard: ShardAtWork) -> None:
    shard.log.is_held = True
    answers = shard.send("a", 0, rebalance_timeout_ms=REBALANCE_MS, owned={}, topics=("foo",))
    assert (answers, shard.consumer("a").epoch) == ([], 2), "replayed, and not replicated yet"
    shard.log.settle()
    assert [assigned(answer) for answer in answers] == [{1: set(range(6))}]


def test_what_is_not_replicated_is_refused_late(shard: ShardAtWork) -> None:
    shard.log.is_held = True
    answers = shard.send("a", 0, rebalance_timeout_ms=REBALANCE_MS, owned={}, topics=("foo",))
    shard.log.settle(ErrorCode.REQUEST_TIMED_OUT)
    assert isinstance(answers[0], AppendFailed)
    assert answers[0].code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_heartbeat_whose_records_are_not_written_leaves_no_trace(shard: ShardAtWork) -> None:
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.refused_beat("a", 0, rebalance_timeout_ms=1, owned={}, topics=("foo",)) == (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )
    assert (shard.shard.groups, shard.waiting) == ({}, (0, 0))


def test_heartbeats_that_change_nothing_write_nothing(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    records = len(shard.log.records)
    assert shard.beat("a", 2).member_epoch == 2
    assert len(shard.log.records) == records


def test_changes_of_the_state_are_logged(shard: ShardAtWork) -> None:
    with capture_logs() as events:
        shard.join_consumer("a", "foo")
        shard.leave_consumer("a")
        delete_group(shard.shard, GROUP, lambda _: None)
    changes = [(each["old"], each["new"]) for each in events if each["event"] == "group state changed"]
    assert changes == [("Empty", "Stable"), ("Stable", "Empty"), ("Empty", "Dead")]


def test_an_unknown_group_has_no_members(shard: ShardAtWork) -> None:
    for epoch in (1, -1):
        assert shard.refused_beat("a", epoch) is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.shard.groups == {}


# --- sessions -----------------------------------------------------------------------------------------------------


def test_a_silent_member_is_removed(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    shard.join_consumer("b", "foo")
    shard.advance(SESSION_MS // 2)
    shard.beat("a", 2)
    shard.advance(SESSION_MS // 2)
    assert list(shard.consumer_group.members_by_id) == ["a"]
    assert kinds(shard.log.records[-4:]) == [-8, -7, -5, 3]
    assert shard.refused_beat("b", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    shard.advance(SESSION_MS)
    assert (shard.consumer_group.state_name, shard.waiting) == ("Empty", (0, 0))


def test_a_member_whose_removal_is_not_written_has_another_session(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.advance(SESSION_MS)
    assert shard.consumer_group.size == 1
    shard.log.failure = None
    shard.advance(SESSION_MS)
    assert shard.consumer_group.size == 0


def test_all_sessions_begin_anew_when_the_group_is_loaded(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    shard.advance(SESSION_MS - 1000)
    shard.restart()
    shard.advance(SESSION_MS - 1000)
    assert shard.beat("a", 2).member_epoch == 2
    shard.restart()
    shard.advance(SESSION_MS)
    assert shard.consumer_group.state_name == "Empty"


def test_a_static_member_that_is_away_is_removed_in_the_end(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo", instance_id="i")
    shard.beat("a", -2, instance_id="i")
    shard.advance(SESSION_MS - 1000)
    assert shard.consumer("a").is_away
    shard.advance(1000)
    assert shard.consumer_group.size == 0


def test_an_unloaded_shard_keeps_no_timers(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    session = shard.consumer_group.session_of("a")
    assert session is not None
    assert (session.timeout_ms, list(shard.consumer_group.sessions())) == (SESSION_MS, [session.heartbeat])
    shard.shard.unload()
    assert (shard.waiting, shard.timer.size) == ((0, 0), 0)


# --- revocations --------------------------------------------------------------------------------------------------


def revoking(shard: ShardAtWork) -> None:
    """Lets member "a" give up partitions to "b"."""
    shard.join_consumer("a", "foo")
    shard.join_consumer("b", "foo")
    shard.beat("a", 2)
    assert shard.consumer("a").state is MemberState.UNREVOKED_PARTITIONS
    assert shard.consumer("a").waits_for == "its client to give up partitions"
    assert shard.consumer("b").waits_for == "other members to give up partitions"
    assert shard.waiting == (2, 1)


def stay(shard: ShardAtWork, ms: int) -> None:
    """Members send heartbeats that give nothing up."""
    for _ in range(0, ms, 5000):
        shard.advance(5000)
        for member_id in list(shard.consumer_group.members_by_id):
            shard.beat(member_id, shard.consumer(member_id).epoch)


def test_a_member_that_keeps_partitions_is_removed_at_its_rebalance_timeout(shard: ShardAtWork) -> None:
    revoking(shard)
    stay(shard, REBALANCE_MS - 5000)
    assert shard.consumer_group.size == 2
    stay(shard, 5000)
    assert list(shard.consumer_group.members_by_id) == ["b"]
    assert assigned(shard.beat("b", 3, rebalance_timeout_ms=1, topics=("foo",), owned={})) == {1: set(range(6))}


def test_a_member_that_gives_up_in_time_stays(shard: ShardAtWork) -> None:
    revoking(shard)
    kept = {topic: frozenset(partitions) for topic, partitions in shard.consumer("a").assigned.items()}
    assert shard.beat("a", 2, owned=kept).member_epoch == 3
    assert shard.waiting == (2, 0)
    stay(shard, 2 * REBALANCE_MS)
    assert shard.consumer_group.state_name == "Stable"


def test_the_rebalance_timeout_begins_anew_when_the_group_is_loaded(shard: ShardAtWork) -> None:
    revoking(shard)
    stay(shard, REBALANCE_MS - 5000)
    shard.restart()
    assert shard.waiting == (2, 1)
    stay(shard, REBALANCE_MS - 5000)
    assert shard.consumer_group.size == 2
    stay(shard, 5000)
    assert shard.consumer_group.size == 1


# --- the target assignment ----------------------------------------------------------------------------------------


def test_a_timer_assigns_when_the_interval_has_passed() -> None:
    shard = with_interval()
    shard.join_consumer("a", "foo")
    assert assigned(shard.join_consumer("b", "foo")) == {}
    assert (shard.consumer_group.epoch, shard.consumer_group.target_epoch) == (3, 2)
    shard.advance(INTERVAL_MS - 1)
    assert shard.work() == 0
    shard.advance(1)
    assert shard.work() == 1
    assert (shard.consumer_group.state_name, shard.consumer_group.target_epoch) == ("Reconciling", 3)


def test_a_heartbeat_assigns_before_the_timer_does() -> None:
    shard = with_interval()
    shard.join_consumer("a", "foo")
    shard.join_consumer("b", "foo")
    shard.clock.advance(INTERVAL_MS)
    shard.beat("b", 2)
    assert shard.consumer_group.target_epoch == 3
    shard.settled()
    assert shard.work() == 0


def test_members_that_die_together_lead_to_one_assignment(shard: ShardAtWork) -> None:
    for number in range(10):
        shard.join_consumer(f"m{number}", "foo")
    shard.advance(SESSION_MS // 2)
    shard.beat("m0", 2)
    records = len(shard.log.records)
    shard.advance(SESSION_MS // 2 + 10)
    shard.work()
    assert (shard.consumer_group.size, kinds(shard.log.records[records:]).count(6)) == (1, 1)
    assert shard.consumer_group.target_epoch == shard.consumer_group.epoch


def large() -> ShardAtWork:
    shard = ShardAtWork(FakeTopics(foo=LARGEST_AT_ONCE + 1))
    shard.join_consumer("a", "foo")
    shard.advance(1)
    assert shard.work() == 1
    shard.beat("a", 1)
    return shard


def test_a_large_group_is_assigned_beside_the_requests() -> None:
    shard = large()
    assert assigned(shard.beat("a", 2, topics=("foo",), owned={}, rebalance_timeout_ms=9)) == {
        1: set(range(LARGEST_AT_ONCE + 1))
    }
    assert assigned(shard.join_consumer("b", "foo")) == {}
    shard.advance(1)
    shard.join_consumer("c", "foo")
    shard.advance(1)
    assert len(shard.waiting_work) == 1, "one run of a group at a time"
    assert shard.work() == 1
    assert (shard.consumer_group.epoch, shard.consumer_group.target_epoch) == (4, 3)
    shard.advance(1)
    assert shard.work() == 1
    assert (shard.consumer_group.target_epoch, len(shard.consumer_group.targets)) == (4, 3)


def test_what_has_been_assigned_of_a_group_that_is_gone_is_dropped() -> None:
    shard = large()
    shard.join_consumer("b", "foo")
    shard.advance(1)
    for member_id in ("a", "b"):
        shard.leave_consumer(member_id)
    records = len(shard.log.records)
    assert shard.work() == 1
    shard.join_consumer("b", "foo")
    shard.advance(1)
    shard.restart()
    assert shard.work() == 1
    assert kinds(shard.log.records[records:]).count(6) == 0


def test_a_target_that_a_heartbeat_has_overtaken_is_dropped(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo", regex="bar")
    assert shard.work() == 1
    shard.advance(1)
    assert (shard.consumer_group.epoch, shard.consumer_group.target_epoch, len(shard.waiting_work)) == (3, 2, 1)
    assert shard.join_consumer("b", "foo").member_epoch == 4
    assert shard.work() == 1
    assert (shard.consumer_group.target_epoch, sorted(shard.consumer_group.targets)) == (4, ["a", "b"])
    assert shard.beat("b", 4).member_epoch == 4


def test_a_target_that_is_overtaken_while_it_is_written_is_dropped() -> None:
    shard = with_interval(most_bytes=200)
    for number in range(6):
        shard.join_consumer(f"m{number}", "foo")
    shard.advance(INTERVAL_MS)
    act = shard.log.act

    def overtaken(written: GroupShard, decision: Decision) -> None:
        shard.log.act = act  # type: ignore[method-assign]
        act(written, decision)
        shard.clock.advance(2 * INTERVAL_MS)
        shard.join_consumer("m7", "foo")

    shard.log.act = overtaken  # type: ignore[assignment, method-assign]
    assert shard.work() == 1
    assert (shard.consumer_group.epoch, shard.consumer_group.target_epoch) == (8, 8)


def test_a_target_that_is_not_written_is_computed_again() -> None:
    shard = large()
    shard.join_consumer("b", "foo")
    shard.advance(1)
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.work() == 1
    shard.log.failure = None
    shard.advance(1000)
    assert shard.work() == 1
    assert shard.consumer_group.target_epoch == 3


def test_a_large_target_is_written_in_several_batches_and_completed_by_the_last() -> None:
    shard = with_interval(most_bytes=200)
    for number in range(6):
        shard.join_consumer(f"m{number}", "foo")
    batches: list[list[int]] = []
    act = shard.log.act

    def noted(shard: GroupShard, decision: Decision) -> None:
        batches.append(kinds(decision.records))
        act(shard, decision)

    shard.log.act = noted  # type: ignore[method-assign]
    shard.advance(INTERVAL_MS)
    assert shard.work() == 1
    assert len(batches) > 1
    assert [kind for batch in batches for kind in batch] == [7] * 6 + [6]
    assert shard.consumer_group.state_name == "Reconciling"


def test_a_target_is_not_written_over_a_later_one() -> None:
    """A group that became small while its target was computed is assigned within a heartbeat."""
    shard = large()
    shard.join_consumer("b", "foo")
    shard.advance(1)
    shard.topics.delete("foo")
    shard.consumer_group.refresh_at_ms = 0
    shard.beat("a", shard.consumer("a").epoch, owned={})
    later = shard.consumer_group.target_epoch
    assert later == shard.consumer_group.epoch
    assert shard.work() == 1
    assert shard.consumer_group.target_epoch == later
    assert shard.consumer_group.targets == {"a": {}, "b": {}}


def test_an_expression_is_resolved_beside_the_requests(shard: ShardAtWork) -> None:
    shard.is_visible = lambda name: name != "bar"
    response = shard.join_consumer("a", regex=".*")
    assert (assigned(response), response.member_epoch, shard.is_resolving()) == ({}, 1, True)
    shard.beat("a", 1)
    assert len(shard.waiting_work) == 1, "one run of a group at a time"
    assert shard.work() == 1
    assert (shard.is_resolving(), shard.consumer_group.subscriptions.names()) == (False, frozenset({"foo"}))
    response = shard.beat("a", 1)
    assert (assigned(response), response.member_epoch) == ({1: set(range(6))}, 2)


def test_new_topics_are_found(shard: ShardAtWork) -> None:
    shard.join_consumer("a", regex="f.*")
    shard.work()
    shard.beat("a", 1)
    shard.topics.create("fresh", 1)
    shard.advance(11_000)
    shard.beat("a", 2)
    assert shard.work() == 1
    assert assigned(shard.beat("a", 2)) == {1: set(range(6)), 3: {0}}
    shard.advance(11_000)
    shard.beat("a", 3)
    assert shard.work() == 0


def test_expressions_whose_results_do_not_fit_in_a_batch_are_resolved_in_several_runs() -> None:
    shard = ShardAtWork(FakeTopics(foo=1, fox=1), most_bytes=12)
    for name, regex in (("a", "f.*"), ("b", "fo."), ("c", ".*o.")):
        shard.join_consumer(name, regex=regex)
    subscriptions = shard.consumer_group.subscriptions

    def run() -> list[int]:
        """Returns how many topics each expression has matched, after what a run has resolved."""
        shard.work()
        shard.advance(11_000)
        for name in "abc":
            shard.beat(name, shard.consumer(name).epoch, owned={})
        return sorted(len(each.topics) for each in subscriptions.resolved.values())

    assert [run() for _ in range(3)] == [[2], [2, 2], [2, 2, 2]]
    shard.topics.create("fog", 1)
    assert [run() for _ in range(4)] == [[2, 2, 2], [2, 2, 3], [2, 3, 3], [3, 3, 3]]
    assert not shard.is_resolving(), "all are resolved among these topics"
    shard.topics.create("for", 1)
    run(), run()
    shard.topics.create("fob", 1)
    assert [run() for _ in range(7)][-1] == [5, 5, 5], "the round goes on, and the next one has what came meanwhile"
    assert not shard.is_resolving()


def test_the_result_for_a_group_that_moved_away_is_dropped(shard: ShardAtWork) -> None:
    shard.join_consumer("a", regex="f.*")
    shard.restart()
    records = len(shard.log.records)
    shard.work()
    assert len(shard.log.records) == records
    shard.beat("a", 1)
    assert shard.work() == 1
    assert kinds(shard.log.records[records:]) == [16, 3]


def test_a_resolution_that_fails_is_asked_for_again(shard: ShardAtWork) -> None:
    def fail(_: str) -> bool:
        raise RuntimeError("planted")

    shard.is_visible = fail
    shard.join_consumer("a", regex="f.*")
    with capture_logs() as events:
        shard.work()
    assert [each["event"] for each in events] == ["regular expressions not resolved"]
    shard.is_visible = lambda _: True
    shard.beat("a", 1)
    assert shard.work() == 1
    assert shard.consumer_group.subscriptions.names() == {"foo"}


# --- groups of both kinds -----------------------------------------------------------------------------------------


def commit(shard: ShardAtWork, topic: str) -> None:
    outcomes: list[ProtocolError | None] = []
    commit_offsets(shard.shard, Committer(GROUP), {topic: {0: committed(5)}}, outcomes.append)
    assert outcomes == [None]


def test_a_member_takes_the_place_of_a_classic_group_that_is_empty(shard: ShardAtWork) -> None:
    (member_id,) = shard.stable()
    shard.leave(member_id)
    commit(shard, "foo")
    records = len(shard.log.records)
    shard.join_consumer("a", "foo")
    assert kinds(shard.log.records[records:]) == [-2, 5, 3, 7, 6, 8]
    for _ in range(2):
        assert isinstance(shard.shard.groups[GROUP], ConsumerGroup)
        assert shard.shard.offsets.count == 1
        shard.restart()


def test_a_member_takes_the_place_of_a_group_that_only_stores_offsets(shard: ShardAtWork) -> None:
    commit(shard, "foo")
    shard.join_consumer("a", "foo")
    shard.restart()
    assert (shard.consumer_group.size, shard.shard.offsets.count) == (1, 1)


def test_a_classic_member_takes_the_place_of_a_consumer_group_that_is_empty(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    shard.leave_consumer("a")
    commit(shard, "foo")
    records = len(shard.log.records)
    assert shard.join("stranger").error is ErrorCode.UNKNOWN_MEMBER_ID
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (len(shard.log.records), shard.consumer_group.epoch) == (records, 3)
    shard.log.failure = None
    assert shard.stable()
    assert kinds(shard.log.records[records:]) == [-6, -4, -3, 2]
    for _ in range(2):
        assert isinstance(shard.shard.groups[GROUP], ClassicGroup)
        assert (shard.group.size, shard.shard.offsets.count) == (1, 1)
        shard.restart()


def test_a_late_tombstone_of_a_classic_group_deletes_no_other_group(shard: ShardAtWork) -> None:
    (member_id,) = shard.stable()
    shard.leave(member_id)
    tombstone = shard.group.tombstones()[0]
    shard.join_consumer("a", "foo")
    shard.log.records.append(tombstone)
    shard.restart()
    assert shard.consumer_group.size == 1


# --- their end ----------------------------------------------------------------------------------------------------


def test_a_group_without_members_is_deleted(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    done: list[ErrorCode] = []
    with pytest.raises(ProtocolError) as refused:
        delete_group(shard.shard, GROUP, done.append)
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    shard.leave_consumer("a")
    commit(shard, "foo")
    records = len(shard.log.records)
    delete_group(shard.shard, GROUP, done.append)
    assert (done, shard.shard.groups, shard.waiting) == ([ErrorCode.NONE], {}, (0, 0))
    assert kinds(shard.log.records[records:]) == [-1, -6, -4, -3]
    shard.restart()
    assert (shard.shard.groups, shard.shard.offsets.count) == ({}, 0)


def test_offsets_of_topics_that_nobody_is_subscribed_to_expire(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    commit_offsets(
        shard.shard, Committer(GROUP, 2, "a"), {"foo": {0: committed(5)}, "bar": {0: committed(5)}}, lambda _: None
    )
    now_ms, retention_ms = 10**15, 1000
    assert sum(expire_offsets([shard.shard], now_ms, retention_ms)) == 1
    assert list(shard.shard.offsets.committed(GROUP)) == ["foo"]
    shard.leave_consumer("a")
    assert sum(expire_offsets([shard.shard], now_ms, retention_ms)) == 1
    assert shard.shard.groups == {}
    shard.restart()
    assert shard.shard.groups == {}


def test_an_empty_group_without_offsets_goes_with_the_next_check(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    shard.leave_consumer("a")
    assert sum(expire_offsets([shard.shard], 0, 1000)) == 0
    assert shard.shard.groups == {}
    assert kinds(shard.log.records[-3:]) == [-6, -4, -3]


def test_groups_are_listed_by_type_and_state(shard: ShardAtWork) -> None:
    shard.join_consumer("a", "foo")
    groups = list(shard.shard.groups.values())
    listed = GroupOverview(GROUP, "consumer", "consumer", "Stable")
    assert overviews(groups, {"Stable"}, {"consumer"}) == [listed]
    assert overviews(groups, {"Empty"}, set()) == overviews(groups, set(), {"classic"}) == []


def test_what_a_client_owns_is_taken_from_its_response(shard: ShardAtWork) -> None:
    response = shard.join_consumer("a", "foo", "bar")
    assert shard.beat("a", 2, owned=owned(response)).assignment is None
