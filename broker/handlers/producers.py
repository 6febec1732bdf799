"""DescribeProducers (key 61): the producers of a partition. (KIP-664; Kafka's
KafkaApis.handleDescribeProducersRequest)
"""

from __future__ import annotations

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, items_of
from odradek.broker.handlers.access import ITEMS_PER_DECISION, Access, Check
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.storage.producers.producer_state_entry import ProducerStateEntry

PRODUCER_BYTES = 39
READ_TOPIC = Check(AclOperation.READ, AclResourceType.TOPIC, "topics.name", "each partition")
"""The size of a producer in a response."""

_Answer = DescribeProducersResponse.PartitionResponse


class DescribeProducersHandler:
    """DescribeProducers (key 61)."""

    def __init__(self, partitions: HostedPartitions, access: Access, max_response_bytes: int) -> None:
        self._partitions = partitions
        self._access = access
        self._max_response_bytes = max_response_bytes

    def describe_producers(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> Steps[DescribeProducersResponse]:
        """Describes one partition after the other, each once, in the order of first occurrence."""
        topics = []
        seen: set[TopicPartition] = set()
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        refusals: dict[str, ProtocolError | None] = {}
        for topic in request.topics:
            if topic.name not in refusals:
                refusals[topic.name] = self._refusal(topic.name, context)
                if pace.step_ends(ITEMS_PER_DECISION + items_of(topic.name)):
                    yield
            refusal = refusals[topic.name]
            partitions = []
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                if key not in seen:
                    seen.add(key)
                    partitions.append((yield from self._described(key, refusal, pace, size)))
                if pace.step_ends():
                    yield
            if partitions or not topic.partition_indexes:
                topics.append(DescribeProducersResponse.TopicResponse(name=topic.name, partitions=partitions))
            if pace.step_ends():
                yield
        return DescribeProducersResponse(topics=topics)

    def _refusal(self, topic: str, context: RequestContext) -> ProtocolError | None:
        """Returns why no partition of a topic is described."""
        fault = topic_name_fault(topic)
        if fault is not None:
            return ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        if not self._access.allows(context, READ_TOPIC, topic):
            return ProtocolError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return None

    def _described(
        self, key: TopicPartition, refusal: ProtocolError | None, pace: Pace, size: AnswerSize
    ) -> Steps[_Answer]:
        try:
            if refusal is not None:
                raise refusal
            state = self._partitions.find(key).local_log(require_leader=False).producers.state
        except ProtocolError as error:
            return _Answer(
                partition_index=key.partition,
                error_code=error.code,
                error_message=error.error_message or error.code.message,
            )
        producers = list(state.producers.values())
        size.add(PRODUCER_BYTES * len(producers))
        active = yield from each_in_steps(producers, _producer, pace)
        return _Answer(partition_index=key.partition, active_producers=active)


def _producer(producer: ProducerStateEntry) -> DescribeProducersResponse.ProducerState:
    return DescribeProducersResponse.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_transaction_first_offset,
    )
