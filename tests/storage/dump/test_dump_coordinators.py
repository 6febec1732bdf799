"""Unusual records of the coordinators' topics are printed as Kafka's DumpLogSegments prints them."""

import json
import struct
from typing import Any

import pytest

from odradek.protocol.compiler import encode_versioned, versioned_version
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.records import Record
from odradek.protocol.schema import Message
from odradek.storage.dump.coordinators import offsets_texts, transaction_texts
from tests.protocol.vector_files import lines_of

GROUP = encode_versioned(GroupMetadataKey(group="g"), 2)
OFFSET = encode_versioned(OffsetCommitKey(group="g", topic="t", partition=1), 1)
TRANSACTION = encode_versioned(TransactionLogKey(transactional_id="id"), 0)
SUBSCRIPTION = ConsumerProtocolSubscription(topics=["t"], user_data=b"u")
ASSIGNMENT = ConsumerProtocolAssignment(
    assigned_partitions=[ConsumerProtocolAssignment.TopicPartition(topic="t", partitions=[1, 2])]
)
NEWEST = {
    "subscription": {"topics": ["t"], "userData": "dQ==", "ownedPartitions": [], "generationId": -1, "rackId": None},
    "assignment": {"assignedPartitions": [{"topic": "t", "partitions": [1, 2]}], "userData": None},
}


def versioned(message: Message, layout: int, version: int | None = None, behind: bytes = b"") -> bytes:
    """Returns a message encoded as one version but labeled as another."""
    data = encode_versioned(message, layout)
    return (data if version is None else struct.pack(">h", version) + data[2:]) + behind


def member(subscription: bytes, assignment: bytes, protocol_type: str = "consumer") -> Any:
    """Returns a member as the dump of its group shows it."""
    one = GroupMetadataValue.MemberMetadata(member_id="m", subscription=subscription, assignment=assignment)
    value = GroupMetadataValue(protocol_type=protocol_type, generation=1, protocol="p", leader="m", members=[one])
    _, text = offsets_texts(Record(0, 0, GROUP, encode_versioned(value, 3)))
    assert text is not None
    (found,) = json.loads(text)["data"]["members"]
    return {name: found[name] for name in ("subscription", "assignment")}


def transaction(status: int, version: int = 0) -> str:
    partitions = [TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[1, 0])]
    value = TransactionLogValue(
        producer_id=1,
        producer_epoch=2,
        transaction_timeout_ms=3,
        transaction_status=status,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=4,
        transaction_start_timestamp_ms=5,
    )
    key, text = transaction_texts(Record(0, 0, TRANSACTION, encode_versioned(value, version)))
    assert key == '{"type":"0","data":{"transactionalId":"id"}}'
    assert text is not None
    return text


def test_group_records_are_printed_as_by_kafka_4_4() -> None:
    """The lines are those that its DumpLogSegments printed for the records."""
    checked = set()
    for line in lines_of("kafka_4.4/dumped_group_records.jsonl"):
        key, value = bytes.fromhex(line["key"]), bytes.fromhex(line["value"])
        assert offsets_texts(Record(7, 0, key, value)) == (line["keyText"], line["valueText"])
        checked.add(versioned_version(key))
    assert checked == {*range(1, 9), *range(10, 18), *range(19, 24)}


def test_members_of_consumer_groups_are_decoded() -> None:
    assert member(versioned(SUBSCRIPTION, 3), versioned(ASSIGNMENT, 3)) == NEWEST


@pytest.mark.parametrize("version", [4, 9, 32767])
@pytest.mark.parametrize("behind", [b"", b"more"])
def test_versions_above_ours_are_read_as_our_newest(version: int, behind: bytes) -> None:
    found = member(versioned(SUBSCRIPTION, 3, version, behind), versioned(ASSIGNMENT, 3, version, behind))
    assert found == NEWEST


