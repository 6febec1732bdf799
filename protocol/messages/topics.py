"""CreateTopics (key 19), DeleteTopics (key 20) and CreatePartitions (key 37)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    message,
    since,
    string,
    until,
    uuid,
)


@message(api_key=19, kind="request", versions=(0, 7), flexible=5)
class CreateTopicsRequest(Message):
    """Topics with partition count and replication factor (-1: default), or assigned replicas, and settings."""

    class CreatableReplicaAssignment(Message):
        partition_index: int = int32()
        broker_ids: list[int] = array(int32)

    class CreatableTopicConfig(Message):
        name: str = string()
        value: str | None = string(nullable=ALWAYS)

    class CreatableTopic(Message):
        name: str = string()
        num_partitions: int = int32()
        replication_factor: int = int16()
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = array()
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = array()

    topics: list[CreatableTopic] = array()
    timeout_ms: int = int32(default=60000, name="timeoutMs")
    validate_only: bool = bool_(versions=since(1), name="validateOnly")


@message(api_key=19, kind="response", versions=(0, 7), flexible=5)
class CreateTopicsResponse(Message):
    """Whether each topic was created, and from v5 with which partitions and settings."""

    class CreatableTopicConfigs(Message):
        name: str = string(versions=since(5))  # KIP-525
        value: str | None = string(versions=since(5), nullable=since(5))  # KIP-525
        read_only: bool = bool_(versions=since(5))  # KIP-525
        config_source: int = int8(default=-1, versions=since(5))  # KIP-525
        is_sensitive: bool = bool_(versions=since(5))  # KIP-525

    class CreatableTopicResult(Message):
        name: str = string()
        topic_id: UUID = uuid(versions=since(7))
        error_code: int = int16()
        error_message: str | None = string(versions=since(1), nullable=ALWAYS)
        topic_config_error_code: int = int16(versions=since(5), tag=0)  # KIP-525
        num_partitions: int = int32(default=-1, versions=since(5))  # KIP-525
        replication_factor: int = int16(default=-1, versions=since(5))  # KIP-525
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = array(versions=since(5), nullable=since(5))

    throttle_time_ms: int = int32(versions=since(2))
    topics: list[CreatableTopicResult] = array()


@message(api_key=20, kind="request", versions=(0, 6), flexible=4)
class DeleteTopicsRequest(Message):
    """Topics by name, or from v6 by name or id."""

    class DeleteTopicState(Message):
        name: str | None = string(default=None, versions=since(6), nullable=since(6))
        topic_id: UUID = uuid(versions=since(6))

    topics: list[DeleteTopicState] = array(versions=since(6))
    topic_names: list[str] = array(string, versions=until(5))
    timeout_ms: int = int32()


@message(api_key=20, kind="response", versions=(0, 6), flexible=4)
class DeleteTopicsResponse(Message):
    """Whether each topic was deleted."""

    class DeletableTopicResult(Message):
        name: str | None = string(nullable=since(6))
        topic_id: UUID = uuid(versions=since(6))
        error_code: int = int16()
        error_message: str | None = string(default=None, versions=since(5), nullable=since(5))  # KIP-599

    throttle_time_ms: int = int32(versions=since(1))
    responses: list[DeletableTopicResult] = array()


@message(api_key=37, kind="request", versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message):
    """Topics with their new number of partitions."""

    class CreatePartitionsAssignment(Message):
        broker_ids: list[int] = array(int32)

    class CreatePartitionsTopic(Message):
        name: str = string()
        count: int = int32()
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = array(nullable=ALWAYS)

    topics: list[CreatePartitionsTopic] = array()
    timeout_ms: int = int32()
    validate_only: bool = bool_()


@message(api_key=37, kind="response", versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Message):
    """Whether each topic got its new number of partitions."""

    class CreatePartitionsTopicResult(Message):
        name: str = string()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array()
