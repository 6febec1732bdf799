"""Our version of Java's string hash of group ids and transactional ids, against Java's own hashes."""

import json
from pathlib import Path

from odradek.broker.coordinator.runtime.runtime import java_string_hash, partition_for

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "coordinator_records" / "default_partitions.json").read_text("utf-8")
)


def test_ids_are_hashed_as_java_hashes_them() -> None:
    assert len(VECTORS["ids"]) > 10
    assert any(len(vector["id"].encode("utf-16-le")) > 2 * len(vector["id"]) for vector in VECTORS["ids"])
    for vector in VECTORS["ids"]:
        assert java_string_hash(vector["id"]) == vector["hashCode"], vector["id"]


def test_ids_map_to_the_same_partitions_as_in_kafka() -> None:
    for vector in VECTORS["ids"]:
        assert partition_for(vector["id"], 50) == vector["partitionOf50"], vector["id"]
        assert partition_for(vector["id"], 7) == vector["partitionOf7"], vector["id"]


def test_half_a_surrogate_pair_can_be_hashed() -> None:
    assert java_string_hash("\ud83d") == 0xD83D
