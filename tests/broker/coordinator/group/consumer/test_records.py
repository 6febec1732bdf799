"""Records of consumer groups that Apache Kafka's serializer wrote are decoded, and encoded again to the same bytes."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.member import ClassicMemberMetadata, ConsumerMember, Owned
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.records import (
    ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    assignment_record,
    group_epoch_record,
    member_record,
    member_tombstones,
    message_of,
    names_of,
    partition_metadata_tombstone,
    regex_record,
    regex_tombstone,
    resolved_in,
    target_epoch_record,
    target_in,
    target_record,
    tombstones_of_group,
    with_assignment,
    with_metadata,
)
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.protocol.errors import MalformedMessage
from tests.protocol.vector_files import coordinator_vectors

A, B = UUID(int=1), UUID(int=2)


def vectors(name: str) -> list[tuple[dict[str, Any], bytes]]:
    """Returns the fields and the bytes of each vector."""
    found = [(one["fields"], bytes.fromhex(one["hex"])) for one in coordinator_vectors(name)]
    assert len(found) > 5
    return found


def knows_all(fields: dict[str, Any]) -> bool:
    """Whether a vector has no fields of a later release, which we do not keep."""
    return "_unknownTaggedFields" not in json.dumps(fields)


def read(kind: int, value: bytes | None) -> Any:
    """Returns the value of a record as it is loaded."""
    return message_of(CoordinatorRecord(kind.to_bytes(2, "big"), value))


def value_of(record: CoordinatorRecord) -> bytes:
    assert record.value is not None
    return record.value


def test_a_group_s_epoch() -> None:
    for fields, data in vectors("ConsumerGroupMetadataValue"):
        value = read(GROUP_EPOCH, data)
        epoch, metadata_hash = value.epoch, value.metadata_hash
        assert (epoch, metadata_hash) == (fields["Epoch"], fields.get("MetadataHash", 0))
        if knows_all(fields):
            assert value_of(group_epoch_record("g", epoch, metadata_hash)) == data


def test_the_epoch_of_a_target() -> None:
    for fields, data in vectors("ConsumerGroupTargetAssignmentMetadataValue"):
        value = read(TARGET_EPOCH, data)
        epoch, timestamp_ms = value.assignment_epoch, value.assignment_timestamp
        assert (epoch, timestamp_ms) == (fields["AssignmentEpoch"], fields.get("AssignmentTimestamp", 0))
        if knows_all(fields):
            assert value_of(target_epoch_record("g", epoch, timestamp_ms)) == data


def test_a_member() -> None:
    for fields, data in vectors("ConsumerGroupMemberMetadataValue"):
        member = with_metadata(ConsumerMember("m"), read(MEMBER, data))
        assert member.instance_id == fields["InstanceId"]
        assert member.rack_id == fields["RackId"]
        assert (member.client_id, member.client_host) == (fields["ClientId"], fields["ClientHost"])
        assert member.subscribed_topics == frozenset(fields["SubscribedTopicNames"])
        assert member.subscribed_regex == (fields["SubscribedTopicRegex"] or "")
        assert member.rebalance_timeout_ms == fields["RebalanceTimeoutMs"]
        assert member.server_assignor == fields["ServerAssignor"]
        classic = fields.get("ClassicMemberMetadata")
        assert (member.classic is None) == (classic is None)
        if member.classic is not None and classic is not None:
            assert member.classic.session_timeout_ms == classic["SessionTimeoutMs"]
            protocols = [(each["Name"], base64.b64decode(each["Metadata"])) for each in classic["SupportedProtocols"]]
            assert list(member.classic.protocols) == protocols
        names = fields["SubscribedTopicNames"]
        if knows_all(fields) and fields["SubscribedTopicRegex"] is not None and names == sorted(set(names)):
            assert value_of(member_record("g", member)) == data


def test_a_target() -> None:
    for fields, data in vectors("ConsumerGroupTargetAssignmentMemberValue"):
        target = target_in(read(TARGET, data))
        topics = fields["TopicPartitions"]
        assert target == {UUID(each["TopicId"]): set(each["Partitions"]) for each in topics if each["Partitions"]}
        if knows_all(fields) and all(
            each["Partitions"] and each["Partitions"] == sorted(set(each["Partitions"])) for each in topics
        ):
            assert value_of(target_record("g", "m", target)) == data


def test_an_assignment() -> None:
    for fields, data in vectors("ConsumerGroupCurrentMemberAssignmentValue"):
        member = with_assignment(ConsumerMember("m"), read(ASSIGNMENT, data))
        assert (member.epoch, member.previous_epoch) == (fields["MemberEpoch"], fields["PreviousMemberEpoch"])
        assert member.state is (MemberState(fields["State"]) if fields["State"] in (0, 1, 2) else MemberState.UNKNOWN)
        parts = fields["AssignedPartitions"], fields["PartitionsPendingRevocation"]
        for owned, topics in zip((member.assigned, member.revoking), parts, strict=True):
            assert owned == expected_epochs(topics, fields["MemberEpoch"])
        everything = [each for part in parts for each in part]
        if knows_all(fields) and fields["State"] in (0, 1, 2, 127) and all(is_ours(each) for each in everything):
            assert value_of(assignment_record("g", member)) == data


def expected_epochs(topics: list[dict[str, Any]], member_epoch: int) -> Owned:
    expected = {}
    for each in topics:
        partitions, epochs = each["Partitions"], each.get("AssignmentEpochs")
        if epochs is None or len(epochs) != len(partitions):
            epochs = [max(member_epoch, 0)] * len(partitions)
        if partitions:
            expected[UUID(each["TopicId"])] = dict(zip(partitions, epochs, strict=True))
    return expected


def is_ours(topic: dict[str, Any]) -> bool:
    """Whether we write the topic so: sorted, with an epoch for each partition."""
    partitions, epochs = topic["Partitions"], topic.get("AssignmentEpochs")
    return bool(partitions) and partitions == sorted(set(partitions)) and len(epochs or ()) == len(partitions)


def test_a_resolved_expression() -> None:
    for fields, data in vectors("ConsumerGroupRegularExpressionValue"):
        resolved = resolved_in(read(REGEX, data))
        topics = fields["Topics"]
        assert resolved.topics == frozenset(topics)
        assert resolved.version == fields["Version"]
        assert resolved.timestamp_ms == fields["Timestamp"]
        if knows_all(fields) and topics == sorted(set(topics)):
            assert value_of(regex_record("g", "r", resolved)) == data


def test_kafka_s_own_log() -> None:
    """The records that a broker of 4.4.0 wrote for the first member of a group."""
    foo = UUID("3b118d64-1ea8-4de0-a543-da2fa76ce654")
    everything = dict.fromkeys(range(6), 2)
    member = ConsumerMember(
        "w",
        client_id="raw",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=5000,
        subscribed_topics=frozenset(("foo",)),
        epoch=2,
        previous_epoch=0,
        assigned={foo: everything},
    )
    partitions = "3b118d641ea84de0a543da2fa76ce65407000000000000000100000002000000030000000400000005"
    assert [
        (each.key.hex(), value_of(each).hex())
        for each in (
            member_record("g1", member),
            group_epoch_record("g1", 2, -6659896561777253280),
            target_record("g1", "w", {foo: frozenset(range(6))}),
            target_epoch_record("g1", 2, 0x1A221809042),
            assignment_record("g1", member),
        )
    ] == [
        ("000500026731000177", "00000000047261770b2f3132372e302e302e310204666f6f01000013880001000100"),
        ("000300026731", "000000000002010008a3934b5cda6be460"),
        ("000700026731000177", f"000002{partitions}0000"),
        ("000600026731", "000000000002010008000001a221809042"),
        (
            "000800026731000177",
            f"000000000002000000000002{partitions}010019070000000200000002000000020000000200000002000000020100",
        ),
    ]


def test_what_deletes_a_group_names_everything_that_it_has() -> None:
    kinds = [record.kind for record in tombstones_of_group("g", ["a", "b"], ["r"])]
    assert kinds == [8, 8, 7, 7, 6, 5, 5, 16, 4, 3]
    written = [
        *member_tombstones("g", "m"),
        regex_tombstone("g", "r"),
        partition_metadata_tombstone("g"),
    ]
    assert [record.kind for record in written] == [8, 7, 5, 16, 4]
    assert all(record.value is None for record in written)


@pytest.mark.parametrize("member_epoch", [-2, -1, 5])
def test_partitions_without_epochs_are_assigned_since_the_member_s_epoch_at_the_latest(member_epoch: int) -> None:
    record = assignment_record("g", ConsumerMember("m", epoch=member_epoch, assigned={A: {0: 3, 1: 3}}))
    stripped = value_of(record).replace(bytes.fromhex("010009030000000300000003"), b"\0")
    assert len(stripped) < len(value_of(record))
    member = with_assignment(ConsumerMember("m"), read(ASSIGNMENT, stripped))
    assert member.assigned == {A: dict.fromkeys((0, 1), max(member_epoch, 0))}


def test_bytes_that_are_no_value_are_refused() -> None:
    for data in (b"", b"\0", b"\0\0\0", b"\0\x09\0\0\0\1\0"):
        for kind in (GROUP_EPOCH, TARGET_EPOCH, TARGET, REGEX, MEMBER, ASSIGNMENT):
            with pytest.raises(MalformedMessage):
                read(kind, data)


def test_a_record_says_the_same_to_the_replay_after_its_append_as_to_a_later_one() -> None:
    member = ConsumerMember(
        "m",
        instance_id="i",
        client_id="c",
        client_host="/::1",
        subscribed_topics=frozenset("ba"),
        subscribed_regex="t.*",
        classic=ClassicMemberMetadata(45_000, (("range", b"\0\1"),)),
        epoch=3,
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned={A: {1: 2, 0: 3}},
        revoking={B: {7: 1}},
    )
    written = [
        group_epoch_record("g", 7, -5),
        target_epoch_record("g", 7, 12),
        target_record("g", "m", {A: frozenset((2, 1))}),
        member_record("g", member),
        assignment_record("g", member),
        regex_record("g", "t.*", ResolvedRegex(frozenset("ba"), 1, 2)),
        *tombstones_of_group("g", ["m"], ["t.*"]),
        *member_tombstones("g", "m"),
    ]
    for record in written:
        loaded = CoordinatorRecord(*record)
        assert (record.kind, names_of(record), message_of(record)) == (
            loaded.kind,
            names_of(loaded),
            message_of(loaded),
        )


def test_resolved_topics_are_sorted() -> None:
    first, second = (regex_record("g", "r", ResolvedRegex(frozenset(names), 1, 2)) for names in ("ab", "ba"))
    assert first == second
