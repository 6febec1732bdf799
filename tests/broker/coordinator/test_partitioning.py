"""Java's hash of a group's or a transactional id, against Java's."""

import json
from pathlib import Path

from odradek.broker.coordinator.java_hash import java_string_hash, partition_for

VECTORS = json.loads(
    (Path(__file__).parents[2] / "vectors" / "coordinator_records" / "default_partitions.json").read_text("utf-8")
)


def test_ids_have_javas_hash() -> None:
    assert len(VECTORS["ids"]) > 10
    assert any(len(vector["id"].encode("utf-16-le")) > 2 * len(vector["id"]) for vector in VECTORS["ids"])
    for vector in VECTORS["ids"]:
        assert java_string_hash(vector["id"]) == vector["hashCode"], vector["id"]


def test_ids_have_kafkas_partitions() -> None:
    for vector in VECTORS["ids"]:
        assert partition_for(vector["id"], 50) == vector["partitionOf50"], vector["id"]
        assert partition_for(vector["id"], 7) == vector["partitionOf7"], vector["id"]


def test_half_a_surrogate_pair_has_a_hash_too() -> None:
    assert java_string_hash("\ud83d") == 0xD83D
