"""DeleteRecords (key 21): deletes records before an offset. (KIP-107; Kafka's KafkaApis.handleDeleteRecordsRequest)"""

from __future__ import annotations

from odradek.broker.background.stepwise import ITEMS_PER_STEP, Pace, Steps
from odradek.broker.replica.leader.deletions import DeletionResults, Deletions
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from odradek.protocol.topic_partition import TopicPartition


class DeleteRecordsHandler:
    """DeleteRecords (key 21)."""

    def __init__(self, deletions: Deletions) -> None:
        self._deletions = deletions

    def delete_records(
        self, request: DeleteRecordsRequest, context: RequestContext
    ) -> Steps[DeleteRecordsResponse | PendingResponse]:
        """Responds when all replicas have deleted the records."""
        offsets = {}
        pace = Pace()
        for topic in request.topics:
            for asked in topic.partitions:
                offsets[TopicPartition(topic.name, asked.partition_index)] = asked.offset
                if pace.step_ends():
                    yield
        pending = PendingResponse(is_long=len(offsets) > ITEMS_PER_STEP)
        outcome = self._deletions.delete(
            request.timeout_ms, offsets, lambda results: pending.complete(delete_records_response(results))
        )
        if isinstance(outcome, dict):
            return delete_records_response(outcome)
        outcome.requester = context
        pending.when_abandoned(outcome.abandon)
        return pending


def delete_records_response(results: DeletionResults) -> DeleteRecordsResponse:
    """Returns one entry per topic, with partitions in the order of `results`."""
    topics: dict[str, DeleteRecordsResponse.DeleteRecordsTopicResult] = {}
    for key, (low_watermark, error) in results.items():
        topic = topics.get(key.topic)
        if topic is None:
            topic = topics[key.topic] = DeleteRecordsResponse.DeleteRecordsTopicResult(name=key.topic, partitions=[])
        topic.partitions.append(
            DeleteRecordsResponse.DeleteRecordsPartitionResult(
                partition_index=key.partition, low_watermark=low_watermark, error_code=error
            )
        )
    return DeleteRecordsResponse(topics=list(topics.values()))
