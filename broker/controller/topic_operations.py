"""How topics and settings are stored: turns a plan of `topic_planner.py` into operations for the metadata store.

What one topic takes may be too long for one transaction (`pieces.py`). Its assignment and its settings are an entry
each, and what cannot be stored is refused with POLICY_VIOLATION, as Kafka's KRaft controller refuses changes that are
too large. (Its controller with ZooKeeper never answers.)

Source: Kafka's `AdminZkClient` and `KafkaZkClient`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from odradek.broker.background.stepwise import Steps
from odradek.broker.controller.partition_states import is_new
from odradek.broker.controller.pieces import LongChange, Unit
from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import LONGEST_ENTRY, Create, Delete, Set
from odradek.protocol.errors import ErrorCode, ProtocolError

MOST_SETTINGS = 30_000
MOST_CONFIG_BYTES = LONGEST_ENTRY
"""The limits on the settings of one topic or broker."""
ENTRY_BYTES = 150
"""A topic's entry without its partitions takes less."""
LIST_BYTES = 5
"""A list of replicas in JSON takes this much more than its partition and its brokers, whose text as a tuple has a space
after each comma.
"""


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


def check_assignment(topic: str, replicas: Iterable[tuple[int, tuple[int, ...]]], *, others: int = 0) -> None:
    """Raises POLICY_VIOLATION if a topic's entry is too long to be stored, together with `others` bytes. `replicas` are
    those of each partition; a partition that is being reassigned has several lists.
    """
    size = ENTRY_BYTES + others
    sizes: dict[tuple[int, ...], int] = {}
    for partition, brokers in replicas:
        if brokers not in sizes:
            sizes[brokers] = len(str(brokers)) - len(brokers) + LIST_BYTES
        size += len(str(partition)) + sizes[brokers]
    if size > LONGEST_ENTRY:
        raise assignment_too_long(topic, size)


def assignment_too_long(topic: str, size: int) -> ProtocolError:
    """Why a topic's assignment cannot be stored."""
    return ProtocolError(
        ErrorCode.POLICY_VIOLATION,
        f"The replicas of all partitions of topic '{topic}' take {size} bytes in its entry; {LONGEST_ENTRY} can be "
        "stored",
    )


def topic_creation(topic: TopicMetadata, config: Mapping[str, str], *, has_config: bool) -> Steps[LongChange]:
    """Stores a new topic: settings and assignment, then every partition's state. `has_config`: settings that an earlier
    topic has left behind are replaced.
    """
    name, path, settings = topic.name, znodes.topic_config_path(topic.name), znodes.encode_config(config)
    head = [
        Set(path, settings) if has_config else Create(path, settings),
        Create(znodes.topic_path(name), (yield from znodes.topic_encoding(topic.topic_id, topic.partitions.values()))),
        Create(znodes.partitions_path(name)),
    ]
    undo = [Delete(znodes.partitions_path(name)), Delete(znodes.topic_path(name)), Delete(path)]
    return LongChange(head, partition_creations(name, topic.partitions.values()), undo)


def partition_creations(topic: str, states: Collection[PartitionState]) -> Iterator[Unit]:
    """Stores the states of new partitions. A partition without any live replica has none yet."""
    for state in states:
        if not is_new(state):
            yield (
                Create(znodes.partition_path(topic, state.partition)),
                Create(znodes.state_path(topic, state.partition), znodes.encode_state(state)),
            )


def partition_addition(
    topic: TopicMetadata, existing: Collection[PartitionState], added: Mapping[int, PartitionState]
) -> Steps[LongChange]:
    """Stores a topic with more partitions: the assignment, then the states of the new ones."""
    path = znodes.topic_path(topic.name)
    before = yield from znodes.topic_encoding(topic.topic_id, existing)
    yield
    after = yield from znodes.topic_encoding(topic.topic_id, (*existing, *added.values()))
    return LongChange([Set(path, after)], partition_creations(topic.name, added.values()), [Set(path, before)])


def topic_removal(name: str, partitions: Collection[int], *, has_config: bool) -> Iterator[Unit]:
    """Removes everything that is stored about a topic, its deletion mark last. `partitions` are those with a state."""
    for partition in partitions:
        yield Delete(znodes.state_path(name, partition)), Delete(znodes.partition_path(name, partition))
    config = [znodes.topic_config_path(name)] if has_config else []
    last = (znodes.partitions_path(name), znodes.topic_path(name), *config, znodes.deletion_path(name))
    yield [Delete(path) for path in last]
