import base64
import json
import sys
from pathlib import Path
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.offsets.records import (
    NO_TOPIC_ID,
    CommittedOffset,
    key_prefix,
    offset_key,
    offset_tombstone,
    offset_value,
    read_offset,
    read_offset_key,
)
from odradek.broker.coordinator.runtime.record import CoordinatorRecord, encode_value
from odradek.protocol.messages.group_records import OffsetCommitValue
from tests.protocol.vector_files import coordinator_vectors

VECTORS = Path(__file__).parents[4] / "vectors"


def fields(vector: dict[str, object]) -> dict[str, object]:
    found = vector["fields"]
    assert isinstance(found, dict)
    return found


def test_keys_are_encoded_as_kafka_encodes_them() -> None:
    vectors = [each for each in coordinator_vectors("OffsetCommitKey") if each["version"] == 1]
    assert len(vectors) > 3
    for vector in vectors:
        has = fields(vector)
        key = offset_key(key_prefix(str(has["group"]), str(has["topic"])), int(str(has["partition"])))
        assert key.hex() == vector["hex"]


@pytest.mark.parametrize("version", [0, 1])
def test_keys_of_both_versions_decode(version: int) -> None:
    for vector in coordinator_vectors("OffsetCommitKey"):
        if vector["version"] == version:
            read = read_offset_key(CoordinatorRecord(bytes.fromhex(str(vector["hex"])), None))
            assert fields(vector) == {"group": read.group, "topic": read.topic, "partition": read.partition}


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_decode(version: int) -> None:
    vectors = [each for each in coordinator_vectors("OffsetCommitValue") if each["version"] == version]
    assert len(vectors) > 3
    for vector in vectors:
        read, has = read_offset(bytes.fromhex(str(vector["hex"])), 17), fields(vector)
        assert (read.offset, read.metadata, read.log_offset) == (has["offset"], has["metadata"], 17)
        assert read.commit_timestamp == has["commitTimestamp"]
        assert read.leader_epoch == has.get("leaderEpoch", -1)
        assert read.expire_timestamp == has.get("expireTimestamp", -1)


@pytest.mark.parametrize("version", [1, 3])
def test_values_are_encoded_as_kafka_encodes_them(version: int) -> None:
    checked = 0
    for vector in coordinator_vectors("OffsetCommitValue"):
        has = fields(vector)
        if vector["version"] != version or (version == 1 and has["expireTimestamp"] == -1):
            continue
        value = CommittedOffset(
            int(str(has["offset"])),
            int(str(has.get("leaderEpoch", -1))),
            str(has["metadata"]),
            int(str(has["commitTimestamp"])),
            int(str(has.get("expireTimestamp", -1))),
        )
        assert offset_value(value).hex() == vector["hex"]
        checked += 1
    assert checked > 3


def test_offsets_stored_by_a_real_broker_are_encoded_again_byte_for_byte() -> None:
    """Tombstones have no value and are left out."""
    checked = 0
    for contents in (VECTORS / "logs/clean/contents").glob("__consumer_offsets-*.jsonl"):
        for line in contents.read_text().splitlines():
            for record in json.loads(line)["records"]:
                if not isinstance(record["key"], str) or record.get("controlType"):
                    continue
                key = base64.b64decode(record["key"])
                if key[:2] != b"\0\1":
                    continue
                name = read_offset_key(CoordinatorRecord(key, None))
                assert offset_tombstone(key_prefix(name.group, name.topic), name.partition).key == key
                if record["value"] is not None:
                    value = base64.b64decode(record["value"])
                    assert offset_value(read_offset(value, 0)) == value
                    checked += 1
    assert checked > 3


@pytest.mark.parametrize("topic_id", [NO_TOPIC_ID, UUID(int=2**127 + 5)])
@pytest.mark.parametrize("metadata", ["", "text", "t\u00e9xt", "x" * 126, "x" * 127, "x" * 32767])
def test_the_fast_value_encoder_writes_the_same_bytes_as_the_general_encoder(metadata: str, topic_id: UUID) -> None:
    value = OffsetCommitValue(
        offset=2**40, leader_epoch=7, metadata=metadata, commit_timestamp=1_700_000_000_000, topic_id=topic_id
    )
    written = offset_value(CommittedOffset(2**40, 7, metadata, 1_700_000_000_000, topic_id=topic_id))
    assert written == encode_value(value, 3 if topic_id == NO_TOPIC_ID else 4)
    assert read_offset(written, 0).topic_id == topic_id


def test_a_key_keeps_no_reference_to_its_prefix() -> None:
    prefix = key_prefix("group", "topic")
    before = sys.getrefcount(prefix)
    for partition in range(100):
        offset_key(prefix, partition)
    assert sys.getrefcount(prefix) == before
