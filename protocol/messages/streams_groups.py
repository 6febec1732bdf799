"""StreamsGroupHeartbeat, -Describe and -TopologyDescriptionUpdate (keys 88, 89 and 93): streams groups of KIP-1071."""

from __future__ import annotations

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int8,
    int16,
    int32,
    int64,
    message,
    since,
    string,
    structure,
    uint16,
    until,
)


@message(api_key=88, kind="request", versions=(0, 1), flexible=0)
class StreamsGroupHeartbeatRequest(Message):
    """Joins (epoch 0), stays or leaves (-1) with its tasks and, on joining, the topology; null means unchanged."""

    class KeyValue(Message):
        key: str = string()
        value: str = string()

    class TopicInfo(Message):
        name: str = string()
        partitions: int = int32()
        replication_factor: int = int16()
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = array()

    class Endpoint(Message):
        host: str = string()
        port: int = uint16()

    class TaskOffset(Message):
        subtopology_id: str = string()
        partition: int = int32()
        offset: int = int64()

    class TaskIds(Message):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class CopartitionGroup(Message):
        source_topics: list[int] = array(int16)
        source_topic_regex: list[int] = array(int16)
        repartition_source_topics: list[int] = array(int16)

    class Subtopology(Message):
        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        source_topic_regex: list[str] = array(string)
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = array()
        repartition_sink_topics: list[str] = array(string)
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = array()
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = array()

    class Topology(Message):
        epoch: int = int32()
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = array()

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=ALWAYS)
    rack_id: str | None = string(default=None, nullable=ALWAYS)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = structure(nullable=ALWAYS)
    active_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    standby_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    warmup_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    process_id: str | None = string(default=None, nullable=ALWAYS)
    user_endpoint: Endpoint | None = structure(nullable=ALWAYS)
    client_tags: list[KeyValue] | None = array(default=None, nullable=ALWAYS)
    task_offsets: list[TaskOffset] | None = array(default=None, nullable=ALWAYS)
    task_end_offsets: list[TaskOffset] | None = array(default=None, nullable=ALWAYS)
    shutdown_application: bool = bool_()


@message(api_key=88, kind="response", versions=(0, 1), flexible=0)
class StreamsGroupHeartbeatResponse(Message):
    """The member's epoch, and its tasks if they are new to it."""

    class Status(Message):
        status_code: int = int8()
        status_detail: str = string()

    class TopicPartition(Message):
        topic: str = string()
        partitions: list[int] = array(int32)

    class TaskIds(Message):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class Endpoint(Message):
        host: str = string()
        port: int = uint16()

    class EndpointToPartitions(Message):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = structure(default=True)
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = array()
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag_legacy: int = int32(versions=until(0))
    task_offset_interval_ms: int = int32()
    acceptable_recovery_lag: int = int64(default=-1, versions=since(1))
    status: list[Status] | None = array(nullable=ALWAYS)
    active_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    standby_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    warmup_tasks: list[TaskIds] | None = array(default=None, nullable=ALWAYS)
    topology_description_required: bool = bool_(versions=since(1))
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(default=None, nullable=ALWAYS)


@message(api_key=89, kind="request", versions=(0, 1), flexible=0)
class StreamsGroupDescribeRequest(Message):
    """The groups to describe."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = bool_()
    include_topology_description: bool = bool_(versions=since(1))


@message(api_key=89, kind="response", versions=(0, 1), flexible=0)
class StreamsGroupDescribeResponse(Message):
    """The state, epochs, topology and members of each group."""

    class Endpoint(Message):
        host: str = string()
        port: int = uint16()

    class TaskOffset(Message):
        subtopology_id: str = string()
        partition: int = int32()
        offset: int = int64()

    class Assignment(Message):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array()
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array()
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = array()

    class TaskIds(Message):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    class KeyValue(Message):
        key: str = string()
        value: str = string()

    class TopicInfo(Message):
        name: str = string()
        partitions: int = int32()
        replication_factor: int = int16()
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = array()

    class TopologyDescription(Message):
        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology] = array(versions=since(1))
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore] = array(versions=since(1))

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str = string(versions=since(1))
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode] = array(versions=since(1))

    class TopologyDescriptionNode(Message):
        name: str = string(versions=since(1))
        node_type: int = int8(versions=since(1))
        source_topics: list[str] = array(string, versions=since(1))
        sink_topic: str | None = string(default=None, versions=since(1), nullable=since(1))
        stores: list[str] = array(string, versions=since(1))
        successors: list[str] = array(string, versions=since(1))

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupDescribeResponse.TopologyDescriptionNode = structure(default=True, versions=since(1))
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode = structure(default=True, versions=since(1))

    class Subtopology(Message):
        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        repartition_sink_topics: list[str] = array(string)
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = array()
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = array()

    class Topology(Message):
        epoch: int = int32()
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = array(default=None, nullable=ALWAYS)

    class Member(Message):
        member_id: str = string()
        member_epoch: int = int32()
        instance_id: str | None = string(default=None, nullable=ALWAYS)
        rack_id: str | None = string(default=None, nullable=ALWAYS)
        client_id: str = string()
        client_host: str = string()
        topology_epoch: int = int32()
        process_id: str = string()
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = structure(nullable=ALWAYS)
        client_tags: list[StreamsGroupDescribeResponse.KeyValue] = array()
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = array()
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = array()
        assignment: StreamsGroupDescribeResponse.Assignment = structure(default=True)
        target_assignment: StreamsGroupDescribeResponse.Assignment = structure(default=True)
        is_classic: bool = bool_()

    class DescribedGroup(Message):
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        topology: StreamsGroupDescribeResponse.Topology | None = structure(nullable=ALWAYS)
        members: list[StreamsGroupDescribeResponse.Member] = array()
        authorized_operations: int = int32(default=-2147483648)
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = structure(
            versions=since(1), nullable=since(1)
        )
        topology_description_status: int = int8(versions=since(1))
        assignor_name: str | None = string(default=None, versions=since(1), nullable=since(1))

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array()


@message(api_key=93, kind="request", versions=(0, 0), flexible=0)
class StreamsGroupTopologyDescriptionUpdateRequest(Message):
    """The description of the application's topology, for tools (KIP-1331)."""

    class TopologyDescription(Message):
        subtopologies: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionSubtopology] = array()
        global_stores: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionGlobalStore] = array()

    class TopologyDescriptionSubtopology(Message):
        subtopology_id: str = string()
        nodes: list[StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode] = array()

    class TopologyDescriptionNode(Message):
        name: str = string()
        node_type: int = int8()
        source_topics: list[str] = array(string)
        sink_topic: str | None = string(default=None, nullable=ALWAYS)
        stores: list[str] = array(string)
        successors: list[str] = array(string)

    class TopologyDescriptionGlobalStore(Message):
        source: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = structure(default=True)
        processor: StreamsGroupTopologyDescriptionUpdateRequest.TopologyDescriptionNode = structure(default=True)

    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = structure(default=True)


@message(api_key=93, kind="response", versions=(0, 0), flexible=0)
class StreamsGroupTopologyDescriptionUpdateResponse(Message):
    """Whether the description was stored."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
