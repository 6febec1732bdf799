"""Requests between controller and brokers (keys 4-7 and 56): leaders, replicas, metadata, shutdown, in-sync sets."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    between,
    bool_,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    until,
    uuid,
)


@message(api_key=4, kind="request", versions=(0, 7), flexible=4)
class LeaderAndIsrRequest(Message):
    """The controller assigns partitions to a broker as leader or follower."""

    class LeaderAndIsrPartitionState(Message):
        topic_name: str = string(versions=until(1))
        partition_index: int = int32()
        controller_epoch: int = int32()
        leader: int = int32()
        leader_epoch: int = int32()
        isr: list[int] = array(int32)
        partition_epoch: int = int32()
        replicas: list[int] = array(int32)
        adding_replicas: list[int] = array(int32, versions=since(3))
        removing_replicas: list[int] = array(int32, versions=since(3))
        is_new: bool = bool_(versions=since(1))
        leader_recovery_state: int = int8(versions=since(6))  # KIP-704

    class LeaderAndIsrTopicState(Message):
        topic_name: str = string(versions=since(2))
        topic_id: UUID = uuid(versions=since(5))  # KIP-516
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = array(versions=since(2))

    class LeaderAndIsrLiveLeader(Message):
        broker_id: int = int32()
        host_name: str = string()
        port: int = int32()

    controller_id: int = int32()
    is_kraft_controller: bool = bool_(versions=since(7), name="isKRaftController")  # KIP-866
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, versions=since(2))
    type: int = int8(versions=since(5))  # KIP-516
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = array(versions=until(1))
    topic_states: list[LeaderAndIsrTopicState] = array(versions=since(2))
    live_leaders: list[LeaderAndIsrLiveLeader] = array()


@message(api_key=4, kind="response", versions=(0, 7), flexible=4)
class LeaderAndIsrResponse(Message):
    """Whether the broker accepted its role in each partition."""

    class LeaderAndIsrPartitionError(Message):
        topic_name: str = string(versions=until(4))
        partition_index: int = int32()
        error_code: int = int16()

    class LeaderAndIsrTopicError(Message):
        topic_id: UUID = uuid(versions=since(5))  # KIP-516
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = array(versions=since(5))  # KIP-516

    error_code: int = int16()
    partition_errors: list[LeaderAndIsrPartitionError] = array(versions=until(4))
    topics: list[LeaderAndIsrTopicError] = array(versions=since(5))  # KIP-516


@message(api_key=5, kind="request", versions=(0, 4), flexible=2)
class StopReplicaRequest(Message):
    """The controller makes a broker stop replicas, and optionally delete them."""

    class StopReplicaPartitionV0(Message):
        topic_name: str = string(versions=until(0))
        partition_index: int = int32(versions=until(0))

    class StopReplicaTopicV1(Message):
        name: str = string(versions=between(1, 2))
        partition_indexes: list[int] = array(int32, versions=between(1, 2))

    class StopReplicaPartitionState(Message):
        partition_index: int = int32(versions=since(3))  # KIP-570
        leader_epoch: int = int32(default=-1, versions=since(3))  # KIP-570
        delete_partition: bool = bool_(versions=since(3))  # KIP-570

    class StopReplicaTopicState(Message):
        topic_name: str = string(versions=since(3))  # KIP-570
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = array(versions=since(3))  # KIP-570

    controller_id: int = int32()
    is_kraft_controller: bool = bool_(versions=since(4), name="isKRaftController")  # KIP-866
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, versions=since(1))
    delete_partitions: bool = bool_(versions=until(2))
    ungrouped_partitions: list[StopReplicaPartitionV0] = array(versions=until(0))
    topics: list[StopReplicaTopicV1] = array(versions=between(1, 2))
    topic_states: list[StopReplicaTopicState] = array(versions=since(3))  # KIP-570


@message(api_key=5, kind="response", versions=(0, 4), flexible=2)
class StopReplicaResponse(Message):
    """Whether each partition's replica has stopped."""

    class StopReplicaPartitionError(Message):
        topic_name: str = string()
        partition_index: int = int32()
        error_code: int = int16()

    error_code: int = int16()
    partition_errors: list[StopReplicaPartitionError] = array()


