"""What consumers that speak the classic protocol say in JoinGroup and are told in SyncGroup: bytes after a version.

Bytes of a later version than the latest known one are read as that one: fields are only added at the end.

Source: Kafka's ConsumerProtocol, Utils (toConsumerProtocolAssignment, toTopicPartitionMap, toTopicPartitions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar
from uuid import UUID

from odradek.broker.coordinator.group.consumer.member import Partitions
from odradek.protocol.compiler import decode, encode_versioned, versioned_version
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.schema import Message

LATEST = 3
"""The latest version, of subscriptions and of assignments."""
MOST_BYTES = 192 << 10
MOST_TOPICS = 8_000
"""What more bytes say, or of more topics, is refused: it is read at once."""
_VERSION_BYTES = 2
_COUNT = slice(_VERSION_BYTES, _VERSION_BYTES + 4)
"""Where the number of the first array's elements is: the topics of a subscription, or of an assignment."""
M = TypeVar("M", bound=Message)


class Names(Protocol):
    """The topics that exist."""

    def topic_id(self, name: str) -> UUID | None: ...

    def name(self, topic_id: UUID) -> str | None: ...


class _OfTopic(Protocol):
    topic: str
    partitions: list[int]


def _version(data: bytes) -> int:
    version = versioned_version(data)
    if version < 0:
        raise MalformedMessage(f"version {version} of consumers' metadata")
    return min(version, LATEST)


def _read(cls: type[M], data: bytes) -> M:
    if len(data) > MOST_BYTES:
        raise MalformedMessage(f"{len(data)} bytes of consumers' metadata, more than {MOST_BYTES}")
    _check_count(int.from_bytes(data[_COUNT], "big", signed=True))
    return decode(cls, _version(data), data, _VERSION_BYTES)


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Raises MalformedMessage."""
    subscription = _read(ConsumerProtocolSubscription, metadata)
    _check_count(len(subscription.owned_partitions))
    return subscription


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Returns an empty one for no bytes: the member has not been assigned anything yet. Raises MalformedMessage."""
    return _read(ConsumerProtocolAssignment, assignment) if assignment else ConsumerProtocolAssignment()


def _check_count(topics: int) -> None:
    if topics > MOST_TOPICS:
        raise MalformedMessage(f"{topics} topics in consumers' metadata, more than {MOST_TOPICS}")


def by_topic_id(topics: Iterable[_OfTopic], names: Names) -> Partitions:
    """Returns the partitions of the topics that exist."""
    found: dict[UUID, set[int]] = {}
    for each in topics:
        topic_id = names.topic_id(each.topic)
        if topic_id is not None and each.partitions:
            found.setdefault(topic_id, set()).update(each.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in found.items()}


def written_assignment(assigned: Mapping[UUID, Iterable[int]], subscription: bytes, names: Names) -> bytes:
    """Returns the assignment in the version of the member's subscription, without topics that no longer exist."""
    named = [(names.name(topic_id), sorted(partitions)) for topic_id, partitions in assigned.items()]
    topics = [
        ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=partitions)
        for name, partitions in named
        if name is not None
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), _version(subscription))
