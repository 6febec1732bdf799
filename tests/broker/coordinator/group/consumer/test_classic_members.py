"""Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

import time
from typing import Any

import pytest

from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.embedded_protocol import MOST_BYTES, MOST_TOPICS, by_topic_id
from odradek.broker.coordinator.group.consumer.member import ClassicMemberMetadata
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.settings import MigrationPolicy
from odradek.broker.coordinator.group.group import Committer
from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics, assigned
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork, kinds
from tests.broker.coordinator.group.harness import (
    REBALANCE_MS,
    SESSION_MS,
    SentRequest,
    owning_subscription,
    subscription,
)

SHARE = ConsumerProtocolSubscription.TopicPartition(topic="foo", partitions=[0])
SIX = {0, 1, 2, 3, 4, 5}


@pytest.fixture
def shard() -> ShardAtWork:
    """The group has the member "a" of the newer protocol, with all of foo, in epoch 2."""
    shard = ShardAtWork()
    assert assigned(shard.join_consumer("a", "foo")) == {1: SIX}
    return shard


def joined(shard: ShardAtWork, member_id: str = "c", *topics: str, has: tuple[int, ...] = (), **more: Any) -> Any:
    """Returns the response to the JoinGroup of a client that owns partitions of foo."""
    metadata = owning_subscription(topics or ("foo",), {"foo": has} if has else {})
    return shard.join(member_id, protocols={"range": metadata}, **more).response


def synced(sent: SentRequest) -> dict[str, list[int]]:
    """Returns the partitions in a SyncGroup response."""
    assert sent.error is ErrorCode.NONE
    _, assignment = decode_versioned(ConsumerProtocolAssignment, sent.response.assignment)
    return {each.topic: each.partitions for each in assignment.assigned_partitions}


# --- JoinGroup ----------------------------------------------------------------------------------------------------


def test_a_classic_client_becomes_a_member_at_once(shard: ShardAtWork) -> None:
    records = len(shard.log.records)
    response = joined(shard)
    assert (response.error_code, response.generation_id, response.member_id) == (0, 3, "c")
    assert (response.protocol_type, response.protocol_name, response.leader) == ("consumer", "range", "")
    assert response.members == []
    member = shard.consumer("c")
    assert member.classic == ClassicMemberMetadata(SESSION_MS, (("range", subscription("foo")),))
    assert (member.subscribed_topics, member.rebalance_timeout_ms) == (frozenset(("foo",)), REBALANCE_MS)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.state is MemberState.UNRELEASED_PARTITIONS
    assert kinds(shard.log.records[records:]) == [5, 3, 7, 7, 6, 8]


def test_the_answer_to_a_join_waits_for_its_records(shard: ShardAtWork) -> None:
    shard.log.is_held = True
    sent = shard.join("c", protocols={"range": subscription("foo")})
    assert not sent.is_answered
    shard.log.settle(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (sent.error, sent.response.member_id) == (ErrorCode.NOT_COORDINATOR, "")


def test_a_join_that_is_not_written_leaves_no_trace(shard: ShardAtWork) -> None:
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    waiting = shard.waiting
    assert joined(shard).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (shard.consumer_group.size, shard.waiting) == (1, waiting)


@pytest.mark.parametrize("session_ms", [0, 10**9])
def test_a_session_timeout_has_bounds(shard: ShardAtWork, session_ms: int) -> None:
    assert joined(shard, session_ms=session_ms).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_client_that_has_no_id_is_given_one(shard: ShardAtWork) -> None:
    response = joined(shard, "", known_ids=True)
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert len(response.member_id) == 22
    assert shard.consumer_group.size == 1
    assert joined(shard, response.member_id, known_ids=True).member_id == response.member_id


def test_an_old_client_that_has_no_id_becomes_a_member(shard: ShardAtWork) -> None:
    response = joined(shard, "")
    assert response.member_id in shard.consumer_group.members_by_id


def test_where_groups_keep_their_protocol_no_classic_client_joins(shard: ShardAtWork) -> None:
    shard.consumer_settings = SETTINGS._replace(migration_policy=MigrationPolicy.DISABLED)
    assert joined(shard).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE, MigrationPolicy.DOWNGRADE])
def test_where_groups_change_their_protocol_one_way_classic_clients_join(policy: MigrationPolicy) -> None:
    shard = ShardAtWork(settings=SETTINGS._replace(migration_policy=policy))
    shard.join_consumer("a", "foo")
    assert joined(shard).error_code == 0


def test_a_full_group_takes_no_classic_client_but_its_members(shard: ShardAtWork) -> None:
    joined(shard, "c")
    joined(shard, "", instance="i")
    shard.consumer_settings = SETTINGS._replace(max_size=3)
    assert joined(shard, "d").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(shard, "", instance="j").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(shard, "c").error_code == 0
    assert joined(shard, "", instance="i").error_code == 0


def test_a_protocol_must_be_known_to_all_classic_members(shard: ShardAtWork) -> None:
    foo = subscription("foo")
    assert shard.join("c", protocol_type="connect", protocols={"range": foo}).error is (
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    )
    assert shard.join("c", protocols={}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    shard.join("c", protocols={"range": foo, "sticky": foo})
    assert shard.join("d", protocols={"mine": foo}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.join("d", protocols={"mine": foo, "sticky": foo}).response.protocol_name == "mine"
    assert shard.join("e", protocols={"range": foo}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x00\x00\x00\x07"])
def test_a_subscription_must_be_one(shard: ShardAtWork, metadata: bytes) -> None:
    assert shard.join("c", protocols={"range": metadata}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.consumer_group.size == 1


@pytest.mark.parametrize(
    "large",
    [
        ConsumerProtocolSubscription(topics=["foo"] * (MOST_TOPICS + 1)),
        ConsumerProtocolSubscription(topics=["foo"], owned_partitions=[SHARE] * (MOST_TOPICS + 1)),
        ConsumerProtocolSubscription(topics=["foo"], user_data=bytes(MOST_BYTES)),
    ],
    ids=["topics", "owned topics", "bytes"],
)
def test_a_subscription_has_a_limit(shard: ShardAtWork, large: ConsumerProtocolSubscription) -> None:
    metadata = encode_versioned(large, 1)
    assert shard.join("c", protocols={"range": metadata}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.consumer_group.size == 1


def test_partitions_of_a_topic_that_is_named_again_and_again_are_read_at_once() -> None:
    names = FakeTopics(foo=6)
    shares = [ConsumerProtocolSubscription.TopicPartition(topic="foo", partitions=[n]) for n in range(60_000)]
    begin = time.thread_time()
    assert by_topic_id(shares, names) == {names.topic_id("foo"): frozenset(range(60_000))}
    assert time.thread_time() - begin < 1


def test_a_subscription_that_no_record_can_have_is_refused() -> None:
    shard = ShardAtWork(most_bytes=500)
    shard.join_consumer("a", "foo")
    response = joined(shard, "c", *(f"topic-{number}" for number in range(100)))
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert shard.consumer_group.size == 1


def test_a_subscription_of_a_later_version_is_read(shard: ShardAtWork) -> None:
    metadata = b"\x00\x09" + owning_subscription(("foo",), {}, rack="r")[2:] + b"more"
    assert shard.join("c", protocols={"range": metadata}).error is ErrorCode.NONE
    member = shard.consumer("c")
    assert (member.subscribed_topics, member.rack_id) == (frozenset(("foo",)), "r")
    assert decode_versioned(ConsumerProtocolAssignment, shard.sync("c", 3).response.assignment)[0] == 3


def test_a_member_that_joins_again_takes_its_next_step(shard: ShardAtWork) -> None:
    joined(shard)
    assert synced(shard.sync("c", 3)) == {}
    told = shard.beat("a", 2, owned=owned_by(0, 1, 2, 3, 4, 5))
    assert assigned(told) == {1: {0, 1, 2}}
    shard.beat("a", 2, owned=owned_by(0, 1, 2))
    assert shard.heartbeat("c", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(shard).generation_id == 3
    assert synced(shard.sync("c", 3)) == {"foo": [3, 4, 5]}
    assert shard.heartbeat("c", 3) is ErrorCode.NONE
    assert shard.consumer_group.state_name == "Stable"


def owned_by(*partitions: int) -> dict[Any, frozenset[int]]:
    foo = FakeTopics(foo=6).topic_id("foo")
    return {foo: frozenset(partitions)}


def test_a_member_may_change_its_subscription(shard: ShardAtWork) -> None:
    joined(shard)
    joined(shard, "c", "bar")
    assert shard.consumer("c").subscribed_topics == frozenset(("bar",))
    assert synced(shard.sync("c", 4)) == {"bar": [0, 1, 2]}


def test_a_classic_member_gives_up_partitions_before_it_moves_on(shard: ShardAtWork) -> None:
    shard.leave_consumer("a")
    shard.join_consumer("b", "bar")
    epoch = joined(shard).generation_id
    assert synced(shard.sync("c", epoch)) == {"foo": [0, 1, 2, 3, 4, 5]}
    shard.join_consumer("d", "foo")
    assert shard.heartbeat("c", epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(shard, has=(0, 1, 2, 3, 4, 5)).generation_id == epoch, "it keeps its epoch until it has given up"
    assert shard.consumer("c").state is MemberState.UNREVOKED_PARTITIONS
    assert synced(shard.sync("c", epoch)) == {"foo": [0, 1, 2]}
    assert shard.heartbeat("c", epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    assert joined(shard, has=(0, 1, 2)).generation_id == epoch + 1
    assert synced(shard.sync("c", epoch + 1)) == {"foo": [0, 1, 2]}


def test_an_eager_member_gives_up_all_as_it_joins_again(shard: ShardAtWork) -> None:
    shard.leave_consumer("a")
    shard.join_consumer("b", "bar")
    epoch = joined(shard).generation_id
    shard.join_consumer("d", "foo")
    assert joined(shard).generation_id == epoch + 1
    assert synced(shard.sync("c", epoch + 1)) == {"foo": [0, 1, 2]}


def test_a_member_of_the_newer_protocol_becomes_a_classic_one_and_back(shard: ShardAtWork) -> None:
    shard.join_consumer("b", "foo")
    shard.join_consumer("a", "foo", "bar")
    joined(shard, "a")
    member = shard.consumer("a")
    assert member.classic is not None
    assert shard.waits.heartbeat.delayed == 2
    shard.join_consumer("a", "foo")
    assert shard.consumer("a").classic is None
    shard.advance(REBALANCE_MS - 1)
    assert shard.waits.rebalance.delayed == 0, "neither a join nor a sync is awaited any more"


# --- static members -----------------------------------------------------------------------------------------------


def test_a_static_client_takes_the_place_of_a_classic_member(shard: ShardAtWork) -> None:
    first = joined(shard, "", instance="i")
    records = len(shard.log.records)
    second = joined(shard, "", instance="i")
    assert second.member_id != first.member_id
    assert second.generation_id == first.generation_id
    assert kinds(shard.log.records[records:]) == [-8, -7, -5, 5, 7, 8, 8]
    assert joined(shard, first.member_id, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert joined(shard, first.member_id, instance="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.sync(first.member_id, 3, instance="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat(second.member_id, 3, instance="i") is ErrorCode.NONE


def test_a_static_client_takes_the_place_of_a_member_of_the_newer_protocol(shard: ShardAtWork) -> None:
    shard.join_consumer("b", "foo", instance_id="i")
    response = joined(shard, "", instance="i")
    assert response.error_code == 0
    assert shard.refused_beat("b", 3, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert shard.consumer(response.member_id).classic is not None


def test_a_static_member_of_the_newer_protocol_takes_the_place_of_a_classic_one(shard: ShardAtWork) -> None:
    classic = joined(shard, "", instance="i")
    shard.join_consumer("n", "foo", instance_id="i")
    assert shard.heartbeat(classic.member_id, 3, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert (shard.consumer("n").classic, shard.consumer_group.size) == (None, 2)


def test_a_classic_member_takes_the_place_of_a_member_with_an_expression() -> None:
    shard = ShardAtWork()
    shard.join_consumer("b", "bar")
    shard.join_consumer("a", regex="f.*", instance_id="i")
    shard.work()
    records = len(shard.log.records)
    joined(shard, "", instance="i")
    assert kinds(shard.log.records[records:])[:8] == [-8, -7, -5, 5, 7, 8, 5, -16]
    assert shard.consumer_group.subscriptions.regexes() == set()


# --- SyncGroup and Heartbeat --------------------------------------------------------------------------------------


def test_who_may_sync_and_send_heartbeats(shard: ShardAtWork) -> None:
    joined(shard)
    for member_id, generation, code in (
        ("x", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        ("a", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("c", 2, ErrorCode.ILLEGAL_GENERATION),
        ("c", 4, ErrorCode.ILLEGAL_GENERATION),
        ("c", 3, ErrorCode.NONE),
    ):
        assert shard.sync(member_id, generation).error is code
        assert shard.heartbeat(member_id, generation) is code
    assert shard.heartbeat("c", 3, instance="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_sync_is_of_the_protocol_that_the_member_joined_with(shard: ShardAtWork) -> None:
    joined(shard)
    for kind, name, code in (
        ("consumer", "range", ErrorCode.NONE),
        (None, None, ErrorCode.NONE),
        ("connect", "range", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("consumer", "sticky", ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        sent = shard.sync("c", 3, protocol_type=kind, protocol_name=name)
        assert sent.error is code
        if code is ErrorCode.NONE:
            assert (sent.response.protocol_type, sent.response.protocol_name) == (kind, name)


def test_a_member_learns_nothing_of_an_old_target(shard: ShardAtWork) -> None:
    joined(shard)
    shard.join_consumer("b", "foo")
    assert shard.sync("c", 3).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.heartbeat("c", 3) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("cause", [None, ErrorCode.REQUEST_TIMED_OUT])
def test_a_member_learns_what_is_replicated(shard: ShardAtWork, cause: ErrorCode | None) -> None:
    joined(shard)
    shard.beat("a", 2)
    shard.log.is_held = True
    shard.send("a", 2, owned={1: {0, 1, 2}})
    sent = shard.sync("c", 3)
    assert not sent.is_answered
    shard.log.settle(cause)
    assert sent.error is (ErrorCode.NONE if cause is None else ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_an_assignment_has_the_version_of_the_subscription(shard: ShardAtWork) -> None:
    shard.leave_consumer("a")
    shard.join_consumer("b", "bar")
    shard.join("c", protocols={"range": b"\x00\x00" + subscription("foo")[2:]})
    assert decode_versioned(ConsumerProtocolAssignment, shard.sync("c", 5).response.assignment)[0] == 0


def test_a_deleted_topic_is_left_out_of_an_assignment(shard: ShardAtWork) -> None:
    shard.leave_consumer("a")
    shard.join_consumer("b", "bar")
    joined(shard)
    shard.topics.delete("foo")
    assert synced(shard.sync("c", 5)) == {}


def test_the_assignments_that_a_client_sends_are_ignored(shard: ShardAtWork) -> None:
    joined(shard)
    assert shard.sync("c", 3, {"c": b"all"}).response.assignment == b"\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"


# --- timers -------------------------------------------------------------------------------------------------------


def stay_for(shard: ShardAtWork, ms: int, *, classic: int | None = None) -> None:
    """Members "a", and "c" in a generation, send heartbeats; nobody takes a step."""
    for _ in range(ms // (SESSION_MS // 2)):
        shard.advance(SESSION_MS // 2)
        shard.beat("a", shard.consumer("a").epoch)
        if classic is not None:
            shard.heartbeat("c", classic)


def test_a_classic_member_has_its_own_session_timeout(shard: ShardAtWork) -> None:
    joined(shard)
    shard.sync("c", 3)
    shard.advance(SESSION_MS - 1)
    assert shard.heartbeat("c", 3) is ErrorCode.NONE
    shard.advance(SESSION_MS - 1)
    assert shard.consumer_group.size == 2
    shard.advance(1)
    assert list(shard.consumer_group.members_by_id) == ["a"]


def test_a_member_that_does_not_sync_is_removed(shard: ShardAtWork) -> None:
    joined(shard)
    stay_for(shard, REBALANCE_MS - SESSION_MS, classic=3)
    assert shard.consumer_group.size == 2
    stay_for(shard, SESSION_MS, classic=3)
    assert list(shard.consumer_group.members_by_id) == ["a"]


def test_a_member_that_is_told_to_join_and_does_not_is_removed(shard: ShardAtWork) -> None:
    joined(shard)
    shard.sync("c", 3)
    shard.join_consumer("b", "foo")
    shard.leave_consumer("b")
    assert shard.heartbeat("c", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    stay_for(shard, REBALANCE_MS - SESSION_MS, classic=3)
    assert shard.consumer_group.size == 2, "being told again gives it no more time"
    stay_for(shard, SESSION_MS, classic=3)
    assert list(shard.consumer_group.members_by_id) == ["a"]


def test_a_member_that_joins_and_syncs_in_time_stays(shard: ShardAtWork) -> None:
    joined(shard)
    shard.sync("c", 3)
    shard.join_consumer("b", "foo")
    shard.leave_consumer("b")
    shard.heartbeat("c", 3)
    epoch = joined(shard).generation_id
    assert shard.sync("c", epoch).error is ErrorCode.NONE
    shard.beat("a", 2, owned={})
    assert shard.waits.rebalance.delayed == 0


def test_after_a_move_of_the_partition_a_member_is_told_again(shard: ShardAtWork) -> None:
    joined(shard)
    shard.sync("c", 3)
    shard.join_consumer("b", "foo")
    shard.heartbeat("c", 3)
    assert shard.waits.rebalance.delayed == 1
    shard.restart()
    assert shard.waits.rebalance.delayed == 0
    assert shard.heartbeat("c", 3) is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.waits.rebalance.delayed == 1
    shard.shard.unload()
    assert shard.waiting == (0, 0)


# --- LeaveGroup ---------------------------------------------------------------------------------------------------


def test_members_leave_together(shard: ShardAtWork) -> None:
    joined(shard)
    static = joined(shard, "", instance="i")
    records, epoch = len(shard.log.records), shard.consumer_group.epoch
    errors = shard.leave_together(
        Leaving("c", None),
        Leaving("", "i"),
        Leaving("", "j"),
        Leaving("x", "i"),
        Leaving("x", None),
        Leaving("", None),
        Leaving(static.member_id, "i"),
        Leaving("c", None),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    none = ErrorCode.NONE
    assert errors == [none, none, unknown, ErrorCode.FENCED_INSTANCE_ID, unknown, unknown, none, none]
    assert kinds(shard.log.records[records:]) == [-8, -7, -5, -8, -7, -5, 3]
    assert shard.consumer_group.epoch == epoch + 1
    assert list(shard.consumer_group.members_by_id) == ["a"]


def test_very_many_members_leave_in_several_steps(shard: ShardAtWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.coordinator.group.consumer.requests.MOST_LEAVING", 2)
    for member_id in ("b", "c", "d", "e", "f"):
        shard.join_consumer(member_id, "foo")
    records = len(shard.log.records)
    assert shard.leave_together(*(Leaving(each, None) for each in "bcdef")) == [ErrorCode.NONE] * 5
    assert [kind for kind in kinds(shard.log.records[records:]) if kind > 0] == [3, 3, 3]
    assert list(shard.consumer_group.members_by_id) == ["a"]
    shard.join_consumer("b", "foo")
    shard.join_consumer("c", "foo")
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ProtocolError) as refused:
        shard.leave_together(*(Leaving(each, None) for each in "abc"))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_nobody_who_leaves_changes_nothing(shard: ShardAtWork) -> None:
    records = len(shard.log.records)
    assert shard.leave("x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(shard.log.records) == records


def test_a_member_of_the_newer_protocol_may_leave_by_leave_group(shard: ShardAtWork) -> None:
    assert shard.leave("a") is ErrorCode.NONE
    assert shard.consumer_group.is_empty


def test_leaving_waits_for_its_records(shard: ShardAtWork) -> None:
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(ProtocolError) as refused:
        shard.leave_together(Leaving("a", None))
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.consumer_group.size == 1


# --- offsets ------------------------------------------------------------------------------------------------------


def test_a_classic_member_commits_in_its_generation(shard: ShardAtWork) -> None:
    joined(shard)
    group = shard.consumer_group
    assert group.accept_commit(Committer("g", 3, "c", api_version=5)) is None
    with pytest.raises(ProtocolError) as refused:
        group.accept_commit(Committer("g", 4, "c", api_version=5))
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(ProtocolError) as refused:
        group.accept_fetch("c", 2)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
