"""Coordinator records that Apache Kafka's serializer wrote are decoded into the shards' state and encoded again.

The codec has its own tests with these vectors. Here the numbers and the transaction states are random.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from odradek.broker.coordinator.group.classic.records import group_metadata_record, read_group_id, restore_group
from odradek.broker.coordinator.group.offsets.records import offset_value, read_offset, read_offset_key
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, decode_value, encode_key
from odradek.broker.coordinator.transaction.records import read_transaction, transaction_record
from odradek.broker.coordinator.transaction.transaction_state import EMPTY, TransactionState
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.group_records import GroupMetadataKey, OffsetCommitValue
from odradek.protocol.messages.transaction_records import TransactionLogKey
from tests.broker.coordinator.group.harness import new_group
from tests.protocol.vector_files import coordinator_vectors

IN_THE_LOG = range(6)


def vectors(name: str) -> list[tuple[int, dict[str, Any], bytes]]:
    """Returns (version, fields, bytes) of each vector."""
    return [(one["version"], one["fields"], bytes.fromhex(one["hex"])) for one in coordinator_vectors(name)]


def test_keys_decode_to_the_ids_that_they_encode() -> None:
    for _, fields, data in vectors("GroupMetadataKey"):
        assert read_group_id(CoordinatorRecord(data, None)) == fields["group"]
    for _, fields, data in vectors("OffsetCommitKey"):
        key = read_offset_key(CoordinatorRecord(data, None))
        assert (key.group, key.topic, key.partition) == (fields["group"], fields["topic"], fields["partition"])
    for _, fields, data in vectors("TransactionLogKey"):
        assert read_transaction(CoordinatorRecord(data, None)) == (fields["TransactionalId"], None)


def test_committed_offsets_of_every_version_decode_and_written_versions_encode_identically() -> None:
    written = set()
    for version, fields, data in vectors("OffsetCommitValue"):
        offset = read_offset(data, 7)
        assert offset.offset == fields["offset"]
        assert offset.leader_epoch == fields.get("leaderEpoch", -1)
        assert offset.metadata == fields["metadata"]
        assert offset.commit_timestamp == fields["commitTimestamp"]
        assert offset.expire_timestamp == fields.get("expireTimestamp", -1)
        again = offset_value(offset)
        if again[:2] == data[:2] and not decode_value(OffsetCommitValue, data)[1].unknown_tagged_fields:
            assert again == data
            written.add(version)
    assert written == {1, 3, 4}


def test_groups_of_every_version_decode_and_the_written_version_encodes_identically() -> None:
    written = 0
    for version, fields, data in vectors("GroupMetadataValue"):
        if fields["protocol"] is None and fields["members"]:
            with pytest.raises(MalformedMessage):
                restore_group(new_group(), data)
            continue
        group = restore_group(new_group(), data)
        assert group.generation_id == fields["generation"]
        assert group.current_state_timestamp_ms == fields.get("currentStateTimestamp", -1)
        assignments = {}
        for member, expected in zip(group.members, fields["members"], strict=True):
            assert (member.member_id, member.client_id, member.client_host) == (
                expected["memberId"],
                expected["clientId"],
                expected["clientHost"],
            )
            assert member.group_instance_id == expected.get("groupInstanceId")
            assert member.session_timeout_ms == expected["sessionTimeout"]
            assert member.rebalance_timeout_ms == expected.get("rebalanceTimeout", expected["sessionTimeout"])
            assert member.metadata(fields["protocol"]) == base64.b64decode(expected["subscription"])
            assignments[member.member_id] = base64.b64decode(expected["assignment"])
            assert member.assignment == assignments[member.member_id]
        if version == 3 and fields["members"]:
            record = group_metadata_record(group, assignments)
            assert record == CoordinatorRecord(encode_key(GroupMetadataKey(group="g"), 2), data)
            written += 1
    assert written > 5


@pytest.mark.parametrize("status", [*IN_THE_LOG, 6, 7, 8, 127, -1, -128])
def test_transactions_of_every_version_decode_and_the_written_version_encodes_identically(status: int) -> None:
    key = encode_key(TransactionLogKey(transactional_id="id"), 0)
    written = 0
    for version, fields, data in vectors("TransactionLogValue"):
        position = 2 + 8 + 2 + 4  # position of the state
        data = data[:position] + (status & 0xFF).to_bytes(1, "big") + data[position + 1 :]
        record = CoordinatorRecord(key, data)
        if status not in IN_THE_LOG:
            with pytest.raises(MalformedMessage):
                read_transaction(record)
            continue
        transactional_id, transit = read_transaction(record)
        assert transit is not None
        assert (transactional_id, transit.state) == ("id", TransactionState(status))
        assert (transit.producer_id, transit.producer_epoch) == (fields["ProducerId"], fields["ProducerEpoch"])
        assert transit.timeout_ms == fields["TransactionTimeoutMs"]
        assert transit.start_ms == fields["TransactionStartTimestampMs"]
        assert transit.update_ms == fields["TransactionLastUpdateTimestampMs"]
        partitions = {(one["Topic"], n) for one in fields["TransactionPartitions"] or () for n in one["PartitionIds"]}
        assert {tuple(one) for one in transit.partitions} == (set() if status == EMPTY else partitions)
        ordered = len(fields["TransactionPartitions"] or ()) == 1 and len(partitions) == 1
        if version == 0 and status != EMPTY and ordered:
            assert transaction_record("id", transit) == record
            written += 1
    assert written > 0 or status not in IN_THE_LOG or status == EMPTY
