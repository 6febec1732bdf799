"""What brokers answer to the controller's requests, by partition.

A request that got no usable response, or that was refused as a whole, says nothing about leaderships: another event
follows (the broker has registered again, or another controller is in office). A deletion has then failed.

The response to a request counts only for what that request was sent for: earlier ones about the same partitions may
still be under way when a topic is deleted. Those for a deletion have the leader or the leader epoch -2.
"""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import EPOCH_DURING_DELETE, LEADER_DURING_DELETE


def leadership_errors(
    request: LeaderAndIsrRequest, response: LeaderAndIsrResponse | None
) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each partition of a LeaderAndIsr; NONE if the broker has accepted its role."""
    if response is None or response.error_code:
        return {}
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return {
        TopicPartition(names[topic.topic_id], partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        if topic.topic_id in names
        for partition in topic.partition_errors
    }


def deletion_errors(
    request: StopReplicaRequest, response: StopReplicaResponse | None, *, with_topic: bool
) -> dict[TopicPartition, ErrorCode]:
    """Returns the error of each replica that a StopReplica deletes; NONE if it is deleted. `with_topic`: those that are
    deleted with their topic, otherwise those that a reassignment has removed.
    """
    error = ErrorCode.UNKNOWN_SERVER_ERROR if response is None else ErrorCode.of(response.error_code)
    errors = {
        TopicPartition(topic.topic_name, partition.partition_index): error
        for topic in request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition and (partition.leader_epoch == EPOCH_DURING_DELETE) is with_topic
    }
    for partition in () if response is None else response.partition_errors:
        key = TopicPartition(partition.topic_name, partition.partition_index)
        if key in errors and partition.error_code:
            errors[key] = ErrorCode.of(partition.error_code)
    return errors


def deleted_partitions(request: UpdateMetadataRequest) -> dict[str, int]:
    """Returns the topics whose deletion an UpdateMetadata reports, with the number of their partitions in it."""
    return {
        topic.topic_name: len(topic.partition_states)
        for topic in request.topic_states
        if all(partition.leader == LEADER_DURING_DELETE for partition in topic.partition_states)
    }
