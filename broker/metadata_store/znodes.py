"""Paths and values of the metadata store's entries: Apache Kafka's own znodes, as its ZooKeeper mode writes them.

    /controller                 {"version":2,"brokerid":N,"timestamp":"ms","kraftControllerEpoch":-1}       ephemeral
    /controller_epoch           N as decimal text
    /cluster/id                 {"version":"1","id":TEXT}
    /brokers/ids/N              host, port, endpoints, rack, features ...; version 5                       ephemeral
    /brokers/seqid              no data; its version numbers the brokers that have no id
    /brokers/topics/T           {"partitions":{"0":[N]},"topic_id":TEXT,"adding_replicas":{},
                                "removing_replicas":{},"version":3}
    /brokers/topics/T/partitions/P/state
                                {"controller_epoch":N,"leader":N,"version":1,"leader_epoch":N,"isr":[N]}
    /config/topics/T            {"version":1,"config":{NAME:VALUE}}
    /config/brokers/N           the same; N is <default> for the cluster-wide settings
    /config/users/U             the same: the credentials of a user, by the names of mechanisms, and quotas
    /config/clients/C, /config/users/U/clients/C, /config/ips/A
                                the same: quotas, which only Apache Kafka's brokers and tools write
    /config/changes/config_change_SEQUENCE
                                {"version":2,"entity_path":"topics/T"}: settings of a topic, broker or user have changed
    /admin/delete_topics/T      no data: the topic is being deleted
    /admin/reassign_partitions  {"version":1,"partitions":[{"topic":T,"partition":P,"replicas":[N]}]}: reassignments
                                requested by tools, until they are complete
    /admin/preferred_replica_election
                                {"version":1,"partitions":[{"topic":T,"partition":P}]}: elections requested by tools
    /log_dir_event_notification/log_dir_event_SEQUENCE
                                {"version":1,"broker":N,"event":1}: a disk of broker N has failed
    /latest_producer_id_block   {"version":1,"broker":N,"block_start":"N","block_end":"N"}
    /feature                    {"features":{NAME:{"min_version_level":1,"max_version_level":N}},"version":1,
                                "status":1}: the finalized features of the cluster

Parsing raises StoreDamaged, naming the path, for any other value. What it returns can be sent in requests: ids, epochs,
ports and texts are within their limits. Source: Kafka's `ZkData.scala`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.broker.background.stepwise import Steps, finished
from odradek.broker.metadata.kafka_uuid import parse_uuid, uuid_text
from odradek.broker.metadata.metadata_cache import NO_LEADER, BrokerEndpoint, BrokerInfo, PartitionState
from odradek.broker.metadata_store.interface import StoreDamaged
from odradek.broker.metadata_store.znode_values import (
    LARGEST_ID,
    MapText,
    check_texts,
    encoded,
    parsed,
    valid_broker_id,
    valid_epoch,
    valid_port,
    valid_text,
)
from odradek.protocol.schema import Versions
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import SecurityProtocol

PARTITIONS_PER_STEP = 1000
"""The number of partitions that are encoded in a step."""

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
GROUP_CONFIGS = "/config/groups"
CLIENT_METRICS_CONFIGS = "/config/client-metrics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
TOPIC_ENTITY = "topics"
BROKER_ENTITY = "brokers"
USER_ENTITY = "users"
GROUP_ENTITY = "groups"
CLIENT_METRICS_ENTITY = "client-metrics"
ENTITIES_WITHOUT_EFFECT = ("clients", "ips")
"""Quotas, which nothing here applies."""
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = "/log_dir_event_notification/log_dir_event_"
ISR_CHANGES = "/isr_change_notification"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
DEFAULT_BROKER = "<default>"
DEFAULT_ENTITY = DEFAULT_BROKER
FEATURES_ENABLED = 1

PERSISTENT_PATHS = (
    "/admin",
    DELETE_TOPICS,
    "/brokers",
    BROKER_IDS,
    BROKER_SEQUENCE,
    TOPICS,
    "/cluster",
    "/config",
    BROKER_CONFIGS,
    CONFIG_CHANGES,
    CLIENT_CONFIGS,
    IP_CONFIGS,
    TOPIC_CONFIGS,
    USER_CONFIGS,
    "/consumers",
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
)
"""The entries that Kafka creates at every start if they are missing; parents first."""


Replicas = Mapping[int, tuple[int, ...]]
"""Broker ids by partition number."""


class TopicAssignment(NamedTuple):
    """The content of a topic's entry: its id, the replicas of each partition, and, for partitions being reassigned, the
    replicas being added and removed.
    """

    topic_id: uuid.UUID | None
    replicas: Replicas
    adding: Replicas
    removing: Replicas


class ConfigEntity(NamedTuple):
    """Whose settings have changed: `kind` is TOPIC_ENTITY, BROKER_ENTITY, USER_ENTITY or another of Kafka's types."""

    kind: str
    name: str


