"""DescribeProducers (key 61): who writes to a partition. (KIP-664; Kafka's KafkaApis.handleDescribeProducersRequest)"""

from __future__ import annotations

from odradek.broker.handlers.request_context import RequestContext
from odradek.broker.topic_names import topic_name_fault
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from odradek.protocol.topic_partition import TopicPartition

_Answer = DescribeProducersResponse.PartitionResponse


def handle_describe_producers(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    """Answers every partition at once."""
    topics = []
    for topic in request.topics:
        fault = topic_name_fault(topic.name)
        if fault is not None:
            answers = [
                _Answer(partition_index=index, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, error_message=fault)
                for index in topic.partition_indexes
            ]
        else:
            answers = [_answer(context, TopicPartition(topic.name, index)) for index in topic.partition_indexes]
        topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


def _answer(context: RequestContext, key: TopicPartition) -> _Answer:
    try:
        producers = context.broker.replica_manager.describe_producers(key)
    except ProtocolError as error:
        return _Answer(
            partition_index=key.partition,
            error_code=error.code,
            error_message=error.error_message or error.code.message,
        )
    return _Answer(
        partition_index=key.partition,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_transaction_first_offset,
            )
            for producer in producers
        ],
    )
