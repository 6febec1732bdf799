"""The broker's view of the cluster: brokers, topics, partitions, settings. Read on every Metadata request, written only
by the application of deltas (`cluster/deltas.py`, `cluster/settings_in_effect.py`) and by `cluster/dynamic_configs.py`.

Plain objects in plain dictionaries; nothing here waits or fails. Readers must not modify what they get. Partition
states are replaced as a whole, never modified in place, so that a state obtained earlier remains consistent.

Source: Kafka's `MetadataCache` / `ZkMetadataCache`.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from odradek.broker.metadata.topic_names import unified_name
from odradek.protocol.schema import Versions
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigResourceType

ZERO_UUID = uuid.UUID(int=0)
NO_LEADER = -1
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})
_NO_CONFIG: Mapping[str, str] = MappingProxyType({})


class BrokerEndpoint(NamedTuple):
    """The address at which clients of one listener reach a broker (its advertised address)."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerInfo(NamedTuple):
    """One live broker. `endpoints` by listener name; `epoch` grows with every registration (Kafka's broker epoch).
    `features`: the levels of each that it supports; only the controller knows those of the others.
    """

    broker_id: int
    endpoints: Mapping[str, BrokerEndpoint]
    rack: str | None = None
    epoch: int = -1
    features: Mapping[str, Versions] = MappingProxyType({})

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """The broker's address on `listener`, or None if it has none there."""
        return self.endpoints.get(listener)


