"""ElectLeaders: elects leaders for partitions that have no leader or not the preferred one. (KIP-183, KIP-460)

Each partition named has one result, however often it is named. A null array selects all partitions; those that need no
election are then left out of the response. Source: Kafka's `KafkaApis.handleElectLeaders`.
"""

from __future__ import annotations

from odradek.broker.background.stepwise import others_between
from odradek.broker.metadata.administration import Outcomes, ReplicaAdministration
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.reassignments import ElectLeadersRequest, ElectLeadersResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType

TopicResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult

COST = 3
"""The cost of a partition in a response, in items of a step."""


class ElectLeadersHandler:
    """ElectLeaders (key 43)."""

    def __init__(self, administration: ReplicaAdministration, metadata: MetadataCache) -> None:
        self._administration = administration
        self._metadata = metadata

    async def elect_leaders(self, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
        """Raises INVALID_REQUEST for an unknown election type."""
        if request.election_type not in set(ElectionType):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        outcomes = await self._administration.elect(
            ElectionType(request.election_type), self._partitions(request), timeout_ms=request.timeout_ms
        )
        if request.topic_partitions is None:
            outcomes = {key: error for key, error in outcomes.items() if _is_reported(error)}
        return ElectLeadersResponse(replica_election_results=await _results(outcomes))

    def _partitions(self, request: ElectLeadersRequest) -> dict[TopicPartition, None]:
        """Returns each partition of the request once, in order."""
        if request.topic_partitions is not None:
            named = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
            return {TopicPartition(name, number): None for name, numbers in named for number in numbers}
        metadata = self._metadata
        topics = filter(None, map(metadata.topic, metadata.topic_names()))
        return {TopicPartition(topic.name, number): None for topic in topics for number in topic.partitions}


def _is_reported(error: ProtocolError | None) -> bool:
    return error is None or error.code is not ErrorCode.ELECTION_NOT_NEEDED


async def _results(outcomes: Outcomes) -> list[TopicResult]:
    results: list[TopicResult] = []
    async for key in others_between(sorted(outcomes), COST):
        if not results or results[-1].topic != key.topic:
            results.append(TopicResult(topic=key.topic, partition_result=[]))
        results[-1].partition_result.append(_result(key.partition, outcomes[key]))
    return results


def _result(partition: int, error: ProtocolError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=partition, error_message=None)
    return PartitionResult(partition_id=partition, error_code=error.code, error_message=str(error.args[0]))
