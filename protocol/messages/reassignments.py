"""ElectLeaders (key 43), AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46)."""

from __future__ import annotations

from odradek.protocol.schema import ALWAYS, Message, array, bool_, int8, int16, int32, message, since, string


@message(api_key=43, kind="request", versions=(0, 2), flexible=2)
class ElectLeadersRequest(Message):
    """Elects the preferred (0) or any (1) replica as leader; null for all partitions."""

    class TopicPartitions(Message):
        topic: str = string()
        partitions: list[int] = array(int32)

    election_type: int = int8(versions=since(1))  # KIP-460
    topic_partitions: list[TopicPartitions] | None = array(nullable=ALWAYS)
    timeout_ms: int = int32(default=60000)


@message(api_key=43, kind="response", versions=(0, 2), flexible=2)
class ElectLeadersResponse(Message):
    """Whether each partition had an election."""

    class PartitionResult(Message):
        partition_id: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)

    class ReplicaElectionResult(Message):
        topic: str = string()
        partition_result: list[ElectLeadersResponse.PartitionResult] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16(versions=since(1))
    replica_election_results: list[ReplicaElectionResult] = array()


@message(api_key=45, kind="request", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsRequest(Message):
    """New replicas for partitions; null cancels a reassignment in progress."""

    class ReassignablePartition(Message):
        partition_index: int = int32()
        replicas: list[int] | None = array(int32, default=None, nullable=ALWAYS)

    class ReassignableTopic(Message):
        name: str = string()
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = array()

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = bool_(default=True, versions=since(1))  # KIP-860
    topics: list[ReassignableTopic] = array()


@message(api_key=45, kind="response", versions=(0, 1), flexible=0)
class AlterPartitionReassignmentsResponse(Message):
    """Whether each partition's reassignment began."""

    class ReassignablePartitionResponse(Message):
        partition_index: int = int32()
        error_code: int = int16()
        error_message: str | None = string(nullable=ALWAYS)

    class ReassignableTopicResponse(Message):
        name: str = string()
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = array()

    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = bool_(default=True, versions=since(1))  # KIP-860
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    responses: list[ReassignableTopicResponse] = array()


@message(api_key=46, kind="request", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest(Message):
    """Reassignments of these partitions; null for all."""

    class ListPartitionReassignmentsTopics(Message):
        name: str = string()
        partition_indexes: list[int] = array(int32)

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(default=None, nullable=ALWAYS)


@message(api_key=46, kind="response", versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse(Message):
    """The replicas of each partition, those being added and those being removed."""

    class OngoingPartitionReassignment(Message):
        partition_index: int = int32()
        replicas: list[int] = array(int32)
        adding_replicas: list[int] = array(int32)
        removing_replicas: list[int] = array(int32)

    class OngoingTopicReassignment(Message):
        name: str = string()
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = array()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALWAYS)
    topics: list[OngoingTopicReassignment] = array()
