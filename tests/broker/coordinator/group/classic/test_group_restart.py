"""The group metadata records, in Kafka's format, and the state that a restart loads from them."""

import base64
import json
from pathlib import Path

import pytest

from odradek.broker.coordinator.group.classic.records import group_metadata_record, read_group_id, restore_group
from odradek.broker.coordinator.group.classic.settings import GroupSettings
from odradek.broker.coordinator.group.classic.state import TRANSITIONS, GroupState, IllegalTransition
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.messages.group_records import GroupMetadataValue
from tests.broker.coordinator.group.harness import GROUP, SESSION_MS, GroupHarness, new_group, subscription
from tests.table_settings import of_table

VECTORS = Path(__file__).parents[4] / "vectors" / "coordinator_records"


def vectors(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]


def test_a_group_is_written_when_it_becomes_stable_or_empty_and_at_no_other_time() -> None:
    harness = GroupHarness()
    member_id = harness.join().response.member_id
    assert harness.log.records == []
    harness.sync(member_id, 1)
    assert len(harness.log.records) == 1
    harness.heartbeat(member_id, 1)
    harness.leave(member_id)
    assert len(harness.log.records) == 2
    assert {read_group_id(record) for record in harness.log.records} == {GROUP}
    generations = [restore_group(new_group(), record.value or b"").generation_id for record in harness.log.records]
    assert generations == [1, 2]


def test_a_restart_restores_a_stable_group_with_its_members_and_their_assignments() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2, protocols={"range": subscription("orders", "bills")})
    harness.restart()
    assert (harness.state, harness.group.generation_id, harness.group.leader_id) == (GroupState.STABLE, 2, leader)
    assert (harness.group.protocol_type, harness.group.protocol_name) == ("consumer", "range")
    assert harness.heartbeat(follower, 2) is ErrorCode.NONE
    assert harness.sync(follower, 2).response.assignment == b"1"
    assert harness.group.subscribed_topics == frozenset({"orders", "bills"})


def test_members_have_a_full_session_timeout_after_a_restart() -> None:
    harness = GroupHarness()
    leader, _ = harness.stable(2)
    harness.advance(SESSION_MS - 1)
    harness.restart()
    harness.advance(SESSION_MS - 1)
    assert harness.heartbeat(leader, 2) is ErrorCode.NONE
    harness.advance(1)
    assert [member.member_id for member in harness.group.members] == [leader]
    assert harness.state is GroupState.PREPARING_REBALANCE


def test_a_restart_during_a_rebalance_restores_the_previous_generation() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    new = harness.join()
    again = harness.join(leader)
    harness.restart()
    assert {new.error, again.error} == {ErrorCode.NOT_COORDINATOR}
    assert (again.response.member_id, new.response.member_id.startswith("client-")) == (leader, True)
    assert (harness.state, harness.group.size) == (GroupState.STABLE, 2)
    assert harness.heartbeat(follower, 2) is ErrorCode.NONE
    assert harness.waiting == (2, 0)


def test_syncs_interrupted_by_a_restart_are_refused_with_not_coordinator() -> None:
    harness = GroupHarness()
    leader, follower = harness.stable(2)
    harness.rejoined([leader, follower])
    request = harness.sync(follower, 3)
    harness.restart()
    assert request.error is ErrorCode.NOT_COORDINATOR
    assert harness.sync(leader, 3).error is ErrorCode.ILLEGAL_GENERATION
    assert harness.heartbeat(leader, 2) is ErrorCode.NONE


