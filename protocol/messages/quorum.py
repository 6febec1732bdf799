"""The quorum of KRaft controllers (keys 52 to 55, 59, 80 to 82 and 94; KIP-595, KIP-630, KIP-853)."""

from __future__ import annotations

from uuid import UUID

from odradek.protocol.schema import (
    ALWAYS,
    Message,
    array,
    bool_,
    int16,
    int32,
    int64,
    message,
    records,
    since,
    string,
    structure,
    uint16,
    until,
    uuid,
)


@message(api_key=52, kind="request", versions=(0, 2), flexible=0)
class VoteRequest(Message):
    """A candidate asks a voter for its vote."""

    class PartitionData(Message):
        partition_index: int = int32()
        replica_epoch: int = int32()
        replica_id: int = int32()
        replica_directory_id: UUID = uuid(versions=since(1))
        voter_directory_id: UUID = uuid(versions=since(1))
        last_offset_epoch: int = int32()
        last_offset: int = int64()
        pre_vote: bool = bool_(versions=since(2))

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[VoteRequest.PartitionData] = array()

    cluster_id: str | None = string(default=None, nullable=ALWAYS)
    voter_id: int = int32(default=-1, versions=since(1))
    topics: list[TopicData] = array()


@message(api_key=52, kind="response", versions=(0, 2), flexible=0)
class VoteResponse(Message):
    """Whether the vote was granted, and the leader that the voter knows."""

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()
        vote_granted: bool = bool_()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[VoteResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    error_code: int = int16()
    topics: list[TopicData] = array()
    node_endpoints: list[NodeEndpoint] = array(versions=since(1), tag=0)


@message(api_key=53, kind="request", versions=(0, 1), flexible=1)
class BeginQuorumEpochRequest(Message):
    """A new leader announces itself to a voter."""

    class PartitionData(Message):
        partition_index: int = int32()
        voter_directory_id: UUID = uuid(versions=since(1))
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[BeginQuorumEpochRequest.PartitionData] = array()

    class LeaderEndpoint(Message):
        name: str = string(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    cluster_id: str | None = string(default=None, nullable=ALWAYS)
    voter_id: int = int32(default=-1, versions=since(1))
    topics: list[TopicData] = array()
    leader_endpoints: list[LeaderEndpoint] = array(versions=since(1))


@message(api_key=53, kind="response", versions=(0, 1), flexible=1)
class BeginQuorumEpochResponse(Message):
    """Whether the voter follows the leader."""

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[BeginQuorumEpochResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    error_code: int = int16()
    topics: list[TopicData] = array()
    node_endpoints: list[NodeEndpoint] = array(versions=since(1), tag=0)


@message(api_key=54, kind="request", versions=(0, 1), flexible=1)
class EndQuorumEpochRequest(Message):
    """A leader resigns and names its successors."""

    class ReplicaInfo(Message):
        candidate_id: int = int32(versions=since(1))
        candidate_directory_id: UUID = uuid(versions=since(1))

    class PartitionData(Message):
        partition_index: int = int32()
        leader_id: int = int32()
        leader_epoch: int = int32()
        preferred_successors: list[int] = array(int32, versions=until(0))
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = array(versions=since(1))

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[EndQuorumEpochRequest.PartitionData] = array()

    class LeaderEndpoint(Message):
        name: str = string(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    cluster_id: str | None = string(default=None, nullable=ALWAYS)
    topics: list[TopicData] = array()
    leader_endpoints: list[LeaderEndpoint] = array(versions=since(1))


@message(api_key=54, kind="response", versions=(0, 1), flexible=1)
class EndQuorumEpochResponse(Message):
    """Whether the voter has accepted it."""

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        leader_id: int = int32()
        leader_epoch: int = int32()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[EndQuorumEpochResponse.PartitionData] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    error_code: int = int16()
    topics: list[TopicData] = array()
    node_endpoints: list[NodeEndpoint] = array(versions=since(1), tag=0)


@message(api_key=55, kind="request", versions=(0, 2), flexible=0)
class DescribeQuorumRequest(Message):
    """The partitions of the quorum to describe."""

    class PartitionData(Message):
        partition_index: int = int32()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[DescribeQuorumRequest.PartitionData] = array()

    topics: list[TopicData] = array()


@message(api_key=55, kind="response", versions=(0, 2), flexible=0)
class DescribeQuorumResponse(Message):
    """The leader, the high watermark and the progress of each replica; times in ms since 1970."""

    class ReplicaState(Message):
        replica_id: int = int32()
        replica_directory_id: UUID = uuid(versions=since(2))
        log_end_offset: int = int64()
        last_fetch_timestamp: int = int64(default=-1, versions=since(1))
        last_caught_up_timestamp: int = int64(default=-1, versions=since(1))

    class PartitionData(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(versions=since(2), nullable=since(2))
        leader_id: int = int32()
        leader_epoch: int = int32()
        high_watermark: int = int64()
        current_voters: list[DescribeQuorumResponse.ReplicaState] = array()
        observers: list[DescribeQuorumResponse.ReplicaState] = array()

    class TopicData(Message):
        topic_name: str = string()
        partitions: list[DescribeQuorumResponse.PartitionData] = array()

    class Listener(Message):
        name: str = string(versions=since(2))
        host: str = string(versions=since(2))
        port: int = uint16(versions=since(2))

    class Node(Message):
        node_id: int = int32(versions=since(2))
        listeners: list[DescribeQuorumResponse.Listener] = array(versions=since(2))

    error_code: int = int16()
    error_message: str | None = string(versions=since(2), nullable=since(2))
    topics: list[TopicData] = array()
    nodes: list[Node] = array(versions=since(2))


@message(api_key=59, kind="request", versions=(0, 1), flexible=0)
class FetchSnapshotRequest(Message):
    """The bytes of a snapshot from a position on."""

    class SnapshotId(Message):
        end_offset: int = int64()
        epoch: int = int32()

    class PartitionSnapshot(Message):
        partition: int = int32()
        current_leader_epoch: int = int32()
        snapshot_id: FetchSnapshotRequest.SnapshotId = structure(default=True)
        position: int = int64()
        replica_directory_id: UUID = uuid(versions=since(1), tag=0)

    class TopicSnapshot(Message):
        name: str = string()
        partitions: list[FetchSnapshotRequest.PartitionSnapshot] = array()

    cluster_id: str | None = string(default=None, nullable=ALWAYS, tag=0)
    replica_id: int = int32(default=-1)
    max_bytes: int = int32(default=2147483647)
    topics: list[TopicSnapshot] = array()


@message(api_key=59, kind="response", versions=(0, 1), flexible=0)
class FetchSnapshotResponse(Message):
    """A part of the snapshot."""

    class SnapshotId(Message):
        end_offset: int = int64()
        epoch: int = int32()

    class LeaderIdAndEpoch(Message):
        leader_id: int = int32()
        leader_epoch: int = int32()

    class PartitionSnapshot(Message):
        index: int = int32()
        error_code: int = int16()
        snapshot_id: FetchSnapshotResponse.SnapshotId = structure(default=True)
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch | None = structure(tag=0)
        size: int = int64()
        position: int = int64()
        unaligned_records: bytes = records(default=b"")

    class TopicSnapshot(Message):
        name: str = string()
        partitions: list[FetchSnapshotResponse.PartitionSnapshot] = array()

    class NodeEndpoint(Message):
        node_id: int = int32(versions=since(1))
        host: str = string(versions=since(1))
        port: int = uint16(versions=since(1))

    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicSnapshot] = array()
    node_endpoints: list[NodeEndpoint] = array(versions=since(1), tag=0)


@message(api_key=80, kind="request", versions=(0, 1), flexible=0)
class AddRaftVoterRequest(Message):
    """Adds a voter."""

    class Listener(Message):
        name: str = string()
        host: str = string()
        port: int = uint16()

    cluster_id: str | None = string(nullable=ALWAYS)
    timeout_ms: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array()
    ack_when_committed: bool = bool_(default=True, versions=since(1))


@message(api_key=80, kind="response", versions=(0, 1), flexible=0)
class AddRaftVoterResponse(Message):
    """Whether the voter was added."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)


@message(api_key=81, kind="request", versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Message):
    """Removes a voter."""

    cluster_id: str | None = string(nullable=ALWAYS)
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()


@message(api_key=81, kind="response", versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse(Message):
    """Whether the voter was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)


@message(api_key=82, kind="request", versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest(Message):
    """A voter's endpoints and versions have changed."""

    class Listener(Message):
        name: str = string()
        host: str = string()
        port: int = uint16()

    class KRaftVersionFeature(Message):
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    cluster_id: str | None = string(nullable=ALWAYS)
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    listeners: list[Listener] = array()
    kraft_version_feature: KRaftVersionFeature = structure(default=True, name="KRaftVersionFeature")


@message(api_key=82, kind="response", versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse(Message):
    """Whether the leader has taken them over, and which leader the replica knows."""

    class CurrentLeader(Message):
        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)
        host: str = string()
        port: int = int32()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader | None = structure(tag=0)


@message(api_key=94, kind="request", versions=(0, 0), flexible=0)
class UnregisterControllerRequest(Message):
    """Removes the registration of a controller."""

    controller_id: int = int32()


@message(api_key=94, kind="response", versions=(0, 0), flexible=0)
class UnregisterControllerResponse(Message):
    """Whether the registration was removed."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
