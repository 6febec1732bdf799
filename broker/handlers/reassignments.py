"""AlterPartitionReassignments and ListPartitionReassignments: changes the replicas of partitions. (KIP-455)

Null replicas cancel a reassignment. A partition that is named twice has one result, and the last target counts, as in
Kafka. The list leaves out partitions that are not being reassigned or do not exist.
Source: Kafka's `KafkaApis.handleAlterPartitionReassignmentsRequest`, `KafkaController.processApiPartitionReassignment`.
"""

from __future__ import annotations

from odradek.broker.background.stepwise import others_between
from odradek.broker.metadata.administration import ReplicaAdministration
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

FIRST_VERSION_WITHOUT_TEXT = 1
COST = 3
"""The cost of a partition in a response, in items of a step."""


class ReassignmentHandlers:
    """AlterPartitionReassignments and ListPartitionReassignments (keys 45 and 46)."""

    def __init__(self, administration: ReplicaAdministration) -> None:
        self._administration = administration

    async def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> AlterPartitionReassignmentsResponse:
        """Starts, replaces and cancels reassignments."""
        targets = {
            TopicPartition(topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        outcomes = await self._administration.reassign(targets, may_resize=request.allow_replication_factor_change)
        responses: list[Altered] = []
        async for key in others_between(sorted(outcomes), COST):
            if not responses or responses[-1].name != key.topic:
                responses.append(Altered(name=key.topic, partitions=[]))
            responses[-1].partitions.append(_altered(key.partition, outcomes[key]))
        return AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None if context.api_version >= FIRST_VERSION_WITHOUT_TEXT else "",
            responses=responses,
        )

    async def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext
    ) -> ListPartitionReassignmentsResponse:
        """Returns the reassignments in progress."""
        wanted = None
        if request.topics is not None:
            wanted = {
                TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes
            }
        found = self._administration.reassignments(wanted)
        topics: list[Ongoing] = []
        async for key in others_between(sorted(found), COST):
            if not topics or topics[-1].name != key.topic:
                topics.append(Ongoing(name=key.topic, partitions=[]))
            topics[-1].partitions.append(_ongoing(found[key]))
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
