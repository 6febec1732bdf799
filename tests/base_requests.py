"""One small valid request of each API and version: Kafka's own vector, with names that exist in a broker.

The document is as in `protocol.documents`, but with UUIDs and bytes as objects. Every array has one element.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.messages.registry import request_class
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import ZERO_UUID, Field, Message
from tests.protocol.vector_files import MESSAGE_FILES, message_vectors

Document = dict[str, Any]


class Known(NamedTuple):
    """The names that exist in the broker."""

    topic: str = "known"
    topic_config: str = "retention.ms"
    group: str = "known-group"
    joined_group: str = "joined-group"
    member_id: str = "known-member"
    generation: int = 1
    transactional_id: str = "known-transaction"
    producer_id: int = 1
    producer_epoch: int = 0
    broker_id: int = 0
    log_dir: str = "/known"
    topic_id: UUID = ZERO_UUID
    """Of `topic`, for fetches; other requests with ids delete."""


def base_request(api_key: int, version: int, known: Known) -> Document:
    """Raises KeyError if Kafka's vectors lack the version."""
    cls = request_class(api_key)
    return _structure(cls, _typical()[(api_key, version)], version, (cls.__schema__.name,), _values(known))


def _values(known: Known) -> dict[str, Any]:
    """Values by field. The value of an array is that of its elements. A longer path overrides a shorter one."""
    return {
        "Acks": 1,
        "AllowReplicationFactorChange": True,
        "AllowAutoTopicCreation": False,
        "BrokerIds": known.broker_id,
        "ClusterId": None,
        "Committed": True,
        "CommittedMetadata": "",
        "ConfigOperation": 0,
        "Configs.Name": known.topic_config,
        "ConfigurationKeys": known.topic_config,
        "CoordinatorEpoch": 0,
        "CoordinatorKeys": known.group,
        "Count": 2,
        "CreateTopicsRequest.Topics.Name": "new-topic",
        "CurrentLeaderEpoch": -1,
        "DescribeGroupsRequest.Groups": known.joined_group,
        "DurationFilter": -1,
        "ElectionType": 0,
        "EntityType": "user",
        "EndpointType": 1,
        "FetchOffset": 0,
        "FetchRequest.Topics.TopicId": known.topic_id,
        "GenerationId": known.generation,
        "GenerationIdOrMemberEpoch": -1,
        "GroupId": known.group,
        "GroupInstanceId": None,
        "HeartbeatRequest.GroupId": known.joined_group,
        "JoinGroupRequest.GroupId": known.joined_group,
        "LeaveGroupRequest.GroupId": known.joined_group,
        "SyncGroupRequest.GroupId": known.joined_group,
        "GroupsNames": known.group,
        "Index": 0,
        "InitProducerIdRequest.ProducerEpoch": -1,
        "InitProducerIdRequest.ProducerId": -1,
        "IsolationLevel": 0,
        "KeyType": 0,
        "LastFetchedEpoch": -1,
        "LeaderEpoch": 0,
        "LogStartOffset": -1,
        "Match": "alice",
        "MatchType": 0,
        "MaxBytes": 1 << 20,
        "MaxWaitMs": 0,
        "Mechanism": "PLAIN",
        "Deletions.Mechanism": 1,
        "Upsertions.Mechanism": 1,
        "MemberEpoch": -1,
        "MemberId": known.member_id,
        "MinBytes": 0,
        "Name": known.topic,
        "NumPartitions": 1,
        "Offset": 0,
        "OffsetCommitRequest.MemberId": "",
        "Partition": 0,
        "PartitionIndex": 0,
        "PartitionIndexes": 0,
        "PartitionMaxBytes": 1000,
        "Partitions": 0,
        "Path": known.log_dir,
        "ProduceRequest.TransactionalId": None,
        "ProducerEpoch": known.producer_epoch,
        "ProducerId": known.producer_id,
        "ProtocolName": "range",
        "ProtocolType": "consumer",
        "Protocols.Name": "range",
        "RebalanceTimeoutMs": 6000,
        "Records": small_batch(),
        "ReplicaId": -1,
        "Replicas": known.broker_id,
        "ReplicationFactor": 1,
        "ResourceName": known.topic,
        "ResourceType": 2,
        "ResourceTypes": 2,
        "SessionEpoch": 0,
        "SessionId": 0,
        "SessionTimeoutMs": 6000,
        "TimeoutMs": 1000,
        "Timestamp": -1,
        "Topic": known.topic,
        "TopicId": ZERO_UUID,
        "TopicName": known.topic,
        "TransactionTimeoutMs": 60_000,
        "TransactionalId": known.transactional_id,
        "TransactionalIdPattern": known.transactional_id,
        "TransactionalIds": known.transactional_id,
        "TxnOffsetCommitRequest.GenerationIdOrMemberEpoch": -1,
        "TxnOffsetCommitRequest.MemberId": "",
        "TypesFilter": "classic",
        "V3AndBelowProducerEpoch": known.producer_epoch,
        "V3AndBelowProducerId": known.producer_id,
        "V3AndBelowTransactionalId": known.transactional_id,
        "ValidateOnly": False,
        "Value": "3600000",
        "VerifyOnly": False,
        "timeoutMs": 1000,
        "validateOnly": True,
    }


@cache
def small_batch() -> bytes:
    return bytes(build_batch([Record(offset=0, timestamp=1000, key=None, value=b"v", headers=[])]))


@cache
def _typical() -> dict[tuple[int, int], Document]:
    """Kafka's "typical" document of every request and version, or its "defaults" if the request has no fields."""
    found: dict[tuple[int, int], Document] = {}
    for name in MESSAGE_FILES:
        for vector in message_vectors(name) if name.endswith("Request") else ():
            if vector["style"] in ("defaults", "typical"):
                found[(vector["apiKey"], vector["version"])] = vector["fields"]
    return found


def _structure(
    cls: type[Message], document: Document, version: int, path: tuple[str, ...], values: dict[str, Any]
) -> Document:
    return {
        field.name: _value(field, document[field.name], version, (*path, field.name), values)
        for field in cls.__schema__.fields
        if version in field.versions
    }


def _value(field: Field, value: Any, version: int, path: tuple[str, ...], values: dict[str, Any]) -> Any:
    if field.struct_class is None:
        plain = _plain(field, value, version, path, values)
        return [plain] if field.type == "array" else plain
    if field.type == "array":
        return [_structure(field.struct_class, value[0], version, path, values)]
    return None if value is None else _structure(field.struct_class, value, version, path, values)


def _plain(field: Field, value: Any, version: int, path: tuple[str, ...], values: dict[str, Any]) -> Any:
    for beginning in range(len(path)):
        name = ".".join(path[beginning:])
        if name in values and (values[name] is not None or version in field.nullable):
            return values[name]
    if field.type == "array":
        return value[0]
    if field.type in ("bytes", "records"):
        return base64.b64decode(value)
    return UUID(value) if field.type == "uuid" else value
