"""ListOffsets (key 2): offsets by timestamp. Version 0 returns the start offsets of segments instead.
OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, with which a client detects truncation. (KIP-101,
KIP-320)

(Kafka's KafkaApis.handleListOffsetRequest, handleOffsetForLeaderEpochRequest and ReplicaManager.fetchOffset)
"""

from __future__ import annotations

from collections import Counter

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.partition_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    offset_for_timestamp,
    offsets_before,
)
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

CONSUMER = -1
OFFSET_BYTES = 8
SEARCH_ITEMS = 30
"""How many items of a step a search by timestamp counts as: it reads a batch."""
ISOLATION_LEVELS = (0, 1)
DEBUGGING_REPLICA = -2
FIRST_VERSION_WITH_LEADER_EPOCH = 4
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5

FIRST_VERSIONS = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version that supports each negative timestamp."""

_Partition = ListOffsetsRequest.ListOffsetsPartition
_Answer = ListOffsetsResponse.ListOffsetsPartitionResponse
_EpochAnswer = OffsetForLeaderEpochResponse.EpochEndOffset


class ListOffsetsHandler:
    """ListOffsets (key 2)."""

    def __init__(self, partitions: HostedPartitions, clock: Clock, max_response_bytes: int) -> None:
        self._partitions = partitions
        self._clock = clock
        self._max_response_bytes = max_response_bytes

    def list_offsets(self, request: ListOffsetsRequest, context: RequestContext) -> Steps[ListOffsetsResponse]:
        """Looks up one partition after the other. From version 1 on repeated partitions are INVALID_REQUEST."""
        keys = Counter(
            (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
        )
        topics = []
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                if context.api_version == 0:
                    answers.append(self._segment_starts(request, topic.name, asked))
                elif keys[topic.name, asked.partition_index] > 1:
                    answers.append(_failed(asked, ErrorCode.INVALID_REQUEST))
                else:
                    answers.append((yield from self._by_time(request, context, topic.name, asked)))
                segments = len(answers[-1].old_style_offsets)
                size.add(OFFSET_BYTES * segments)
                searched = SEARCH_ITEMS if asked.timestamp not in (LATEST, EARLIEST) else 1
                if pace.step_ends(searched + segments):
                    yield
            topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def _by_time(
        self, request: ListOffsetsRequest, context: RequestContext, topic: str, asked: _Partition
    ) -> Steps[_Answer]:
        version = context.api_version
        if asked.timestamp < 0 and version < FIRST_VERSIONS.get(asked.timestamp, 1 << 15):
            return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
        if request.isolation_level not in ISOLATION_LEVELS:
            return _failed(asked, ErrorCode.INVALID_REQUEST)
        try:
            found = yield from offset_for_timestamp(
                self._partitions.find(TopicPartition(topic, asked.partition_index)),
                asked.timestamp,
                request.isolation_level if request.replica_id == CONSUMER else None,
                asked.current_leader_epoch,
                require_leader=request.replica_id != DEBUGGING_REPLICA,
            )
        except ProtocolError as error:
            code = error.code
            if code is ErrorCode.OFFSET_NOT_AVAILABLE and version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            return _failed(asked, code)
        return _Answer(
            partition_index=asked.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch if version >= FIRST_VERSION_WITH_LEADER_EPOCH else -1,
        )

    def _segment_starts(self, request: ListOffsetsRequest, topic: str, asked: _Partition) -> _Answer:
        if asked.timestamp < EARLIEST:
            return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
        try:
            offsets = offsets_before(
                self._partitions.find(TopicPartition(topic, asked.partition_index)),
                asked.timestamp,
                asked.max_num_offsets,
                self._clock.wall_ms(),
                from_consumer=request.replica_id == CONSUMER,
                require_leader=request.replica_id != DEBUGGING_REPLICA,
            )
        except ProtocolError as error:
            return _failed(asked, error.code)
        return _Answer(partition_index=asked.partition_index, old_style_offsets=offsets)


def _failed(asked: _Partition, error: ErrorCode) -> _Answer:
    return _Answer(partition_index=asked.partition_index, error_code=error)


class OffsetForLeaderEpochHandler:
    """OffsetForLeaderEpoch (key 23)."""

    def __init__(self, partitions: HostedPartitions) -> None:
        self._partitions = partitions

    def offset_for_leader_epoch(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> OffsetForLeaderEpochResponse:
        """Looks up all partitions at once."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[self._answer(topic.topic, asked) for asked in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _answer(self, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition) -> _EpochAnswer:
        try:
            partition = self._partitions.find(TopicPartition(topic, asked.partition))
            epoch, end_offset = partition.end_offset_for_epoch(asked.current_leader_epoch, asked.leader_epoch)
        except ProtocolError as error:
            return _EpochAnswer(partition=asked.partition, error_code=error.code)
        return _EpochAnswer(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