def test_versions_below_0_are_read_as_our_oldest() -> None:
    found = member(versioned(SUBSCRIPTION, 0, -1), versioned(ASSIGNMENT, 0, -1))
    assert found["subscription"] == {"topics": ["t"], "userData": "dQ=="}
    assert found["assignment"] == NEWEST["assignment"]


@pytest.mark.parametrize(
    ("data", "text"), [(b"", ""), (b"\x00", "AA=="), (versioned(SUBSCRIPTION, 3)[:9], "AAMAAAABAAF0")]
)
def test_undecodable_bytes_are_kept(data: bytes, text: str) -> None:
    assert member(data, data) == {"subscription": text, "assignment": text}


def test_members_of_other_groups_are_not_decoded() -> None:
    found = member(b"abc", b"def", "connect")
    assert found == {"subscription": "YWJj", "assignment": "ZGVm"}


@pytest.mark.parametrize(
    ("key", "value", "texts"),
    [
        (GROUP, None, ('{"type":"2","data":{"group":"g"}}', "<DELETE>")),
        (OFFSET, None, ('{"type":"1","data":{"group":"g","topic":"t","partition":1}}', "<DELETE>")),
        (struct.pack(">h", 99) + b"abc", b"x", ("Unknown record type 99 at offset 7, skipping.", None)),
        (struct.pack(">h", -5), None, ("Unknown record type -5 at offset 7, skipping.", None)),
    ],
)
def test_tombstones_and_unknown_record_types_are_reported(
    key: bytes, value: bytes | None, texts: tuple[str, str | None]
) -> None:
    assert offsets_texts(Record(7, 0, key, value)) == texts


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"x"),
        (b"", b"x"),
        (b"\x00", b"x"),
        (OFFSET[:6], b""),
        (GROUP, b""),
        (GROUP, b"\x00"),
        (GROUP, struct.pack(">h", 9) + b"xx"),
        (GROUP, struct.pack(">h", -1) + b"xx"),
        (OFFSET, encode_versioned(OffsetCommitValue(offset=1), 3)[:-1]),
    ],
)
def test_an_invalid_group_record_is_reported_in_its_place(key: bytes | None, value: bytes) -> None:
    text, payload = offsets_texts(Record(7, 0, key, value))
    assert text is not None
    assert text.startswith("Error at offset 7, skipping. ")
    assert payload is None


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
        (8, "8"),
        (-1, "-1"),
    ],
)
def test_transactions_are_printed_with_their_states(status: int, state: str) -> None:
    fields = (
        f'"producerId":1,"producerEpoch":2,"transactionTimeoutMs":3,"transactionStatus":"{state}",'
        '"transactionPartitions":[{"topic":"t","partitionIds":[1,0]}],"transactionLastUpdateTimestampMs":4,'
        '"transactionStartTimestampMs":5'
    )
    for version in (0, 1):
        assert transaction(status, version) == f'{{"version":"{version}","data":{{{fields}}}}}'


def test_transactions_are_printed_as_by_kafka_4_4() -> None:
    """The lines are those that its DumpLogSegments printed for the records."""
    checked = set()
    for line in lines_of("kafka_4.4/dumped_transaction_records.jsonl"):
        value = bytes.fromhex(line["value"])
        assert transaction_texts(Record(7, 0, TRANSACTION, value)) == (line["keyText"], line["valueText"])
        checked.add(versioned_version(value))
    assert checked == {0, 1}


@pytest.mark.parametrize("key", [None, b"", b"\x01", TRANSACTION[:4]])
def test_an_invalid_transaction_record_is_reported_in_its_place(key: bytes | None) -> None:
    text, payload = transaction_texts(Record(7, 0, key, b""))
    assert text is not None
    assert text.startswith("Error at offset 7, skipping. ")
    assert payload is None


def test_the_transaction_decoder_reports_unknown_key_types() -> None:
    other = struct.pack(">h", 1) + b"xx"
    assert transaction_texts(Record(7, 0, other, b"x")) == ("Unknown record type 1 at offset 7, skipping.", None)
    assert transaction_texts(Record(7, 0, TRANSACTION, None))[1] == "<DELETE>"