@message(api_key=6, kind="request", versions=(0, 8), flexible=6)
class UpdateMetadataRequest(Message):
    """The controller sends a broker all brokers and partition states."""

    class UpdateMetadataPartitionState(Message):
        topic_name: str = string(versions=until(4))
        partition_index: int = int32()
        controller_epoch: int = int32()
        leader: int = int32()
        leader_epoch: int = int32()
        isr: list[int] = array(int32)
        zk_version: int = int32()
        replicas: list[int] = array(int32)
        offline_replicas: list[int] = array(int32, versions=since(4))

    class UpdateMetadataTopicState(Message):
        topic_name: str = string(versions=since(5))
        topic_id: UUID = uuid(versions=since(7))
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = array(versions=since(5))

    class UpdateMetadataEndpoint(Message):
        port: int = int32(versions=since(1))
        host: str = string(versions=since(1))
        listener: str = string(versions=since(3))
        security_protocol: int = int16(versions=since(1))

    class UpdateMetadataBroker(Message):
        id: int = int32()
        v0_host: str = string(versions=until(0))
        v0_port: int = int32(versions=until(0))
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = array(versions=since(1))
        rack: str | None = string(versions=since(2), nullable=ALWAYS)

    controller_id: int = int32()
    is_kraft_controller: bool = bool_(versions=since(8), name="isKRaftController")  # KIP-866
    type: int = int8(default=0, versions=since(8), tag=0)  # KIP-866
    controller_epoch: int = int32()
    broker_epoch: int = int64(default=-1, versions=since(5))
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = array(versions=until(4))
    topic_states: list[UpdateMetadataTopicState] = array(versions=since(5))
    live_brokers: list[UpdateMetadataBroker] = array()


@message(api_key=6, kind="response", versions=(0, 8), flexible=6)
class UpdateMetadataResponse(Message):
    """Whether the broker accepted the metadata."""

    error_code: int = int16()


@message(api_key=7, kind="request", versions=(0, 3), flexible=3)
class ControlledShutdownRequest(Message):
    """A broker asks the controller to move its leaderships to other brokers."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1, versions=since(2))


@message(api_key=7, kind="response", versions=(0, 3), flexible=3)
class ControlledShutdownResponse(Message):
    """The partitions that the broker still leads."""

    class RemainingPartition(Message):
        topic_name: str = string()
        partition_index: int = int32()

    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array()


@message(api_key=56, kind="request", versions=(0, 3), flexible=0)
class AlterPartitionRequest(Message):
    """A leader proposes a new in-sync set for its partitions."""

    class BrokerState(Message):
        broker_id: int = int32(versions=since(3))  # KIP-903
        broker_epoch: int = int64(default=-1, versions=since(3))  # KIP-903

    class PartitionData(Message):
        partition_index: int = int32()
        leader_epoch: int = int32()
        new_isr: list[int] = array(int32, versions=until(2))
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = array(versions=since(3))  # KIP-903
        leader_recovery_state: int = int8(versions=since(1))  # KIP-704
        partition_epoch: int = int32()

    class TopicData(Message):
        topic_name: str = string(versions=until(1))
        topic_id: UUID = uuid(versions=since(2))  # KIP-841
        partitions: list[AlterPartitionRequest.PartitionData] = array()

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array()


@message(api_key=56, kind="response", versions=(0, 3), flexible=0)
class AlterPartitionResponse(Message):
    """The new state of each partition."""

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()
        isr: list[int] = array(int32)
        leader_recovery_state: int = int8(versions=since(1))  # KIP-704
        partition_epoch: int = int32()

    class TopicData(Message):
        topic_name: str = string(versions=until(1))
        topic_id: UUID = uuid(versions=since(2))  # KIP-841
        partitions: list[AlterPartitionResponse.PartitionData] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicData] = array()