class PartitionState(NamedTuple):
    """One partition: `replicas` and `isr` are broker ids, `leader` is one of them or NO_LEADER.

    During a reassignment, `replicas` includes the replicas being added (`adding`) and those being removed (`removing`).
    `offline` are the replicas that are not available although their broker may live: their disk failed.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    controller_epoch: int = 0
    partition_epoch: int = 0
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class TopicMetadata(NamedTuple):
    """One topic: `partitions` by partition number, ascending without gaps."""

    name: str
    topic_id: uuid.UUID
    partitions: Mapping[int, PartitionState]

    @property
    def is_internal(self) -> bool:
        """Whether the topic is one of Kafka's internal topics."""
        return self.name in INTERNAL_TOPICS

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition."""
        return len(self.partitions[0].replicas) if 0 in self.partitions else 0


class MetadataCache:
    """The metadata of the cluster. `cluster_id` is Kafka's 22-character text; `controller_id` is a broker id or -1."""

    def __init__(self, cluster_id: str, broker_id: int) -> None:
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.controller_id = -1
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerInfo] = {}
        self.is_complete = False
        """Whether the controller has sent all of the cluster's metadata. Before that, an absent partition may exist."""
        self.topics: dict[str, TopicMetadata] = {}
        """By name. It remains the same object."""
        self._names_by_id: dict[int, str] = {}
        """By the ids as numbers, whose hashing needs no Python."""
        self._names_by_unified_name: dict[str, tuple[str, ...]] = {}
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._broker_configs: dict[int | None, Mapping[str, str]] = {}
        self._named_configs: defaultdict[ConfigResourceType, dict[str, Mapping[str, str]]] = defaultdict(dict)
        self.named_config_changes = 0
        """How often settings of groups and subscriptions have been put."""

    # Topics and partitions

    def topic(self, name: str) -> TopicMetadata | None:
        """Returns the topic with this name, or None."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicMetadata | None:
        """Returns the topic with this id, or None."""
        name = self._names_by_id.get(topic_id.int)
        return None if name is None else self.topics.get(name)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """Returns the name of the topic with this id, or None."""
        return self._names_by_id.get(topic_id.int)

    def topic_id(self, name: str) -> uuid.UUID:
        """Returns the topic's id; all zeros if the topic does not exist."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def topic_names(self) -> list[str]:
        """Returns all topic names, sorted."""
        return sorted(self.topics)

    def colliding_topic(self, name: str) -> str | None:
        """Returns another topic whose metrics would have the same name, or None."""
        unified = self._names_by_unified_name.get(unified_name(name), ())
        return next((other for other in unified if other != name), None)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        """Returns the partition's state, or None if the topic or partition does not exist."""
        metadata = self.topics.get(topic)
        return None if metadata is None else metadata.partitions.get(partition)

    def leader_of(self, topic_partition: TopicPartition) -> int | None:
        """Returns the broker that leads the partition (NO_LEADER if none does), or None if the partition does not
        exist.
        """
        state = self.partition(topic_partition.topic, topic_partition.partition)
        return None if state is None else state.leader

    def contains(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        return self.partition(topic_partition.topic, topic_partition.partition) is not None

    @property
    def topic_count(self) -> int:
        """The number of topics."""
        return len(self.topics)

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        return sum(len(topic.partitions) for topic in self.topics.values())

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is in the cluster."""
        return broker_id in self.brokers

    # Settings

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Returns the topic's own settings by name, without defaults."""
        return self._topic_configs.get(topic, _NO_CONFIG)

    def broker_config(self, broker_id: int | None) -> Mapping[str, str]:
        """Returns the dynamic settings of one broker, or with None the cluster-wide defaults."""
        return self._broker_configs.get(broker_id, _NO_CONFIG)

    def named_config(self, resource_type: ConfigResourceType, name: str) -> Mapping[str, str]:
        """Returns the settings of a group or of a subscription to client metrics."""
        return self._named_configs[resource_type].get(name, _NO_CONFIG)

    def named_configs(self, resource_type: ConfigResourceType) -> Mapping[str, Mapping[str, str]]:
        """Returns the settings by name of all groups, or subscriptions to client metrics, that have any. The mapping
        stays up to date.
        """
        return self._named_configs[resource_type]

    # Changes (the controller's)

    def put_topic(self, topic: TopicMetadata, config: Mapping[str, str]) -> None:
        """Adds or replaces a topic and its settings."""
        previous = self.topics.get(topic.name)
        if previous is not None and previous.topic_id != topic.topic_id:
            del self._names_by_id[previous.topic_id.int]
        if previous is None:
            unified = unified_name(topic.name)
            self._names_by_unified_name[unified] = (*self._names_by_unified_name.get(unified, ()), topic.name)
        self.topics[topic.name] = topic
        self._names_by_id[topic.topic_id.int] = topic.name
        self.put_topic_config(topic.name, config)

    def remove_topic(self, name: str) -> None:
        """Removes a topic and its settings."""
        topic = self.topics.pop(name, None)
        self._topic_configs.pop(name, None)
        if topic is not None:
            self._names_by_id.pop(topic.topic_id.int, None)
            self._forget_unified_name(name)

    def _forget_unified_name(self, name: str) -> None:
        unified = unified_name(name)
        left = tuple(other for other in self._names_by_unified_name[unified] if other != name)
        if left:
            self._names_by_unified_name[unified] = left
        else:
            del self._names_by_unified_name[unified]

    def put_partitions(self, topic: str, topic_id: uuid.UUID, states: Mapping[int, PartitionState]) -> None:
        """Adds or replaces partitions of a topic. A topic of the same name with another id is replaced as a whole."""
        known = self.topics.get(topic)
        partitions = {**known.partitions, **states} if known is not None and known.topic_id == topic_id else {**states}
        ordered = {number: partitions[number] for number in sorted(partitions)}
        self.put_topic(TopicMetadata(topic, topic_id, ordered), self.topic_config(topic))

    def remove_partitions(self, topic: str, partitions: Collection[int]) -> bool:
        """Removes partitions of a topic; removes the topic with the last of them, and then returns True."""
        known = self.topics.get(topic)
        if known is None:
            return False
        left = {number: state for number, state in known.partitions.items() if number not in partitions}
        if left:
            self.topics[topic] = known._replace(partitions=left)
            return False
        self.remove_topic(topic)
        return True

    def put_topic_config(self, topic: str, config: Mapping[str, str]) -> None:
        """Replaces a topic's own settings."""
        if config:
            self._topic_configs[topic] = MappingProxyType(dict(config))
        else:
            self._topic_configs.pop(topic, None)

    def put_broker_config(self, broker_id: int | None, config: Mapping[str, str]) -> None:
        """Replaces a broker's dynamic settings (None: the cluster-wide defaults)."""
        self._broker_configs[broker_id] = MappingProxyType(dict(config))

    def put_named_config(self, resource_type: ConfigResourceType, name: str, config: Mapping[str, str]) -> None:
        """Replaces the settings of a group or of a subscription to client metrics."""
        self.named_config_changes += 1
        of_type = self._named_configs[resource_type]
        if config:
            of_type[name] = MappingProxyType(dict(config))
        else:
            of_type.pop(name, None)

    def broker(self, broker_id: int) -> BrokerInfo | None:
        """Returns a live broker, or None."""
        return self.brokers.get(broker_id)

    def put_broker(self, broker: BrokerInfo) -> None:
        """Adds or replaces a live broker."""
        self.brokers[broker.broker_id] = broker

    def remove_broker(self, broker_id: int) -> None:
        """Removes a broker."""
        self.brokers.pop(broker_id, None)

    def put_brokers(self, brokers: Iterable[BrokerInfo]) -> None:
        """Replaces all live brokers."""
        self.brokers = {broker.broker_id: broker for broker in brokers}
