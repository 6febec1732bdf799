"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch, with which a client detects truncation.
(KIP-101, KIP-320)
"""

from __future__ import annotations

from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.list_offsets import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from odradek.protocol.topic_partition import TopicPartition

_Answer = OffsetForLeaderEpochResponse.EpochEndOffset


class OffsetForLeaderEpochHandler:
    """OffsetForLeaderEpoch (key 23)."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._replica_manager = replica_manager

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

    def _answer(self, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition) -> _Answer:
        try:
            epoch, end_offset = self._replica_manager.offset_for_leader_epoch(
                TopicPartition(topic, asked.partition), asked.current_leader_epoch, asked.leader_epoch
            )
        except ProtocolError as error:
            return _Answer(partition=asked.partition, error_code=error.code)
        return _Answer(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
