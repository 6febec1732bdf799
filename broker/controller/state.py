"""The controller's decisions: what a request for topics or partitions amounts to, or why it is refused. Synchronous and
without effect.

Each `plan_...` reads the metadata cache and returns what shall be, or raises ProtocolError with the code that Kafka
gives. Each `..._operations` turns a plan into the metadata store's operations, which the controller then applies in
one `multi`.

Where several things are wrong at once the first in Kafka's order counts: existing topic, null setting, partitions
beside an assignment, counts, name, collision, assignment, settings. Source: Kafka's `ZkAdminManager` and
`AdminZkClient`; but unknown brokers in a manual assignment are refused as its KRaft controller does.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.broker.controller import znodes
from odradek.broker.controller.assignment import assign_replicas
from odradek.broker.controller.metadata_store import Create, Delete, Operation, Set
from odradek.broker.metadata.metadata_cache import NO_LEADER, MetadataCache, PartitionState, TopicMetadata
from odradek.broker.metadata.topic_names import topic_name_fault, unified_name
from odradek.protocol.errors import ErrorCode, ProtocolError

UNSET = -1
NOTHING: Mapping[Any, Any] = MappingProxyType({})
"""Many new topics have no assignment and no settings of their own: they share it."""
FIRST_LEADER_EPOCH = 0
MOST_SETTINGS = 30_000
MOST_CONFIG_BYTES = 1 << 20
"""What a topic or a broker may have in settings of its own; the bytes are what ZooKeeper takes (jute.maxbuffer)."""
PARTITIONS_AT_A_TIME = 100
"""Partitions of new topics after which another change may come first."""


class NewTopic(NamedTuple):
    """A topic that somebody wants. UNSET counts stand for the broker's defaults; `assignments` (replicas by
    partition) excludes both counts.
    """

    name: str
    num_partitions: int = UNSET
    replication_factor: int = UNSET
    assignments: Mapping[int, Sequence[int]] = NOTHING
    configs: Mapping[str, str | None] = NOTHING


class NewPartitions(NamedTuple):
    """A total that a topic's partitions shall be raised to; `assignments`, if any, has the replicas of each
    additional one.
    """

    topic: str
    total_count: int
    assignments: Sequence[Sequence[int]] | None = None


class PlannedTopic(NamedTuple):
    """A topic that can be created: replicas by partition, settings as they will be stored."""

    name: str
    replicas: dict[int, tuple[int, ...]]
    config: Mapping[str, str]


class Planner:
    """What plans depend on besides the cache: defaults, chance, the check of a topic's settings, and the topics being
    deleted.

    `validate_config` raises for settings that are none or do not fit (an exception of its own becomes
    INVALID_CONFIG).
    """

    def __init__(
        self,
        cache: MetadataCache,
        source: random.Random,
        *,
        default_partitions: Callable[[], int],
        default_replication_factor: Callable[[], int],
        validate_config: Callable[[Mapping[str, str]], object],
        deleting: Collection[str],
    ) -> None:
        self._cache = cache
        self._random = source
        self._default_partitions = default_partitions
        self._default_replication_factor = default_replication_factor
        self._validate_config = validate_config
        self._deleting = deleting

    def topic(self, new: NewTopic, planned_names: Mapping[str, str] = NOTHING) -> PlannedTopic:
        """Decides about one topic; `planned_names` are those decided on in the same request, by their unified names."""
        if self._cache.topic(new.name) is not None or planned_names.get(unified_name(new.name)) == new.name:
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' exists already")
        config = self._settings(new.configs)
        if new.assignments and (new.num_partitions != UNSET or new.replication_factor != UNSET):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "Give either an assignment or counts of partitions and replicas, not both"
            )
        replicas = self._manual_replicas(new.assignments) if new.assignments else self._replicas(new)
        self._check_name(new.name, planned_names)
        if new.assignments:
            self._check_replicas(replicas, None)
        self.check_config(config)
        return PlannedTopic(new.name, replicas, config)

    def partitions(self, new: NewPartitions) -> dict[int, tuple[int, ...]]:
        """Decides about more partitions: the replicas of the additional ones."""
        if new.topic in self._deleting:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{new.topic}' is being deleted")
        topic = self._cache.topic(new.topic)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{new.topic}'")
        count = len(topic.partitions)
        added = new.total_count - count
        if added <= 0:
            raise ProtocolError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic '{new.topic}' has {count} partitions; {new.total_count} would not be more",
            )
        if new.assignments is None:
            return self._more_replicas(topic, added)
        if len(new.assignments) != added:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added} partitions would be added, but {len(new.assignments)} are assigned",
            )
        replicas = {count + index: tuple(brokers) for index, brokers in enumerate(new.assignments)}
        self._check_replicas(replicas, topic.replication_factor)
        return replicas

    def check_config(self, config: Mapping[str, str]) -> None:
        """Raises INVALID_CONFIG for settings that a topic cannot have."""
        try:
            self._validate_config(config)
        except ProtocolError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _settings(self, configs: Mapping[str, str | None]) -> Mapping[str, str]:
        if not configs:
            return NOTHING
        config = {name: value for name, value in configs.items() if value is not None}
        if len(config) != len(configs):
            nulls = ", ".join(sorted(configs.keys() - config.keys()))
            raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Settings without a value: {nulls}")
        return config

    def _replicas(self, new: NewTopic) -> dict[int, tuple[int, ...]]:
        partitions = self._default_partitions() if new.num_partitions == UNSET else new.num_partitions
        factor = self._default_replication_factor() if new.replication_factor == UNSET else new.replication_factor
        if partitions <= 0:
            raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: at least 1 is needed")
        if factor <= 0:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"Replication factor {factor}: at least 1 is needed"
            )
        brokers = sorted(self._cache.brokers)
        if factor > len(brokers):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor {factor} is more than the {len(brokers)} brokers that are available",
            )
        return assign_replicas(brokers, partitions, factor, self._random)

    def _more_replicas(self, topic: TopicMetadata, added: int) -> dict[int, tuple[int, ...]]:
        brokers = sorted(self._cache.brokers)
        factor = topic.replication_factor
        if factor > len(brokers):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor {factor} is more than the {len(brokers)} brokers that are available",
            )
        first = topic.partitions[0].replicas[0]
        start = next((index for index, broker in enumerate(brokers) if broker >= first), 0)
        return assign_replicas(
            brokers, added, factor, self._random, first_partition=len(topic.partitions), start_index=start
        )

    def _check_name(self, name: str, planned_names: Mapping[str, str]) -> None:
        fault = topic_name_fault(name)
        if fault is None and name in self._deleting:
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is still being deleted")
        if fault is None:
            other = self._cache.colliding_topic(name) or planned_names.get(unified_name(name))
            if other is not None:
                fault = f"Topic '{name}' would collide with '{other}': '.' and '_' are the same in metric names"
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)

    def _manual_replicas(self, assignments: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, ...]]:
        return {partition: tuple(brokers) for partition, brokers in sorted(assignments.items())}

    def _check_replicas(self, replicas: Mapping[int, tuple[int, ...]], factor: int | None) -> None:
        """`factor` is what every partition must have; None: all the same, and partitions are counted from 0."""
        fault = None
        if factor is None and sorted(replicas) != list(range(len(replicas))):
            fault = "Partitions must be numbered from 0 without gaps"
        sizes = {len(brokers) for brokers in replicas.values()} | ({factor} if factor is not None else set())
        if len(sizes) != 1:
            fault = "All partitions need the same number of replicas"
        live = len(self._cache.brokers)
        for partition, brokers in replicas.items():
            if not brokers:
                fault = f"Partition {partition} has no replicas"
            elif len(brokers) > live:
                fault = f"Partition {partition} is assigned to {len(brokers)} brokers; {live} are there"
            elif len(set(brokers)) != len(brokers):
                fault = f"Partition {partition} has a broker twice"
            elif not set(brokers) <= self._cache.brokers.keys():
                unknown = sorted(set(brokers) - self._cache.brokers.keys())
                fault = f"Partition {partition} is assigned to brokers that are not there: {unknown}"
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def pieces(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """The topics, some at a time: as many as have PARTITIONS_AT_A_TIME, one at least."""
    piece: list[NewTopic] = []
    partitions = 0
    for topic in topics:
        piece.append(topic)
        partitions += max(topic.num_partitions, len(topic.assignments), 1)
        if partitions >= PARTITIONS_AT_A_TIME:
            yield piece
            piece, partitions = [], 0
    if piece:
        yield piece


def encoded_config(config: Mapping[str, str]) -> bytes:
    """As it is stored. Raises POLICY_VIOLATION where it is too much for one entry."""
    if len(config) > MOST_SETTINGS:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION, f"{len(config)} settings; {MOST_SETTINGS} can be stored")
    data = znodes.encode_config(config)
    if len(data) > MOST_CONFIG_BYTES:
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION, f"The settings take {len(data)} bytes; {MOST_CONFIG_BYTES} can be stored"
        )
    return data


def new_partition(
    partition: int, replicas: tuple[int, ...], live: Collection[int], controller_epoch: int
) -> PartitionState:
    """A partition's first state: led by its first live replica, all live ones in sync."""
    isr = tuple(broker for broker in replicas if broker in live)
    leader = isr[0] if isr else NO_LEADER
    return PartitionState(partition, leader, FIRST_LEADER_EPOCH, replicas, isr, controller_epoch)