def test_a_restart_forgets_a_first_generation_that_was_not_stable_yet() -> None:
    harness = GroupHarness()
    member_id = harness.join().response.member_id
    harness.restart()
    assert harness.shard.groups == {}
    assert harness.heartbeat(member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_restart_restores_an_empty_group_and_its_next_generation_id_is_higher() -> None:
    harness = GroupHarness()
    (member_id,) = harness.stable()
    harness.leave(member_id)
    empty_since = harness.group.current_state_timestamp_ms
    harness.advance(1_000_000)
    harness.restart()
    assert (harness.state, harness.group.current_state_timestamp_ms) == (GroupState.EMPTY, empty_since)
    assert harness.join().response.generation_id == 3


def test_unloading_leaves_no_waiting_operation_and_no_group() -> None:
    harness = GroupHarness(of_table(GroupSettings, initial_rebalance_delay_ms=3_000))
    harness.stable(3)
    harness.join()
    harness.join(known_ids=True, group_id="other")
    harness.join(group_id="third")
    groups = list(harness.shard.groups.values())
    harness.shard.unload()
    harness.settled()
    assert harness.waiting == (0, 0)
    assert {group.state_name for group in groups} == {"Dead"}
    assert harness.shard.groups == {}
    harness.advance(1_000_000)


@pytest.mark.parametrize("vector", vectors("GroupMetadataValue"), ids=lambda v: f"{v['version']}-{v['style']}")
def test_every_group_metadata_version_of_kafka_decodes(vector: dict[str, object]) -> None:
    value = bytes.fromhex(str(vector["hex"]))
    fields: dict[str, object] = vector["fields"]  # type: ignore[assignment]
    members: list[dict[str, object]] = fields["members"]  # type: ignore[assignment]
    if members and fields["protocol"] is None:
        with pytest.raises(MalformedMessage):
            restore_group(new_group(), value)
        return
    group = restore_group(new_group(), value)
    assert group.generation_id == fields["generation"]
    assert (group.protocol_type or "", group.protocol_name) == (fields["protocolType"], fields["protocol"])
    assert group.leader_id == fields["leader"]
    assert group.state is (GroupState.STABLE if members else GroupState.EMPTY)
    assert group.current_state_timestamp_ms == fields.get("currentStateTimestamp", -1)
    expected = {str(member["memberId"]): member for member in members}
    assert {member.member_id for member in group.members} == set(expected)
    for member in group.members:
        fields_of_it = expected[member.member_id]
        assert base64.b64encode(member.assignment).decode() == fields_of_it["assignment"]
        assert base64.b64encode(member.metadata(str(fields["protocol"]))).decode() == fields_of_it["subscription"]
        assert member.session_timeout_ms == fields_of_it["sessionTimeout"]
        assert member.group_instance_id == fields_of_it.get("groupInstanceId")
        timeout = fields_of_it.get("rebalanceTimeout", fields_of_it["sessionTimeout"])
        assert member.rebalance_timeout_ms == timeout


@pytest.mark.parametrize(
    "vector",
    [v for v in vectors("GroupMetadataValue") if v["version"] == 3],
    ids=lambda v: str(v["style"]),
)
def test_decoded_group_metadata_is_encoded_as_kafka_encodes_it(vector: dict[str, object]) -> None:
    value = bytes.fromhex(str(vector["hex"]))
    try:
        group = restore_group(new_group(), value)
    except MalformedMessage:
        return  # members without a protocol: no group is like that
    assignments = {member.member_id: member.assignment for member in group.members}
    assert group_metadata_record(group, assignments).value == value


@pytest.mark.parametrize("vector", vectors("GroupMetadataKey"), ids=lambda v: str(v["style"]))
def test_group_metadata_keys_of_kafka_decode(vector: dict[str, object]) -> None:
    fields: dict[str, str] = vector["fields"]  # type: ignore[assignment]
    assert read_group_id(CoordinatorRecord(bytes.fromhex(str(vector["hex"])), None)) == fields["group"]


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x00\x07", b"\x7f\xff"])
def test_an_undecodable_value_is_malformed(damage: bytes) -> None:
    with pytest.raises(MalformedMessage):
        restore_group(new_group(), damage)


def test_a_value_cut_at_any_length_is_malformed() -> None:
    harness = GroupHarness()
    harness.stable(2)
    value = harness.log.records[-1].value
    assert value is not None
    for length in range(len(value)):
        with pytest.raises(MalformedMessage):
            restore_group(new_group(), value[:length])


def test_a_record_with_an_undecodable_key_is_malformed_and_the_others_load() -> None:
    harness = GroupHarness()
    harness.stable(2)
    shard = harness.shard
    for key in (b"\x00\x03\x00\x01g", b"\x00\x02\x00\xffg", b"\x00", b""):
        with pytest.raises(MalformedMessage):
            shard.replay(
                CoordinatorRecord(key, b"\x00\x00"), offset=9, timestamp_ms=0, producer_id=-1, producer_epoch=-1
            )
    assert harness.state is GroupState.STABLE


def test_future_subscription_versions_decode_and_an_undecodable_one_keeps_all_topics() -> None:
    harness = GroupHarness()
    newer = b"\x00\x63" + subscription("orders")[2:] + b"something that is not known yet"
    (member_id,) = harness.stable(protocols={"range": newer})
    assert (harness.group.is_subscribed_to("orders"), harness.group.is_subscribed_to("bills")) == (True, False)
    harness.join(member_id, protocols={"range": b"\xff"})
    assert harness.group.is_subscribed_to("bills")


def test_a_group_state_changes_only_as_the_table_allows() -> None:
    harness = GroupHarness()
    harness.stable()
    for new in GroupState:
        if (GroupState.STABLE, new) not in TRANSITIONS:
            with pytest.raises(IllegalTransition, match="cannot go from Stable"):
                harness.group.transition_to(new, "a test")
    assert harness.state is GroupState.STABLE


def test_the_table_of_state_changes_equals_kafkas() -> None:
    before = {new: {old.value for old, into in TRANSITIONS if into is new} for new in GroupState}
    assert before == {
        GroupState.PREPARING_REBALANCE: {"Stable", "CompletingRebalance", "Empty"},
        GroupState.COMPLETING_REBALANCE: {"PreparingRebalance"},
        GroupState.STABLE: {"CompletingRebalance"},
        GroupState.EMPTY: {"PreparingRebalance"},
        GroupState.DEAD: {"Stable", "PreparingRebalance", "CompletingRebalance", "Empty"},
    }
    assert GroupMetadataValue.__schema__.versions.highest == 4
