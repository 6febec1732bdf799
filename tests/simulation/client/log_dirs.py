"""An operator of disks: moves replicas between the log directories of a broker."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.upkeep_history import Move

Directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir
Topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic


class DiskAdmin:
    """Asks once; what comes of it is in the history."""

    def __init__(self, cluster: Cluster, history: History, *, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history

    async def move(self, broker_id: int, partition: TopicPartition, directory: str) -> None:
        """Begins to move a replica."""
        move = self._history.begin(
            Move(process=self.name, broker_id=broker_id, partition=partition, directory=directory)
        )
        topic = Topic(name=partition.topic, partitions=[partition.partition])
        request = AlterReplicaLogDirsRequest(dirs=[Directory(path=directory, topics=[topic])])
        try:
            answer = await self._cluster.ask_broker(broker_id, request)
        except NotSent as error:
            self._history.end(move, Outcome.FAILED, str(error))
        except Unanswered as error:
            self._history.end(move, Outcome.UNKNOWN, str(error))
        else:
            code = ErrorCode.of(answer.results[0].partitions[0].error_code)
            self._history.end(move, Outcome.OK if code is ErrorCode.NONE else Outcome.UNKNOWN, code.name)
