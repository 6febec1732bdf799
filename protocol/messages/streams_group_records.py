"""Keys and values of `__consumer_offsets` for streams groups of KIP-1071, after an int16 version."""

from __future__ import annotations

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    string,
    structure,
    uint16,
)


@message(kind="data", versions=(17, 17))
class StreamsGroupMetadataKey(Message):
    """A streams group (version 17)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupMetadataValue(Message):
    """The epoch of the group, and what its assignment depends on."""

    class LastAssignmentConfig(Message):
        key: str = string()
        value: str = string()

    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(nullable=ALWAYS, tag=1)
    stored_description_topology_epoch: int = int32(default=-1, tag=2)
    failed_description_topology_epoch: int = int32(default=-1, tag=3)


@message(kind="data", versions=(19, 19))
class StreamsGroupMemberMetadataKey(Message):
    """A member of a streams group (version 19)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupMemberMetadataValue(Message):
    """The member's client, process and tags."""

    class Endpoint(Message):
        host: str = string()
        port: int = uint16()

    class KeyValue(Message):
        key: str = string()
        value: str = string()

    instance_id: str | None = string(nullable=ALWAYS)
    rack_id: str | None = string(nullable=ALWAYS)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = structure(nullable=ALWAYS)
    client_tags: list[KeyValue] = array()


@message(kind="data", versions=(20, 20))
class StreamsGroupTargetAssignmentMetadataKey(Message):
    """The target assignment of a streams group (version 20)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMetadataValue(Message):
    """The epoch of the target assignment, and when it was computed in ms since 1970."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


@message(kind="data", versions=(21, 21))
class StreamsGroupTargetAssignmentMemberKey(Message):
    """The target assignment of a member (version 21)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupTargetAssignmentMemberValue(Message):
    """The tasks that are assigned to the member."""

    class TaskIds(Message):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)

    active_tasks: list[TaskIds] = array()
    standby_tasks: list[TaskIds] = array()
    warmup_tasks: list[TaskIds] = array()


@message(kind="data", versions=(22, 22))
class StreamsGroupCurrentMemberAssignmentKey(Message):
    """The current assignment of a member (version 22)."""

    group_id: str = string()
    member_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupCurrentMemberAssignmentValue(Message):
    """The tasks that the member owns or must revoke."""

    class TaskIds(Message):
        subtopology_id: str = string()
        partitions: list[int] = array(int32)
        assignment_epochs: list[int] | None = array(int32, nullable=ALWAYS, tag=0)

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[TaskIds] = array()
    standby_tasks: list[TaskIds] = array()
    warmup_tasks: list[TaskIds] = array()
    active_tasks_pending_revocation: list[TaskIds] = array()
    standby_tasks_pending_revocation: list[TaskIds] = array()
    warmup_tasks_pending_revocation: list[TaskIds] = array()


@message(kind="data", versions=(23, 23))
class StreamsGroupTopologyKey(Message):
    """The topology of a streams group (version 23)."""

    group_id: str = string()


@message(kind="data", versions=(0, 0), flexible=0)
class StreamsGroupTopologyValue(Message):
    """The subtopologies with their topics."""

    class TopicConfig(Message):
        key: str = string(name="key")
        value: str = string(name="value")

    class TopicInfo(Message):
        name: str = string()
        partitions: int = int32()
        replication_factor: int = int16()
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = array()

    class CopartitionGroup(Message):
        source_topics: list[int] = array(int16)
        source_topic_regex: list[int] = array(int16)
        repartition_source_topics: list[int] = array(int16)

    class Subtopology(Message):
        subtopology_id: str = string()
        source_topics: list[str] = array(string)
        source_topic_regex: list[str] = array(string)
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = array()
        repartition_sink_topics: list[str] = array(string)
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = array()
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = array()

    epoch: int = int32()
    subtopologies: list[Subtopology] = array()
