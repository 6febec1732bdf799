"""Metadata (key 3): brokers, topics, partitions and their leaders."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import Message, array, between, bool_, int16, int32, message, since, string, uuid


@message(api_key=3, kind="request", versions=(0, 13), flexible=9)
class MetadataRequest(Message):
    """The topics to describe, by name or id; null (v0: none) means all."""

    class MetadataRequestTopic(Message):
        topic_id: UUID = uuid(versions=since(10))
        name: str | None = string(nullable=since(10))

    topics: list[MetadataRequestTopic] | None = array(nullable=since(1))
    allow_auto_topic_creation: bool = bool_(default=True, versions=since(4))
    include_cluster_authorized_operations: bool = bool_(versions=between(8, 10))
    include_topic_authorized_operations: bool = bool_(versions=since(8))


@message(api_key=3, kind="response", versions=(0, 13), flexible=9)
class MetadataResponse(Message):
    """The live brokers, the controller, and the leader, replicas and in-sync replicas of each partition."""

    class MetadataResponseBroker(Message):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(default=None, versions=since(1), nullable=since(1))

    class MetadataResponsePartition(Message):
        error_code: int = int16()
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32(default=-1, versions=since(7))
        replica_nodes: list[int] = array(int32)
        isr_nodes: list[int] = array(int32)
        offline_replicas: list[int] = array(int32, versions=since(5))

    class MetadataResponseTopic(Message):
        error_code: int = int16()
        name: str | None = string(nullable=since(12))
        topic_id: UUID = uuid(versions=since(10))
        is_internal: bool = bool_(versions=since(1))
        partitions: list[MetadataResponse.MetadataResponsePartition] = array()
        topic_authorized_operations: int = int32(default=-2147483648, versions=since(8))

    throttle_time_ms: int = int32(versions=since(3))
    brokers: list[MetadataResponseBroker] = array()
    cluster_id: str | None = string(default=None, versions=since(2), nullable=since(2))
    controller_id: int = int32(default=-1, versions=since(1))
    topics: list[MetadataResponseTopic] = array()
    cluster_authorized_operations: int = int32(default=-2147483648, versions=between(8, 10))
    error_code: int = int16(versions=since(13))  # KIP-1102
