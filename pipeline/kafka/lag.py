"""The pipeline's lag: the end offset of each partition, minus the offset up to which the ledger has processed it.

The end offset depends on the pipeline's isolation level: the high watermark, or, with read_committed, the last stable
offset. Kafka's tools only use the high watermark, so they also count the records of open transactions as lag: their LAG
is `lag + in_open_transactions`. Without open transactions the numbers are equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.errors import KafkaError
from kafka.structs import TopicPartition

from odradek.pipeline.kafka.admin import admin_client, committed_offsets
from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.settings import Settings

PAUSES_S = (0.1, 0.3, 0.6)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one partition. Offsets are those of the next record. None: not processed yet, or unknown to the
    broker.
    """

    topic: str
    partition: int
    processed: int | None
    log_start_offset: int | None = None
    end_offset: int | None = None
    log_end_offset: int | None = None
    committed: int | None = None
    """The shadow group's committed offset."""

    @property
    def lag(self) -> int | None:
        """The number of unprocessed offsets; before the first batch, all of the log. None if the end is unknown."""
        if self.end_offset is None:
            return None
        begin = self.log_start_offset if self.processed is None else self.processed
        return max(self.end_offset - (begin or 0), 0)

    @property
    def in_open_transactions(self) -> int:
        """The number of offsets between the last stable offset and the high watermark, with read_committed."""
        return max((self.log_end_offset or 0) - (self.end_offset or 0), 0)

    @property
    def problem(self) -> str:
        """A description of the partition's problem. Empty if it has none."""
        if self.end_offset is None:
            return "the topic or the partition was deleted"
        if self.processed is not None and self.processed > (self.log_end_offset or 0):
            return "processed beyond the end of the log: the topic was deleted and recreated"
        if self.processed is not None and self.processed < (self.log_start_offset or 0):
            return f"{(self.log_start_offset or 0) - self.processed} offsets were deleted before they were read"
        return ""


def partition_lags(settings: Settings, processed: Offsets, patience_ms: int = 10_000) -> list[PartitionLag]:
    """Returns the lag of each partition of the pipeline's topics, sorted. Raises KafkaError and PipelineError."""
    with admin_client(settings, patience_ms) as admin:
        there = _partitions_there(admin, settings, processed)
        start = _offsets(admin, there, OffsetSpec.EARLIEST)
        high = _offsets(admin, there, OffsetSpec.LATEST)
        # Requested last, so that records produced in the meantime count as lag, not as open transactions.
        end = _offsets(admin, there, OffsetSpec.LATEST, settings.isolation_level)
        committed = _committed(admin, settings.group)
    known = {TopicPartition(topic, number) for topic, numbers in processed.items() for number in numbers}
    return [
        PartitionLag(
            each.topic,
            each.partition,
            processed.get(each.topic, {}).get(each.partition),
            start.get(each),
            end.get(each),
            high.get(each),
            committed.get(each),
        )
        for each in sorted(known | set(there))
    ]


def _committed(admin: KafkaAdminClient, group: str) -> Mapping[TopicPartition, int]:
    """Returns the group's committed offsets. Empty if the coordinator fails for about a second."""
    try:
        return committed_offsets(admin, group, pauses_s=PAUSES_S)
    except KafkaError:
        return {}


def _partitions_there(admin: KafkaAdminClient, settings: Settings, processed: Offsets) -> list[TopicPartition]:
    """Returns the existing partitions of the topics in the settings or the ledger. The request creates no topic."""
    pattern = settings.pattern
    wanted = {*settings.topics, *processed}
    return [
        TopicPartition(topic["name"], partition["partition_index"])
        for topic in admin.describe_topics()
        if topic["name"] in wanted or (pattern is not None and pattern.fullmatch(topic["name"]))
        for partition in topic["partitions"]
    ]


def _offsets(
    admin: KafkaAdminClient,
    there: Sequence[TopicPartition],
    spec: OffsetSpec,
    isolation: str = "read_uncommitted",
) -> Mapping[TopicPartition, int]:
    if not there:
        return {}
    found = admin.list_partition_offsets(dict.fromkeys(there, spec), isolation)
    return {partition: each.offset for partition, each in found.items()}