def broker_path(broker_id: int) -> str:
    """The path of a live broker's entry."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """The path of a topic's entry."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The path of the parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """The path of the parent of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def state_path(topic: str, partition: int) -> str:
    """The path of a partition's state."""
    return f"{TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """The path of a topic's settings."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(broker_id: int | None) -> str:
    """The path of a broker's dynamic settings; None is the cluster-wide default."""
    return f"{BROKER_CONFIGS}/{DEFAULT_BROKER if broker_id is None else broker_id}"


def deletion_path(topic: str) -> str:
    """The path that marks a topic as being deleted."""
    return f"{DELETE_TOPICS}/{topic}"


def encode_broker(broker: BrokerInfo, timestamp_ms: int) -> bytes:
    """Encodes a broker's registration. The first PLAINTEXT endpoint also fills the fields that old clients read."""
    endpoints = list(broker.endpoints.values())
    plain = next((endpoint for endpoint in endpoints if endpoint.security_protocol == "PLAINTEXT"), None)
    value: dict[str, Any] = {
        "features": {
            name: {"min_version": levels.lowest, "max_version": levels.highest}
            for name, levels in broker.features.items()
        },
        "listener_security_protocol_map": {endpoint.listener: endpoint.security_protocol for endpoint in endpoints},
        "endpoints": [f"{endpoint.listener}://{_bracketed(endpoint.host)}:{endpoint.port}" for endpoint in endpoints],
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    value.update(jmx_port=-1, port=plain.port if plain else -1, host=plain.host if plain else None, version=5)
    value["timestamp"] = str(timestamp_ms)
    return encoded(value)


def parse_broker(broker_id: int, data: bytes | None, epoch: int) -> BrokerInfo:
    """Parses a registration as `encode_broker` and Kafka write it."""

    def read(value: Any) -> BrokerInfo:
        protocols = value["listener_security_protocol_map"]
        endpoints: dict[str, BrokerEndpoint] = {}
        for text in value["endpoints"]:
            listener, address = text.split("://", 1)
            host, port = address.rsplit(":", 1)
            protocol = SecurityProtocol[protocols[listener]].name
            endpoints[listener] = BrokerEndpoint(
                valid_text(listener), valid_text(host.strip("[]")), valid_port(port), protocol
            )
        rack = value.get("rack")
        features = {
            valid_text(name): Versions(int(levels["min_version"]), int(levels["max_version"]))
            for name, levels in (value.get("features") or {}).items()
        }
        return BrokerInfo(broker_id, endpoints, None if rack is None else valid_text(rack), epoch, features)

    return parsed(broker_path(broker_id), data, read)


def parse_broker_id(path: str) -> int:
    """Parses the path of a registration into the broker's id."""
    name = path.removeprefix(f"{BROKER_IDS}/")
    if re.fullmatch("0|[1-9][0-9]{0,9}", name) is None or int(name) > LARGEST_ID:
        raise StoreDamaged(path, "is not the path of a broker")
    return int(name)


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """Encodes the controller's entry."""
    return encoded({"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1})


def parse_controller(data: bytes | None) -> int:
    """Parses the controller's entry into the controller's broker id."""
    return parsed(CONTROLLER, data, lambda value: valid_broker_id(value["brokerid"]))


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encodes the notification that a log directory of a broker has failed."""
    return encoded({"version": 1, "broker": broker_id, "event": 1})


def parse_log_dir_event(path: str, data: bytes | None) -> int:
    """Parses the notification of a failed log directory into the broker id."""
    return parsed(path, data, lambda value: valid_broker_id(value["broker"]))


def encode_number(number: int) -> bytes:
    """Encodes the controller epoch."""
    return b"%d" % number


def parse_epoch(path: str, data: bytes | None) -> int:
    """Parses the controller epoch."""
    return parsed(path, data, valid_epoch)


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encodes the cluster id."""
    return encoded({"version": "1", "id": cluster_id})


def parse_cluster_id(data: bytes | None) -> str:
    """Parses the cluster id."""
    return parsed(CLUSTER_ID, data, lambda value: valid_text(value["id"]))


def encode_topic(topic_id: uuid.UUID, partitions: Iterable[PartitionState]) -> bytes:
    """Encodes a topic's entry."""
    return finished(topic_encoding(topic_id, partitions))


def topic_encoding(topic_id: uuid.UUID, partitions: Iterable[PartitionState]) -> Steps[bytes]:
    """Encodes a topic's entry in steps."""
    states = list(partitions)
    replicas, adding, removing = MapText(), MapText(), MapText()
    for start in range(0, len(states), PARTITIONS_PER_STEP):
        if start:
            yield
        some = states[start : start + PARTITIONS_PER_STEP]
        replicas.add({str(state.partition): state.replicas for state in some})
        adding.add({str(state.partition): state.adding for state in some if state.adding})
        removing.add({str(state.partition): state.removing for state in some if state.removing})
    topic = encoded(uuid_text(topic_id))
    return b'{"partitions":%b,"topic_id":%b,"adding_replicas":%b,"removing_replicas":%b,"version":3}' % (
        replicas.whole(),
        topic,
        adding.whole(),
        removing.whole(),
    )


def parse_topic(topic: str, data: bytes | None) -> TopicAssignment:
    """Parses a topic's entry, of version 3 or (without an id) 1 or 2."""

    def read(value: Any) -> TopicAssignment:
        text = value.get("topic_id")
        replicas = _replicas(value["partitions"])
        if list(replicas) != list(range(len(replicas))):
            raise ValueError("partition numbers have gaps")
        adding, removing = (_replicas(value.get(name, {})) for name in ("adding_replicas", "removing_replicas"))
        return TopicAssignment(None if text is None else parse_uuid(text), replicas, adding, removing)

    return parsed(topic_path(topic), data, read)


def _replicas(value: Any) -> dict[int, tuple[int, ...]]:
    found = {int(partition): tuple(map(valid_broker_id, brokers)) for partition, brokers in value.items()}
    return dict(sorted(found.items()))


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Encodes the requested reassignments that are still open: the target replicas of each partition."""
    partitions = [
        {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
        for key, replicas in targets.items()
    ]
    return encoded({"version": 1, "partitions": partitions})


def parse_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Parses requested reassignments as `encode_reassignments` and Kafka's tools before 2.4 write them."""

    def read(value: Any) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            TopicPartition(str(item["topic"]), int(item["partition"])): tuple(map(int, item["replicas"]))
            for item in value["partitions"]
        }

    return parsed(REASSIGN_PARTITIONS, data, read)


def parse_preferred_election(data: bytes | None) -> list[TopicPartition]:
    """Parses requested elections of preferred leaders as Kafka's tools before 2.4 write them."""

    def read(value: Any) -> list[TopicPartition]:
        return [TopicPartition(str(item["topic"]), int(item["partition"])) for item in value["partitions"]]

    return parsed(PREFERRED_ELECTION, data, read)


def encode_state(state: PartitionState) -> bytes:
    """Encodes a partition's state."""
    return encoded(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def parse_state(
    topic: str, partition: int, replicas: tuple[int, ...], data: bytes | None, version: int
) -> PartitionState:
    """Parses a partition's state; the entry's version becomes the partition epoch."""

    def read(value: Any) -> PartitionState:
        isr = tuple(map(valid_broker_id, value["isr"]))
        controller_epoch, leader_epoch = valid_epoch(value["controller_epoch"]), valid_epoch(value["leader_epoch"])
        leader = int(value["leader"])
        if leader != NO_LEADER:
            leader = valid_broker_id(leader)
        return PartitionState(partition, leader, leader_epoch, replicas, isr, controller_epoch, version)

    return parsed(state_path(topic, partition), data, read)


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encodes the settings of a topic, broker, user or another resource."""
    return encoded({"version": 1, "config": dict(config)})


def parse_config(path: str, data: bytes | None) -> dict[str, str]:
    """Parses the settings of a topic, broker, user or another resource."""

    def read(value: Any) -> dict[str, str]:
        config = {name: str(setting) for name, setting in value["config"].items()}
        check_texts([*config, *config.values()])
        return config

    return parsed(path, data, read)


def encode_config_change(config_path: str) -> bytes:
    """Encodes the notice that the settings at this path, below `/config`, have changed."""
    return encoded({"version": 2, "entity_path": config_path.removeprefix("/config/")})


def parse_config_change(path: str, data: bytes | None) -> ConfigEntity:
    """Parses a notice of version 2, or 1 as Kafka before 0.10.1 wrote it."""

    def read(value: Any) -> ConfigEntity:
        if value["version"] == 1:
            return ConfigEntity(str(value["entity_type"]), str(value["entity_name"]))
        kind, _, name = str(value["entity_path"]).partition("/")
        return ConfigEntity(kind, name)

    return parsed(path, data, read)


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    """Encodes the last allocated block of producer ids; both ends are inclusive."""
    return encoded({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def parse_producer_id_block(data: bytes) -> tuple[int, int]:
    """Parses the last allocated block into (first, last)."""

    def read(value: Any) -> tuple[int, int]:
        first, last = int(value["block_start"]), int(value["block_end"])
        if not 0 <= first <= last:
            raise ValueError(f"the block from {first} to {last} is none")
        return first, last

    return parsed(PRODUCER_ID_BLOCK, data, read)


def encode_features(features: Mapping[str, int]) -> bytes:
    """Encodes the finalized features and their levels, as enabled ones of version 1: that of Kafka 2.7 to 3.2, in which
    a range begins with 1.
    """
    ranges = {name: {"min_version_level": 1, "max_version_level": level} for name, level in features.items()}
    return encoded({"features": ranges, "version": 1, "status": FEATURES_ENABLED})


def parse_features(data: bytes | None) -> dict[str, int]:
    """Parses the finalized features, of version 1 or 2. There are none while they are disabled."""

    def read(value: Any) -> dict[str, int]:
        version, status = int(value["version"]), int(value["status"])
        if version not in (1, 2):
            raise ValueError(f"version {version} is not known")
        features = value["features"].items() if status == FEATURES_ENABLED else ()
        return {
            valid_text(name): int(level["max_version_level"] if version == 1 else level) for name, level in features
        }

    return parsed(FEATURE, data, read)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