def new_topic(
    planned: PlannedTopic, topic_id: uuid.UUID, live: Collection[int], controller_epoch: int
) -> TopicMetadata:
    """A planned topic with the first states of its partitions."""
    states = {
        partition: new_partition(partition, replicas, live, controller_epoch)
        for partition, replicas in planned.replicas.items()
    }
    return TopicMetadata(planned.name, topic_id, states)


def topic_creation_operations(topic: TopicMetadata, config: Mapping[str, str]) -> Iterator[Operation]:
    """Stores a new topic: settings, assignment, and every partition's state."""
    yield Create(znodes.topic_config_path(topic.name), znodes.encode_config(config))
    yield Create(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, topic.partitions.values()))
    yield Create(znodes.partitions_path(topic.name))
    yield from partition_creation_operations(topic.name, topic.partitions.values())


def partition_creation_operations(topic: str, states: Collection[PartitionState]) -> Iterator[Operation]:
    """Stores the states of new partitions."""
    for state in states:
        yield Create(znodes.partition_path(topic, state.partition))
        yield Create(znodes.state_path(topic, state.partition), znodes.encode_state(state))


def partition_addition_operations(topic: TopicMetadata, added: Mapping[int, PartitionState]) -> Iterator[Operation]:
    """Stores a topic with more partitions."""
    states = (*topic.partitions.values(), *added.values())
    yield Set(znodes.topic_path(topic.name), znodes.encode_topic(topic.topic_id, states))
    yield from partition_creation_operations(topic.name, added.values())


def topic_removal_operations(
    name: str, partitions: Collection[int], *, has_config: bool, is_marked: bool
) -> Iterator[Operation]:
    """Removes all that is stored about a topic, its deletion mark last."""
    for partition in partitions:
        yield Delete(znodes.state_path(name, partition))
        yield Delete(znodes.partition_path(name, partition))
    yield Delete(znodes.partitions_path(name))
    yield Delete(znodes.topic_path(name))
    if has_config:
        yield Delete(znodes.topic_config_path(name))
    if is_marked:
        yield Delete(znodes.deletion_path(name))
