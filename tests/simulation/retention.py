"""The topic whose records are deleted: by their age, by the size of the log, and on request.

readings       a topic of a producer and a consumer of their own. The consumer is stopped now and then until what is
               at its position is deleted, and goes on at the log's start
RecordDeleter  asks for the deletion of records up to an offset, often that of the latest record, now and then beyond
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.administration import Administrator, Office
from tests.simulation.client.deletions import DeletionAdmin

READINGS = "readings"
READINGS_PARTITIONS = 2
BY_AGE = {"segment.bytes": "4096", "retention.ms": "4000"}
BY_SIZE = {"segment.bytes": "4096", "retention.ms": "-1", "retention.bytes": "5000"}
COMPACTED = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.05"}
"""Every record has a key of its own, so nothing goes by compaction."""
HIGH_WATERMARK = -1
FEW_RECORDS = 30


def readings_settings(source: Random) -> dict[str, str]:
    """The settings of the topic: by age in one half of the seeds, by size in the other one. In half of each it is
    compacted, too."""
    return source.choice([BY_AGE, BY_SIZE]) | source.choice([{}, COMPACTED])


class RecordDeleter(Administrator):
    """`partitions` without those that only retention shrinks."""

    def __init__(self, office: Office, *, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(office)
        self._admin = DeletionAdmin(self._cluster, self._history, name=self._name)
        self._partitions = partitions

    async def run(self) -> None:
        """Does so until the end."""
        while not self.is_ending:
            partition = self._source.choice(self._partitions)
            if self._cluster.leader_of(partition) is None:
                await self._cluster.refresh([partition.topic])
            end = await self._admin.end_of(partition)
            if end is not None:
                await self._admin.delete(partition, self._before(end))
            await self._pauses.pause()

    def _before(self, end: int) -> int:
        """A little before the end in most cases, in some all that is committed, or what is not there yet."""
        choice, few = self._source.random(), self._source.randint(0, FEW_RECORDS)
        if choice < 0.2:
            return HIGH_WATERMARK
        return end + few if choice < 0.3 else max(end - few, HIGH_WATERMARK)
