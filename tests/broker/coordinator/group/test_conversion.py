"""Groups with members that change their kind: from classic to consumer and back, in the log and for their clients."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.group.admin import GroupOverview, overviews
from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.consumer.classic_members import Leaving
from odradek.broker.coordinator.group.consumer.group import UNKNOWN_TIME, ConsumerGroup
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.settings import MigrationPolicy
from odradek.broker.coordinator.group.consumer.subscriptions import MOST_NAMED
from odradek.broker.coordinator.group.group import Committer
from odradek.broker.coordinator.group.offsets.commits import commit_offsets
from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from odradek.protocol.messages.group_records import GroupMetadataValue
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, assigned
from tests.broker.coordinator.group.consumer.shard_at_work import ShardAtWork, kinds
from tests.broker.coordinator.group.harness import GROUP, REBALANCE_MS, SESSION_MS, owning_subscription, subscription
from tests.broker.coordinator.group.offsets.offset_log import committed
from tests.table_settings import of_table

FOO = {"range": subscription("foo")}
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def assignment(*partitions: int, user_data: bytes | None = None, topic: str = "foo") -> bytes:
    topics = [ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), 1)


def read(assignment: bytes) -> dict[str, list[int]]:
    _, message = decode_versioned(ConsumerProtocolAssignment, assignment)
    return {each.topic: each.partitions for each in message.assigned_partitions}


def classic_group(*shares: bytes, shard: ShardAtWork | None = None, **joining: Any) -> tuple[ShardAtWork, list[str]]:
    """A Stable classic group whose members have these assignments, the leader first."""
    shard = shard or ShardAtWork()
    joining = {"protocols": FOO, **joining}
    requests = [shard.join(**joining) for _ in shares]
    if len(shares) > 1:  # the first began a generation of its own
        requests[0] = shard.join(requests[0].response.member_id, **joining)
    ids = [each.response.member_id for each in requests]
    generation = requests[0].response.generation_id
    for member_id in ids[1:]:
        shard.sync(member_id, generation)
    shard.sync(ids[0], generation, dict(zip(ids, shares, strict=True)))
    assert shard.state is GroupState.STABLE
    return shard, ids


def mixed_group(**more: Any) -> tuple[ShardAtWork, str]:
    """A consumer group of "a", of the newer protocol, and a classic member with partitions 3 to 5. Returns its id."""
    shard, (classic,) = classic_group(assignment(0, 1, 2, 3, 4, 5), **more)
    shard.join_consumer("a", "foo")
    owned = {"foo": (0, 1, 2, 3, 4, 5)}
    shard.join(classic, protocols={"range": owning_subscription(("foo",), owned)}, **more)
    shard.sync(classic, shard.consumer(classic).epoch)
    kept = {"foo": (3, 4, 5)}
    response = shard.join(classic, protocols={"range": owning_subscription(("foo",), kept)}, **more).response
    shard.sync(classic, response.generation_id)
    shard.beat("a", shard.consumer("a").epoch, owned={})
    return shard, classic


def as_classic(shard: ShardAtWork) -> ClassicGroup:
    group = shard.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    group.check()
    return group


# --- from classic to consumer -------------------------------------------------------------------------------------


def test_a_classic_group_becomes_a_consumer_group_with_its_members() -> None:
    shard, ids = classic_group(assignment(0, 1, 2), assignment(3, 4, 5))
    records, generation = len(shard.log.records), shard.group.generation_id
    response = shard.join_consumer("n", "foo")
    assert (response.member_epoch, assigned(response)) == (generation + 1, {})
    group = shard.consumer_group
    assert (group.size, group.classic_members, group.epoch) == (3, 2, generation + 1)
    for member_id, partitions in zip(ids, ((0, 1, 2), (3, 4, 5)), strict=True):
        member = shard.consumer(member_id)
        assert member.classic is not None
        assert (member.classic.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
        assert (member.epoch, member.previous_epoch) == (generation, generation)
        ((given),) = member.assigned.values()
        assert given == dict.fromkeys(partitions, generation)
    converted = kinds(shard.log.records[records : records + 9])
    assert converted == [-2, 5, 5, 3, 7, 7, 6, 8, 8]
    assert kinds(shard.log.records[records + 9 :]) == [5, 3, 7, 7, 7, 6, 8]


def test_the_converted_group_has_the_generation_as_its_epoch() -> None:
    shard, (member_id,) = classic_group(assignment(0, 1, 2, 3, 4, 5))
    records, generation = len(shard.log.records), shard.group.generation_id
    shard.join_consumer("n", "foo")
    shard.restart(records + 6)
    group = shard.consumer_group
    assert (group.epoch, group.target_epoch, group.target_timestamp_ms) == (generation, generation, UNKNOWN_TIME)
    assert (group.state_name, shard.consumer(member_id).epoch) == ("Stable", generation)


def test_the_members_are_told_to_join_the_new_group() -> None:
    shard, (leader, other) = classic_group(assignment(0, 1, 2), assignment(3, 4, 5))
    generation = shard.group.generation_id
    shard.join_consumer("n", "foo")
    assert shard.heartbeat(leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    owned = owning_subscription(("foo",), {"foo": (0, 1, 2)})
    assert shard.join(leader, protocols={"range": owned}).response.generation_id == generation
    assert read(shard.sync(leader, generation).response.assignment) == {"foo": [0, 1]}
    assert shard.heartbeat(other, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_parked_requests_are_answered_when_the_group_is_converted() -> None:
    shard, (leader, _other) = classic_group(assignment(0, 1, 2), assignment(3, 4, 5))
    rejoining = shard.join(leader, protocols=FOO)
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.refused_beat("n", 0, rebalance_timeout_ms=1, owned={}, topics=("foo",))
    assert not rejoining.is_answered
    assert shard.state is GroupState.PREPARING_REBALANCE, "what is not written changes nothing"
    shard.log.failure = None
    shard.join_consumer("n", "foo")
    assert (rejoining.error, rejoining.response.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, leader)
    assert shard.consumer_group.size == 3


def test_a_parked_sync_is_answered_when_the_group_is_converted() -> None:
    shard, (leader, other) = classic_group(assignment(0, 1, 2), assignment(3, 4, 5))
    shard.join(leader, protocols=FOO)
    generation = shard.join(other, protocols=FOO).response.generation_id
    syncing = shard.sync(other, generation)
    assert shard.state is GroupState.COMPLETING_REBALANCE
    shard.join_consumer("n", "foo")
    assert syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.consumer(other).assigned, "it has what the last generation gave it"


def test_an_assignment_that_is_being_written_is_lost_in_the_conversion() -> None:
    shard, (leader,) = classic_group(assignment(0))
    shard.log.is_held = True
    generation = shard.join(leader, protocols=FOO).response.generation_id
    syncing = shard.sync(leader, generation, {leader: assignment(1)})
    shard.send("n", 0, rebalance_timeout_ms=REBALANCE_MS, owned={}, topics=("foo",))
    assert syncing.error is ErrorCode.REBALANCE_IN_PROGRESS
    shard.log.settle()
    assert shard.consumer_group.size == 2
    shard.restart()
    assert shard.consumer_group.size == 2


def test_a_group_is_converted_in_its_first_rebalance() -> None:
    shard = ShardAtWork()
    shard.settings = of_table(GroupSettings, initial_rebalance_delay_ms=3000)
    shard.restart()
    waiting = shard.join(protocols=FOO, instance="i")
    shard.join_consumer("n", "foo")
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.consumer_group.classic_members == 1
    again = shard.join("", protocols=FOO, instance="i")
    assert (again.error, shard.consumer_group.size) == (ErrorCode.NONE, 2)
    shard.advance(3000)
    assert shard.consumer_group.size == 2, "no rebalance of the former group is left"


def test_a_member_gives_up_first_what_it_says_that_it_has() -> None:
    """A cooperative member that has got a smaller assignment may not know that yet."""
    shard, (classic,) = classic_group(assignment(0, 1, 2, 3, 4, 5))
    claims = owning_subscription(("foo",), {"foo": (0, 1, 2, 3, 4, 5)})
    generation = shard.join(classic, protocols={"range": claims}).response.generation_id
    shard.sync(classic, generation, {classic: assignment(3, 4, 5)})
    response = shard.join_consumer("a", "foo")
    assert assigned(response) == {}, "its target is 0 to 2"
    member = shard.consumer(classic)
    assert (member.state, [set(each) for each in member.revoking.values()]) == (
        MemberState.UNREVOKED_PARTITIONS,
        [{0, 1, 2}],
    )
    assert shard.heartbeat(classic, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    kept = owning_subscription(("foo",), {"foo": (3, 4, 5)})
    assert shard.join(classic, protocols={"range": kept}).response.generation_id == generation + 1
    assert assigned(shard.beat("a", generation + 1)) == {1: {0, 1, 2}}


def test_what_two_members_say_that_they_have_stays_with_whom_it_is_assigned_to() -> None:
    claims = {"range": owning_subscription(("foo",), {"foo": (0, 1, 2, 3, 4, 5)})}
    shard, (first, second) = classic_group(assignment(0, 1, 2), assignment(3, 4, 5), protocols=claims)
    shard.join_consumer("n", "foo")
    assert shard.consumer(first).revoking == shard.consumer(second).revoking == {}


def test_a_client_with_an_id_of_the_classic_group_joins_the_new_one() -> None:
    shard, _ = classic_group(assignment(0))
    required = shard.join(protocols=FOO, known_ids=True)
    shard.join_consumer("n", "foo")
    assert shard.waits.heartbeat.delayed == 2
    assert shard.join(required.response.member_id, protocols=FOO, known_ids=True).error is ErrorCode.NONE


def test_a_classic_member_converts_its_group_by_becoming_a_member_of_the_newer_protocol() -> None:
    shard, (first, _second) = classic_group(assignment(0, 1, 2), assignment(3, 4, 5))
    response = shard.join_consumer(first, "foo")
    assert assigned(response) == {1: {0, 1, 2}}
    assert (shard.consumer(first).classic, shard.consumer_group.classic_members) == (None, 1)


def test_a_static_member_converts_its_group_as_it_comes_back() -> None:
    shard, (first,) = classic_group(assignment(0, 1, 2), instance="i")
    response = shard.join_consumer("n", "foo", instance_id="i")
    assert response.member_epoch > 0
    assert list(shard.consumer_group.members_by_id) == ["n"]
    assert shard.heartbeat(first, 1, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_the_session_of_a_classic_member_goes_on() -> None:
    shard, _ = classic_group(assignment(0, 1, 2))
    shard.join_consumer("n", "foo")
    shard.advance(SESSION_MS)
    assert list(shard.consumer_group.members_by_id) == ["n"]


def test_committed_offsets_stay() -> None:
    shard, (classic,) = classic_group(assignment(0, 1, 2))
    commit_offsets(shard.shard, Committer(GROUP, 1, classic), {"foo": {0: committed(7)}}, lambda _: None)
    shard.join_consumer("n", "foo")
    shard.beat("n", -1)
    assert isinstance(shard.shard.groups[GROUP], ClassicGroup)
    shard.restart()
    assert [each.offset for each in shard.shard.offsets.committed(GROUP)["foo"].values()] == [7]


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_where_groups_are_not_upgraded_a_classic_group_stays(policy: MigrationPolicy) -> None:
    shard, _ = classic_group(assignment(0))
    shard.consumer_settings = SETTINGS._replace(migration_policy=policy)
    assert_not_converted(shard)


def assert_not_converted(shard: ShardAtWork) -> None:
    fields: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "topics": ("foo",)}
    assert shard.refused_beat("n", 0, **fields) is NOT_FOUND
    assert as_classic(shard).state is GroupState.STABLE


def test_a_group_of_another_protocol_type_stays() -> None:
    shard, _ = classic_group(assignment(0), protocol_type="connect")
    assert_not_converted(shard)


def test_a_group_that_is_too_large_stays() -> None:
    shard, _ = classic_group(assignment(0), assignment(1))
    shard.consumer_settings = SETTINGS._replace(max_size=1)
    assert_not_converted(shard)


def test_a_group_that_does_not_fit_in_a_batch_stays() -> None:
    shard, _ = classic_group(assignment(0), assignment(1), shard=ShardAtWork(most_bytes=150))
    assert_not_converted(shard)


@pytest.mark.parametrize("metadata", [b"", b"\x00\x01\x00\x00\x00\x07", b"\xff\xff\x00\x00\x00\x00"])
def test_a_group_with_a_subscription_that_is_none_stays(metadata: bytes) -> None:
    shard, _ = classic_group(assignment(0), protocols={"range": metadata})
    assert_not_converted(shard)


def test_a_group_whose_members_name_too_many_topics_stays() -> None:
    shard = ShardAtWork()
    for member in range(3):
        topics = (f"{member}-{number}" for number in range(MOST_NAMED // 3 + 1))
        shard.join(protocols={"range": subscription(*topics)})
    fields: dict[str, Any] = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "topics": ("foo",)}
    assert shard.refused_beat("n", 0, **fields) is NOT_FOUND
    assert as_classic(shard).size == 3


@pytest.mark.parametrize("share", [b"\x00", b"\xff\xff\x00\x00\x00\x00"])
def test_a_group_with_an_assignment_that_is_none_stays(share: bytes) -> None:
    shard, _ = classic_group(share)
    assert_not_converted(shard)


def test_a_group_whose_assignor_tells_its_members_more_than_partitions_stays() -> None:
    shard, _ = classic_group(assignment(0, user_data=b"state"), protocols={"mine": subscription("foo")})
    assert_not_converted(shard)


def test_what_an_assignor_of_kafkas_tells_its_members_besides_may_be_lost() -> None:
    shard, _ = classic_group(assignment(0, user_data=b"state"), protocols={"cooperative-sticky": subscription("foo")})
    shard.join_consumer("n", "foo")
    assert shard.consumer_group.size == 2


def test_a_group_whose_members_share_a_partition_stays() -> None:
    shard, _ = classic_group(assignment(0, 1), assignment(1, 2))
    assert_not_converted(shard)


def test_topics_that_do_not_exist_are_left_out() -> None:
    shard, (classic,) = classic_group(assignment(0, topic="gone"))
    shard.join_consumer("n", "foo")
    assert shard.consumer(classic).assigned == {}


def test_a_refused_heartbeat_converts_nothing() -> None:
    shard, _ = classic_group(assignment(0))
    fields: dict[str, Any] = {"rebalance_timeout_ms": 1, "owned": {}, "regex": "("}
    assert shard.refused_beat("n", 0, **fields) is ErrorCode.INVALID_REGULAR_EXPRESSION
    for epoch in (1, -1):
        assert shard.refused_beat("n", epoch) is NOT_FOUND
    assert as_classic(shard).state is GroupState.STABLE


# --- from consumer to classic -------------------------------------------------------------------------------------


def test_a_group_becomes_classic_when_its_last_member_of_the_newer_protocol_leaves() -> None:
    shard, _ = mixed_group()
    records, epoch = len(shard.log.records), shard.consumer_group.epoch
    with capture_logs() as events:
        assert shard.leave_consumer("a").member_epoch == -1
    assert kinds(shard.log.records[records:]) == [-8, -8, -7, -7, -6, -5, -5, -4, -3, 2]
    _, value = decode_versioned(GroupMetadataValue, shard.log.records[-1].value or b"")
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
        "consumer",
        epoch,
        "range",
        None,
    )
    (member,) = value.members
    assert (member.session_timeout, member.rebalance_timeout) == (SESSION_MS, REBALANCE_MS)
    assert read(member.assignment) == {"foo": [3, 4, 5]}
    group = as_classic(shard)
    assert (group.state, group.generation_id) == (GroupState.PREPARING_REBALANCE, epoch)
    assert {"event": "group converted", "old": "consumer", "new": "classic"}.items() <= {
        key: value for event in events if event["event"] == "group converted" for key, value in event.items()
    }.items()


def test_the_members_of_a_group_that_became_classic_rebalance() -> None:
    shard, classic = mixed_group()
    epoch = shard.consumer_group.epoch
    shard.leave_consumer("a")
    assert shard.heartbeat(classic, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    response = shard.join(classic, protocols=FOO).response
    assert (response.generation_id, response.leader) == (epoch + 1, classic)
    assert shard.sync(classic, epoch + 1, {classic: assignment(0)}).response.assignment == assignment(0)


def test_a_member_that_is_behind_commits_what_it_has_and_rejoins() -> None:
    shard, classic = mixed_group()
    epoch = shard.consumer(classic).epoch
    shard.join_consumer("b", "foo")
    shard.leave_consumer("b")
    shard.leave_consumer("a")
    group = as_classic(shard)
    assert group.generation_id > epoch
    for generation, code in (epoch, ErrorCode.REBALANCE_IN_PROGRESS), (epoch - 1, ErrorCode.ILLEGAL_GENERATION):
        assert shard.heartbeat(classic, generation) is code
        assert shard.sync(classic, generation).error is code
    outcomes: list[ProtocolError | None] = []
    commit_offsets(shard.shard, Committer(GROUP, epoch, classic), {"foo": {3: committed(7)}}, outcomes.append)
    assert outcomes == [None]
    shard.join(classic, protocols=FOO)
    assert shard.heartbeat(classic, epoch) is ErrorCode.ILLEGAL_GENERATION, "it has a generation now"


def test_a_member_that_is_behind_has_what_it_had_when_its_group_is_converted_again() -> None:
    shard, classic = mixed_group()
    before = shard.consumer(classic)
    shard.join_consumer("b", "foo")
    shard.leave_consumer("b")
    shard.leave_consumer("a")
    assert as_classic(shard).generation_id > before.epoch
    shard.join_consumer("n", "foo")
    after = shard.consumer(classic)
    assert (after.epoch, after.assigned, after.revoking) == (before.epoch, before.assigned, before.revoking)
    assert shard.heartbeat(classic, before.epoch) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_that_joins_a_converted_group_has_its_generation_and_what_it_had() -> None:
    shard, classic = mixed_group()
    before = shard.consumer(classic)
    shard.leave_consumer("a")
    generation = shard.join(classic, protocols=FOO).response.generation_id
    shard.join_consumer("n", "foo")
    after = shard.consumer(classic)
    assert after.epoch == generation
    assert [set(each) for each in after.assigned.values()] == [set(each) for each in before.assigned.values()]
    shard.restart()
    assert shard.consumer(classic) == after


def test_a_group_becomes_classic_when_the_last_session_ends() -> None:
    shard, classic = mixed_group(session_ms=100_000)
    shard.advance(SETTINGS.session_timeout_ms)
    assert [each.member_id for each in as_classic(shard).members] == [classic]


def test_a_group_becomes_classic_when_the_last_member_leaves_by_leave_group() -> None:
    shard, _ = mixed_group()
    assert shard.leave_together(Leaving("a", None), Leaving("x", None)) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert as_classic(shard).size == 1


def test_the_sessions_of_a_group_that_became_classic_run() -> None:
    shard, _ = mixed_group()
    shard.leave_consumer("a")
    assert shard.waiting == (1, 1)
    shard.advance(SESSION_MS)
    assert as_classic(shard).state is GroupState.EMPTY
    assert shard.waiting == (0, 0)


def test_a_group_without_members_stays_a_consumer_group() -> None:
    shard, classic = mixed_group()
    assert shard.leave_together(Leaving("a", None), Leaving(classic, None)) == [ErrorCode.NONE] * 2
    assert shard.consumer_group.state_name == "Empty"
    assert isinstance(shard.shard.groups[GROUP], ConsumerGroup)


def test_a_group_with_members_of_both_protocols_stays_a_consumer_group() -> None:
    shard, classic = mixed_group()
    shard.join_consumer("b", "foo")
    shard.leave_consumer("a")
    assert isinstance(shard.shard.groups[GROUP], ConsumerGroup)
    shard.leave(classic)
    assert isinstance(shard.shard.groups[GROUP], ConsumerGroup)


def test_a_static_member_that_leaves_for_a_while_leaves_no_classic_group() -> None:
    shard, _ = mixed_group(session_ms=100_000)
    shard.join_consumer("s", "foo", instance_id="i")
    shard.leave_consumer("a")
    shard.beat("s", -2, instance_id="i")
    assert shard.consumer_group.size == 2
    shard.advance(SETTINGS.session_timeout_ms)
    assert as_classic(shard).size == 1


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.UPGRADE])
def test_where_groups_are_not_downgraded_classic_members_stay_in_a_consumer_group(policy: MigrationPolicy) -> None:
    shard, classic = mixed_group()
    shard.consumer_settings = SETTINGS._replace(migration_policy=policy)
    epoch = shard.consumer(classic).epoch
    shard.leave_consumer("a")
    assert (shard.consumer_group.size, shard.consumer_group.classic_members) == (1, 1)
    assert shard.heartbeat(classic, epoch) is ErrorCode.NONE, "the target follows in a timer"
    shard.advance(1)
    assert shard.work() == 1
    assert shard.heartbeat(classic, epoch) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_group_that_is_too_large_for_a_classic_one_stays() -> None:
    shard, _ = mixed_group()
    shard.join("d", protocols=FOO)
    shard.consumer_settings = SETTINGS._replace(classic_max_size=1)
    shard.leave_consumer("a")
    assert shard.consumer_group.size == 2
    shard.leave("d")
    assert as_classic(shard).size == 1, "a classic member that leaves brings the group back, too"


def test_what_is_not_written_leaves_the_group_as_it_was() -> None:
    shard, classic = mixed_group()
    epoch = shard.consumer("a").epoch
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    assert shard.refused_beat("a", -1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.beat("a", epoch).member_epoch == epoch
    assert shard.heartbeat(classic, shard.consumer(classic).epoch) is ErrorCode.NONE


def test_a_removal_that_is_not_written_is_tried_again() -> None:
    shard, _ = mixed_group(session_ms=500_000)
    shard.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.advance(SETTINGS.session_timeout_ms)
    assert shard.consumer_group.size == 2
    shard.log.failure = None
    shard.advance(SETTINGS.session_timeout_ms)
    assert as_classic(shard).size == 1


def test_the_answer_of_the_last_member_waits_for_its_records() -> None:
    shard, _ = mixed_group()
    shard.log.is_held = True
    answers = shard.send("a", -1)
    assert answers == []
    shard.log.settle()
    assert len(answers) == 1


# --- a classic static member in the place of the last one of the newer protocol -----------------------------------


def replaced(*topics: str, **more: Any) -> tuple[ShardAtWork, Any, list[int]]:
    """A classic client joins as the instance of the last member of the newer protocol. Returns the answer too."""
    shard, classic = mixed_group()
    shard.join_consumer("s", "foo", instance_id="i")
    shard.leave_consumer("a")
    shard.join(classic, protocols={"range": owning_subscription(("foo",), {})})
    shard.sync(classic, shard.consumer(classic).epoch)
    shard.beat("s", shard.consumer("s").epoch, instance_id="i", owned={})
    assert shard.consumer_group.state_name == "Stable"
    records = len(shard.log.records)
    answer = shard.join("", instance="i", protocols={"range": subscription(*topics)}, **more).response
    return shard, answer, kinds(shard.log.records[records:])


def test_a_static_member_that_changes_its_protocol_last_makes_the_group_classic() -> None:
    shard, answer, records = replaced("foo")
    assert answer.error_code == 0
    assert records == [-8, -7, -5, 5, 7, 8, 5, 8, -8, -8, -7, -7, -6, -5, -5, -4, -3, 2]
    group = as_classic(shard)
    assert (group.state, group.generation_id) == (GroupState.STABLE, answer.generation_id)
    response = shard.sync(answer.member_id, answer.generation_id, instance="i").response
    assert read(response.assignment) == {"foo": [0, 1, 2]}
    assert shard.refused_beat("s", 1, instance_id="i") is NOT_FOUND
    deleted = [each.key for each in shard.log.records[-10:-1]]
    assert sum(answer.member_id.encode() in key for key in deleted) == 3, "those of the one that has joined"


def test_a_static_member_with_another_subscription_makes_the_group_classic_and_rebalances_it() -> None:
    shard, answer, records = replaced("foo", "bar")
    assert records == [-8, -7, -5, 5, 7, 8, 5, 3, -8, -8, -7, -7, -6, -5, -5, -4, -3, 2]
    group = as_classic(shard)
    assert group.state is GroupState.PREPARING_REBALANCE
    assert answer.generation_id == 0, "it has no generation yet: its SyncGroup lets it join again"
    assert shard.sync(answer.member_id, 0, instance="i").error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.waiting == (2, 1)


def test_a_static_member_that_joins_amid_a_rebalance_makes_the_group_classic_and_rebalances_it() -> None:
    shard, classic = mixed_group()
    shard.join_consumer("s", "foo", instance_id="i")
    shard.leave_consumer("a")
    shard.beat("s", shard.consumer("s").epoch, instance_id="i", owned={})
    assert shard.consumer_group.target_epoch == shard.consumer_group.epoch > shard.consumer(classic).epoch
    shard.join("", instance="i", protocols=FOO)
    assert as_classic(shard).state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_is_not_the_last_leaves_a_consumer_group() -> None:
    shard, _ = mixed_group()
    shard.join_consumer("s", "foo", instance_id="i")
    shard.join("", instance="i", protocols=FOO)
    assert shard.consumer_group.classic_members == 2


def test_where_groups_are_not_downgraded_the_last_static_member_stays_in_a_consumer_group() -> None:
    shard, _ = mixed_group()
    shard.join_consumer("s", "foo", instance_id="i")
    shard.leave_consumer("a")
    shard.consumer_settings = SETTINGS._replace(migration_policy=MigrationPolicy.UPGRADE)
    shard.join("", instance="i", protocols=FOO)
    assert (shard.consumer_group.size, shard.consumer_group.classic_members) == (2, 2)
    shard.consumer_settings = SETTINGS
    shard.join("", instance="i", protocols=FOO)
    assert shard.consumer_group.classic_members == 2, "only a member of the newer protocol that goes converts the group"


# --- the log ------------------------------------------------------------------------------------------------------


def test_either_kind_is_loaded_from_every_place_of_the_log() -> None:
    shard, classic = mixed_group()
    shard.leave_consumer("a")
    response = shard.join(classic, protocols=FOO).response
    shard.sync(classic, response.generation_id, {classic: assignment(0)})
    shard.join_consumer("b", "foo")
    seen = set()
    for length in range(len(shard.log.records), 0, -1):
        shard.restart(length)
        group = shard.shard.groups.get(GROUP)
        if group is not None:
            group.check()
            seen.add(type(group))
    assert seen == {ClassicGroup, ConsumerGroup}


def test_the_members_of_a_group_that_became_classic_rebalance_if_its_coordinator_is_lost_before_they_have() -> None:
    shard, classic = mixed_group()
    epoch = shard.consumer_group.epoch
    shard.leave_consumer("a")
    shard.restart()
    group = as_classic(shard)
    assert (group.state, group.generation_id, group.size) == (GroupState.PREPARING_REBALANCE, epoch, 1)
    assert group.is_subscribed_to("foo")
    assert shard.heartbeat(classic, epoch) is ErrorCode.REBALANCE_IN_PROGRESS
    response = shard.join(classic, protocols=FOO).response
    assert (response.generation_id, response.leader) == (epoch + 1, classic)
    shard.sync(classic, epoch + 1, {classic: assignment(0)})
    shard.restart()
    assert as_classic(shard).state is GroupState.STABLE
    assert shard.heartbeat(classic, epoch + 1) is ErrorCode.NONE


def test_a_group_is_listed_as_what_it_is() -> None:
    shard, _ = mixed_group()
    assert overviews(shard.shard.groups.values(), (), ()) == [GroupOverview(GROUP, "consumer", "consumer", "Stable")]
    shard.leave_consumer("a")
    assert overviews(shard.shard.groups.values(), (), ()) == [
        GroupOverview(GROUP, "classic", "consumer", "PreparingRebalance")
    ]


def test_an_assignment_of_a_group_that_became_classic_is_dropped() -> None:
    shard, _ = mixed_group()
    shard.consumer_settings = SETTINGS._replace(assignment_interval_ms=1000)
    shard.join_consumer("b", "foo")
    shard.leave_consumer("b")
    shard.advance(1000)
    shard.leave_consumer("a")
    records = len(shard.log.records)
    shard.work()
    shard.advance(2000)
    assert len(shard.log.records) == records
    as_classic(shard)
