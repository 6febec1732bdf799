"""How topics and settings are stored. Each `..._operations` function turns a plan of `topic_planner.py` into operations
for the metadata store, which the controller applies in one `multi`.

Source: Kafka's `AdminZkClient` and `KafkaZkClient`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from odradek.broker.controller.partition_states import is_new
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, Delete, Operation, Set
from odradek.protocol.errors import ErrorCode, ProtocolError

MOST_SETTINGS = 30_000
MOST_CONFIG_BYTES = 1 << 20
"""The limits on the settings of one topic or broker. The byte limit is ZooKeeper's (jute.maxbuffer)."""


def encoded_config(config: Mapping[str, str]) -> bytes:
    """Encodes settings for storage. Raises POLICY_VIOLATION if they exceed the limits of one entry."""
    if len(config) > MOST_SETTINGS:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"{len(config)} settings; {MOST_SETTINGS} can be stored")
    data = znodes.encode_config(config)
    if len(data) > MOST_CONFIG_BYTES:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"The settings take {len(data)} bytes; {MOST_CONFIG_BYTES} can be stored"
        )
    return data


def topic_creation_operations(topic: TopicMetadata, config: Mapping[str, str]) -> Iterator[Operation]:
    """Stores a new topic: settings, assignment, and every partition's state."""
    yield Create(znodes.topic_config_path(topic.name), znodes.encode_config(config))
    yield Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions.values()))
    yield Create(znodes.partitions_path(topic.name))
    yield from partition_creation_operations(topic.name, topic.partitions.values())


def partition_creation_operations(topic: str, states: Collection[PartitionState]) -> Iterator[Operation]:
    """Stores the states of new partitions. A partition without any live replica has none yet."""
    for state in states:
        if not is_new(state):
            yield Create(znodes.partition_path(topic, state.partition))
            yield Create(znodes.state_path(topic, state.partition), znodes.encode_state(state))


def partition_addition_operations(
    topic: TopicMetadata, existing: Collection[PartitionState], added: Mapping[int, PartitionState]
) -> Iterator[Operation]:
    """Stores a topic with more partitions."""
    states = (*existing, *added.values())
    yield Set(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, states))
    yield from partition_creation_operations(topic.name, added.values())


def topic_removal_operations(name: str, partitions: Collection[int], *, has_config: bool) -> Iterator[Operation]:
    """Removes everything that is stored about a topic, its deletion mark last. `partitions` are those with a state."""
    for partition in partitions:
        yield Delete(znodes.state_path(name, partition))
        yield Delete(znodes.partition_path(name, partition))
    yield Delete(znodes.partitions_path(name))
    yield Delete(znodes.topic_path(name))
    if has_config:
        yield Delete(znodes.topic_config_path(name))
    yield Delete(znodes.deletion_path(name))
