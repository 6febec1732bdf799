"""ShareGroupHeartbeat, ShareGroupDescribe, ShareFetch and ShareAcknowledge (keys 76 to 79): share groups of KIP-932."""

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
    int64,
    message,
    records,
    since,
    string,
    structure,
    uuid,
)


@message(api_key=76, kind="request", versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Message):
    """Joins (epoch 0), stays or leaves (-1); null means unchanged."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(default=None, nullable=ALWAYS)
    subscribed_topic_names: list[str] | None = array(string, default=None, nullable=ALWAYS)


@message(api_key=76, kind="response", versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse(Message):
    """The member's epoch, and its assignment if it is new to it."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    class Assignment(Message):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    member_id: str | None = string(default=None, nullable=ALWAYS)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = structure(nullable=ALWAYS)


@message(api_key=77, kind="request", versions=(1, 1), flexible=0)
class ShareGroupDescribeRequest(Message):
    """The groups to describe."""

    group_ids: list[str] = array(string)
    include_authorized_operations: bool = bool_()


@message(api_key=77, kind="response", versions=(1, 1), flexible=0)
class ShareGroupDescribeResponse(Message):
    """The state, epochs and members of each group."""

    class TopicPartitions(Message):
        topic_id: UUID = uuid()
        topic_name: str = string()
        partitions: list[int] = array(int32)

    class Assignment(Message):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = array()

    class Member(Message):
        member_id: str = string()
        rack_id: str | None = string(default=None, nullable=ALWAYS)
        member_epoch: int = int32()
        client_id: str = string()
        client_host: str = string()
        subscribed_topic_names: list[str] = array(string)
        assignment: ShareGroupDescribeResponse.Assignment = structure(default=True)

    class DescribedGroup(Message):
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        group_id: str = string()
        group_state: str = string()
        group_epoch: int = int32()
        assignment_epoch: int = int32()
        assignor_name: str = string()
        members: list[ShareGroupDescribeResponse.Member] = array()
        authorized_operations: int = int32(default=-2147483648)

    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array()


@message(api_key=78, kind="request", versions=(1, 2), flexible=0)
class ShareFetchRequest(Message):
    """The partitions to read of, in a share session, with acknowledgements of earlier records."""

    class AcknowledgementBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        acknowledge_types: list[int] = array(int8)

    class FetchPartition(Message):
        partition_index: int = int32()
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = array()

    class FetchTopic(Message):
        topic_id: UUID = uuid()
        partitions: list[ShareFetchRequest.FetchPartition] = array()

    class ForgottenTopic(Message):
        topic_id: UUID = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(default=None, nullable=ALWAYS)
    member_id: str | None = string(nullable=ALWAYS)
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8(versions=since(2))
    is_renew_ack: bool = bool_(versions=since(2))
    topics: list[FetchTopic] = array()
    forgotten_topics_data: list[ForgottenTopic] = array()


@message(api_key=78, kind="response", versions=(1, 2), flexible=0)
class ShareFetchResponse(Message):
    """Records that the member has acquired, until when in ms, and the results of its acknowledgements."""

    class LeaderIdAndEpoch(Message):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class AcquiredRecords(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        delivery_count: int = int16()

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        acknowledge_error_code: int = int16()
        acknowledge_error_message: str | None = string(default=None, nullable=ALWAYS)
        current_leader: ShareFetchResponse.LeaderIdAndEpoch = structure(default=True)
        records: bytes = records(default=b"")
        acquired_records: list[ShareFetchResponse.AcquiredRecords] = array()

    class ShareFetchableTopicResponse(Message):
        topic_id: UUID = uuid()
        partitions: list[ShareFetchResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(default=None, nullable=ALWAYS)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array()
    node_endpoints: list[NodeEndpoint] = array()


@message(api_key=79, kind="request", versions=(1, 2), flexible=0)
class ShareAcknowledgeRequest(Message):
    """Accepts, releases, rejects or renews acquired records."""

    class AcknowledgementBatch(Message):
        first_offset: int = int64()
        last_offset: int = int64()
        acknowledge_types: list[int] = array(int8)

    class AcknowledgePartition(Message):
        partition_index: int = int32()
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = array()

    class AcknowledgeTopic(Message):
        topic_id: UUID = uuid()
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = array()

    group_id: str | None = string(default=None, nullable=ALWAYS)
    member_id: str | None = string(nullable=ALWAYS)
    share_session_epoch: int = int32()
    is_renew_ack: bool = bool_(versions=since(2))
    topics: list[AcknowledgeTopic] = array()


@message(api_key=79, kind="response", versions=(1, 2), flexible=0)
class ShareAcknowledgeResponse(Message):
    """Whether each acknowledgement was accepted."""

    class LeaderIdAndEpoch(Message):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(default=None, nullable=ALWAYS)
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = structure(default=True)

    class ShareAcknowledgeTopicResponse(Message):
        topic_id: UUID = uuid()
        partitions: list[ShareAcknowledgeResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(default=None, nullable=ALWAYS)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALWAYS)
    acquisition_lock_timeout_ms: int = int32(versions=since(2))
    responses: list[ShareAcknowledgeTopicResponse] = array()
    node_endpoints: list[NodeEndpoint] = array()
