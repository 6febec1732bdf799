"""AlterPartitionReassignments and ListPartitionReassignments: changes the replicas of partitions. (KIP-455)

Null replicas cancel a reassignment. A partition that is named twice has one result, and the last target counts, as in
Kafka. The list leaves out partitions that are not being reassigned or do not exist.
Source: Kafka's `KafkaApis.handleAlterPartitionReassignmentsRequest`, `KafkaController.processApiPartitionReassignment`.
"""

from __future__ import annotations

from itertools import groupby

from odradek.broker.controller.controller import Controller
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from odradek.protocol.topic_partition import TopicPartition

Altered = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
AlteredPartition = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
Ongoing = ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingPartition = ListPartitionReassignmentsResponse.OngoingPartitionReassignment


class ReassignmentHandlers:
    """AlterPartitionReassignments and ListPartitionReassignments (keys 45 and 46)."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        """Starts, replaces and cancels reassignments."""
        targets = {
            TopicPartition(topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        outcomes = await self._controller.reassign(targets)
        responses = []
        for name, keys in groupby(sorted(outcomes), key=lambda key: key.topic):
            partitions = [_altered(key.partition, outcomes[key]) for key in keys]
            responses.append(Altered(name=name, partitions=partitions))
        return AlterPartitionReassignmentsResponse(responses=responses)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """Returns the reassignments in progress."""
        wanted = None
        if request.topics is not None:
            wanted = {
                TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
            }
        found = self._controller.reassignments(wanted)
        topics = []
        for name, keys in groupby(sorted(found), key=lambda key: key.topic):
            topics.append(Ongoing(name=name, partitions=[_ongoing(found[key]) for key in keys]))
        return ListPartitionReassignmentsResponse(topics=topics)


def _altered(partition: int, error: ProtocolError | None) -> AlteredPartition:
    if error is None:
        return AlteredPartition(partition_index=partition, error_message=None)
    return AlteredPartition(partition_index=partition, error_code=error.code, error_message=str(error.args[0]))


def _ongoing(state: PartitionState) -> OngoingPartition:
    return OngoingPartition(
        partition_index=state.partition,
        replicas=list(state.replicas),
        adding_replicas=list(state.adding),
        removing_replicas=list(state.removing),
    )
