"""An administrator of records: deletes those before an offset. Each request is an operation of the history."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.retention_history import Deletion

TIMEOUT_MS = 2000
LATEST = -1
OUTCOMES = {ErrorCode.NONE: Outcome.OK, ErrorCode.OFFSET_OUT_OF_RANGE: Outcome.FAILED}
"""By the code of the answer. A broker that no longer leads may have begun."""


class DeletionAdmin:
    """Asks once; what comes of it is in the history."""

    def __init__(self, cluster: Cluster, history: History, *, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history

    async def end_of(self, partition: TopicPartition) -> int | None:
        """The high watermark at the partition's leader; None if it is not known."""
        leader = self._cluster.leader_of(partition)
        wanted = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=partition.topic, partitions=[wanted])
        if leader is None:
            return None
        try:
            answer = await self._cluster.ask_broker(leader.broker_id, ListOffsetsRequest(replica_id=-1, topics=[topic]))
        except (NotSent, Unanswered):
            return None
        found = answer.topics[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            await self._cluster.refresh([partition.topic])
            return None
        return int(found.offset)

    async def delete(self, partition: TopicPartition, before: int) -> None:
        """Asks for the deletion of all records before the offset; -1: of those below the high watermark."""
        leader = self._cluster.leader_of(partition)
        if leader is None:
            return
        wanted = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition.partition, offset=before)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=partition.topic, partitions=[wanted])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        deletion = self._history.begin(Deletion(process=self.name, partition=partition, before=before))
        try:
            answer = await self._cluster.ask_broker(leader.broker_id, request)
        except NotSent as error:
            self._history.end(deletion, Outcome.FAILED, str(error))
        except Unanswered as error:
            self._history.end(deletion, Outcome.UNKNOWN, str(error))
        else:
            result = answer.topics[0].partitions[0]
            code = ErrorCode.of(result.error_code)
            deletion.low_watermark = result.low_watermark
            self._history.end(deletion, OUTCOMES.get(code, Outcome.UNKNOWN), code.name)
