"""The controller's decisions on topics and partitions: what a request changes, or why it is refused. Synchronous,
without side effects.

The methods of `Planner` read the metadata cache and return the planned state, or raise ProtocolError with Kafka's error
code; `topic_operations.py` stores it.

If a request has several errors, the first in Kafka's order is reported: existing topic, null setting, counts beside an
assignment, counts, name, collision, assignment, settings; and then what is too long to be stored. Source: Kafka's
`ZkAdminManager` and `AdminZkClient`; but unknown brokers in a manual assignment are refused as its KRaft controller
does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from uuid import UUID

from odradek.broker.controller.assignment import assign_replicas
from odradek.broker.controller.topic_operations import check_assignment, encoded_config
from odradek.broker.metadata.metadata_cache import MetadataCache, PartitionState, TopicMetadata
from odradek.broker.metadata.new_topic import NOTHING, UNSET, NewPartitions, NewTopic
from odradek.broker.metadata.topic_names import topic_name_fault, unified_name
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import ZERO_UUID

PARTITIONS_AT_A_TIME = 100
"""The number of new partitions after which another change may run."""


class PlannedTopic(NamedTuple):
    """A topic that can be created: replicas by partition, and settings as they will be stored. Its id is zero until it
    is created.
    """

    name: str
    replicas: dict[int, tuple[int, ...]]
    config: Mapping[str, str]
    topic_id: UUID = ZERO_UUID


class Planner:
    """Plans new topics and partitions. Besides the cache, plans depend on defaults, randomness, the validation of topic
    settings, the topics being deleted (which are still in the cache), those whose entries are damaged, and whether
    partitions of a topic are being reassigned.

    `validate_config` raises for unknown or invalid settings; an exception other than ProtocolError is reported as
    INVALID_CONFIG.
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
        damaged: Collection[str],
        is_being_reassigned: Callable[[str], bool],
    ) -> None:
        self._cache = cache
        self._random = source
        self._default_partitions = default_partitions
        self._default_replication_factor = default_replication_factor
        self._validate_config = validate_config
        self._deleting = deleting
        self._damaged = damaged
        self._is_being_reassigned = is_being_reassigned

    def topic(self, new: NewTopic, planned_names: Mapping[str, str] = NOTHING) -> PlannedTopic:
        """Plans one topic; `planned_names` are the names already planned for the same request, by unified name."""
        if self._cache.topic(new.name) is not None or planned_names.get(unified_name(new.name)) == new.name:
            state = "is still being deleted" if new.name in self._deleting else "already exists"
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' {state}.")
        if new.name in self._damaged:
            message = f"Topic '{new.name}' exists, but its entries in the metadata store are damaged"
            raise ProtocolError(ErrorCode.TOPIC_ALREADY_EXISTS, message)
        config = self._settings(new.configs)
        if new.assignments and (new.num_partitions != UNSET or new.replication_factor != UNSET):
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "Specify either an assignment or counts of partitions and replicas, not both"
            )
        replicas = self._manual_replicas(new.assignments) if new.assignments else self._replicas(new)
        self._check_name(new.name, planned_names)
        if new.assignments:
            self._check_replicas(replicas, None)
        check_config(config, self._validate_config)
        self._check_size(new.name, (), replicas, len(encoded_config(config)))
        return PlannedTopic(new.name, replicas, config)

    def partitions(self, new: NewPartitions) -> dict[int, tuple[int, ...]]:
        """Plans additional partitions. Returns their replicas."""
        if new.topic in self._deleting:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{new.topic}' is being deleted")
        topic = self._cache.topic(new.topic)
        if topic is None:
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{new.topic}'")
        if self._is_being_reassigned(new.topic):
            message = f"A partition reassignment is in progress for the topic '{new.topic}'."
            raise ProtocolError(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
        count = len(topic.partitions)
        added = new.total_count - count
        if added <= 0:
            has = f"Topic already has {count} partitions."
            if added:
                has = f"Topic currently has {count} partitions, which is higher than the requested {new.total_count}."
            raise ProtocolError(ErrorCode.INVALID_PARTITIONS, has)
        if new.assignments is None:
            replicas = self._more_replicas(topic, added)
        elif len(new.assignments) != added:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {added} but {len(new.assignments)} assignments provided.",
            )
        else:
            replicas = {count + index: tuple(brokers) for index, brokers in enumerate(new.assignments)}
            self._check_replicas(replicas, topic.replication_factor)
        self._check_size(new.topic, topic.partitions.values(), replicas)
        return replicas

    def _check_size(
        self, topic: str, existing: Iterable[PartitionState], added: Mapping[int, tuple[int, ...]], others: int = 0
    ) -> None:
        """Raises POLICY_VIOLATION for what no store can take: see `check_assignment`."""
        lists = (
            (state.partition, replicas)
            for state in existing
            for replicas in (state.replicas, state.adding, state.removing)
            if replicas
        )
        check_assignment(topic, chain(lists, added.items()), others=others)

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
            raise ProtocolError(ErrorCode.INVALID_PARTITIONS, f"{partitions} partitions: at least 1 is required")
        if factor <= 0:
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR, f"Replication factor {factor}: at least 1 is required"
            )
        return assign_replicas(self._racks(factor), partitions, factor, self._random)

    def _more_replicas(self, topic: TopicMetadata, added: int) -> dict[int, tuple[int, ...]]:
        factor = topic.replication_factor
        racks = self._racks(factor)
        first = topic.partitions[0].replicas[0]
        start = next((index for index, broker in enumerate(sorted(racks)) if broker >= first), 0)
        return assign_replicas(
            racks, added, factor, self._random, first_partition=len(topic.partitions), start_index=start
        )

    def _racks(self, factor: int) -> dict[int, str]:
        """Returns the racks of the brokers that partitions with so many replicas may be assigned to. All brokers have
        one, or none has; as in Kafka, anything else is an error, because the racks would not hold what they promise.
        """
        brokers = self._cache.brokers
        if factor > len(brokers):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
            )
        without = sorted(broker.broker_id for broker in brokers.values() if broker.rack is None)
        if 0 < len(without) < len(brokers):
            raise ProtocolError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Some brokers have a broker.rack, but not these: {without}. Replicas cannot be spread over racks",
            )
        return {broker.broker_id: broker.rack or "" for broker in brokers.values()}

    def _check_name(self, name: str, planned_names: Mapping[str, str]) -> None:
        fault = topic_name_fault(name)
        if fault is None:
            other = self._cache.colliding_topic(name) or planned_names.get(unified_name(name))
            if other is not None:
                fault = f"Topic '{name}' collides with existing topics: {other}"
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)

    def _manual_replicas(self, assignments: Mapping[int, Sequence[int]]) -> dict[int, tuple[int, ...]]:
        return {partition: tuple(brokers) for partition, brokers in sorted(assignments.items())}

    def _check_replicas(self, replicas: Mapping[int, tuple[int, ...]], factor: int | None) -> None:
        """`factor` is the replication factor that every partition must have. None: all must have the same, and
        partitions are numbered from 0.
        """
        fault = None
        if factor is None and sorted(replicas) != list(range(len(replicas))):
            fault = "Partitions must be numbered from 0 without gaps"
        sizes = {len(brokers) for brokers in replicas.values()} | ({factor} if factor is not None else set())
        if len(sizes) != 1:
            fault = "All partitions must have the same number of replicas"
        live = len(self._cache.brokers)
        for partition, brokers in replicas.items():
            if not brokers:
                fault = f"Partition {partition} has no replicas"
            elif len(brokers) > live:
                fault = f"Partition {partition} is assigned to {len(brokers)} brokers; {live} are available"
            elif len(set(brokers)) != len(brokers):
                fault = f"Partition {partition} has a duplicate broker"
            elif not set(brokers) <= self._cache.brokers.keys():
                unknown = ", ".join(map(str, sorted(set(brokers) - self._cache.brokers.keys())))
                fault = f"Unknown broker(s) in replica assignment: {unknown}."
        if fault is not None:
            raise ProtocolError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)


def check_config(config: Mapping[str, str], validate: Callable[[Mapping[str, str]], object]) -> None:
    """Raises INVALID_CONFIG for settings that a topic cannot have."""
    try:
        validate(config)
    except ProtocolError:
        raise
    except (ValueError, TypeError, KeyError) as error:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from error


def pieces(topics: Sequence[NewTopic]) -> Iterator[list[NewTopic]]:
    """Splits the topics into pieces of at least one topic, each ended by the topic that reaches PARTITIONS_AT_A_TIME
    partitions.
    """
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
