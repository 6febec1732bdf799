"""The hash of a group's metadata: it changes when a subscribed topic gets partitions, racks or another id. (KIP-1101)

XXH3-64 with seed 0 over a stream of little-endian integers. Names are UTF-16 units followed by their number.

Source: Kafka's Utils (computeTopicHash, computeGroupHash).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import pack
from typing import Protocol
from uuid import UUID

NO_TOPICS = 0
"""The hash of a group without topics, and of a topic that does not exist."""
_FORMAT_OF_TOPIC = b"\x00"
_COUNT_BYTES = 4
_SIGN = 1 << 63


class HashedTopic(Protocol):
    """What the hash of a topic covers."""

    def topic_id(self, name: str) -> UUID | None:
        """Returns the id of the topic; None if it does not exist."""

    def partition_count(self, topic_id: UUID) -> int | None: ...

    def racks(self, topic_id: UUID, partition: int) -> Sequence[str]:
        """Returns the racks of the partition's replicas, one for each that has a rack."""


def topic_hash(topics: HashedTopic, name: str) -> int:
    """Returns the hash of the topic as a signed integer of 64 bits; NO_TOPICS if it does not exist."""
    topic_id = topics.topic_id(name)
    count = None if topic_id is None else topics.partition_count(topic_id)
    if topic_id is None or count is None:
        return NO_TOPICS
    stream = [_FORMAT_OF_TOPIC, pack("<QQ", topic_id.int >> 64, topic_id.int & (1 << 64) - 1), _text(name)]
    stream.append(pack("<i", count))
    for partition in range(count):
        stream.append(pack("<i", partition))
        for rack in sorted(topics.racks(topic_id, partition)):
            text = _text(rack)
            stream += [text[-_COUNT_BYTES:], text]
    return _hash(b"".join(stream))


def group_hash(names: Iterable[str], hash_of: Callable[[str], int]) -> int:
    """Returns the hash of a group that is subscribed to these topics. `hash_of(name)` is `topic_hash`."""
    hashes = [each for each in map(hash_of, sorted(names)) if each != NO_TOPICS]
    return _hash(pack(f"<{len(hashes)}q", *hashes)) if hashes else NO_TOPICS


class TopicHashes:
    """Hashes of topics, kept until `forget`. `hash_of(name)` computes one, see `topic_hash`."""

    __slots__ = ("_hash_of", "_kept")

    def __init__(self, hash_of: Callable[[str], int]) -> None:
        self._hash_of = hash_of
        self._kept: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        kept = self._kept.get(name)
        if kept is None:
            kept = self._hash_of(name)
            if kept != NO_TOPICS:
                self._kept[name] = kept
        return kept

    def forget(self, name: str) -> None:
        """The topic has changed or nobody subscribes to it."""
        self._kept.pop(name, None)

    def forget_all(self) -> None:
        """The racks of brokers have changed."""
        self._kept.clear()


def _text(text: str) -> bytes:
    units = text.encode("utf-16-le")
    return units + pack("<i", len(units) // 2)


def _hash(stream: bytes) -> int:
    import xxhash

    hashed: int = xxhash.xxh3_64_intdigest(stream)
    return hashed - (hashed & _SIGN) * 2
