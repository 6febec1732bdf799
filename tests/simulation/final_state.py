"""The cluster as it is when a simulation has ended: the replicas' logs, what each broker believes, what still waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import NamedTuple
from uuid import UUID

from odradek.protocol.records import read_batch_header, read_records
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.upkeep_history import Setting


class StoredBatch(NamedTuple):
    """A batch in a replica's log. `content`: its bytes."""

    base_offset: int
    last_offset: int
    epoch: int
    content: bytes


class StoredRecord(NamedTuple):
    """A client's record in a log."""

    offset: int
    epoch: int
    text: str


@dataclass(kw_only=True)
class ReplicaLog:
    """One replica of one partition."""

    partition: TopicPartition
    broker_id: int
    high_watermark: int
    last_stable_offset: int | None = None
    """None: the high watermark."""
    log_start_offset: int = 0
    is_compacted: bool = False
    damage: str = ""
    """Why the log cannot be read to its end."""
    batches: Sequence[StoredBatch] = ()

    @cached_property
    def records(self) -> list[StoredRecord]:
        """The records of clients below the high watermark, in order; markers are left out."""
        found = []
        for batch in self.batches:
            if batch.base_offset < self.high_watermark:
                found += [StoredRecord(offset, batch.epoch, text) for offset, text in texts_of(batch.content)]
        return found


@lru_cache(maxsize=10_000)
def texts_of(content: bytes) -> Sequence[tuple[int, str]]:
    """Offset and text of each record in a client's batch, none of a marker. The text is the value without its padding.
    Several consumers and replicas have the same batches."""
    header = read_batch_header(content)
    if header.is_control:
        return ()
    return [
        (record.offset, (record.value or b"").split(b" ", 1)[0].decode(errors="replace"))
        for record in read_records(content, 0, header)
    ]


class KeyedRecord(NamedTuple):
    """A record of a compacted topic."""

    offset: int
    key: bytes
    value: bytes | None
    is_transactional: bool


@lru_cache(maxsize=10_000)
def keyed_records(content: bytes) -> Sequence[KeyedRecord]:
    """The records of a batch that have a key; none of a marker."""
    header = read_batch_header(content)
    if header.is_control:
        return ()
    return [
        KeyedRecord(record.offset, record.key, record.value, header.is_transactional)
        for record in read_records(content, 0, header)
        if record.key is not None
    ]


class Leadership(NamedTuple):
    """A partition as a broker's metadata has it."""

    leader_id: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(kw_only=True)
class BrokerView:
    """What one running broker believes. `led`: the partitions that it leads itself, and in which epoch."""

    broker_id: int
    controller_id: int
    live_brokers: Sequence[int]
    partitions: Mapping[TopicPartition, Leadership]
    led: Mapping[TopicPartition, int]


class Stored(NamedTuple):
    """A partition as the metadata store has it."""

    leader_id: int
    leader_epoch: int
    in_sync: tuple[int, ...]


class StoredTopic(NamedTuple):
    """A topic's entry in the metadata store. `replicas` by partition, those being added and removed among them."""

    topic_id: UUID | None
    replicas: Mapping[int, tuple[int, ...]]
    reassigning: Sequence[int] = ()
    """The partitions with replicas that are being added or removed."""


class StoredMetadata(NamedTuple):
    """All topics that the metadata store has: their entries, those with settings, and those marked for deletion."""

    topics: Mapping[str, StoredTopic]
    configs: Sequence[str] = ()
    deletions: Sequence[str] = ()


class Folder(NamedTuple):
    """The folder of a partition on a broker's disk."""

    broker_id: int
    partition: TopicPartition
    topic_id: UUID | None
    directory: str = ""
    """The log directory."""
    is_stuck: bool = False
    """Whether the broker has tried to rename it, and could not."""


class SettingInForce(NamedTuple):
    """The value of a setting that a broker, a log or the store has; None: none of its own."""

    where: str
    setting: Setting
    value: str | None


class Waiting(NamedTuple):
    """A request that is parked in a broker's purgatory. `overdue_ms`: how long ago it should have been answered."""

    broker_id: int
    what: str
    overdue_ms: int


class Unread(NamedTuple):
    """A consumer has not read a partition to its end."""

    consumer: str
    partition: TopicPartition
    position: int
    end_offset: int


@dataclass(kw_only=True)
class FinalState:
    """`logs`: of each partition of clients, the leader's replica. `replicas`: all of all partitions. `stored` and
    `metadata`: what the metadata store has, if the brokers share one. `folders`: of partitions on all disks, without
    those that only wait to be removed; `future_folders`: those of replicas that are moved to another directory."""

    logs: Mapping[TopicPartition, ReplicaLog] = field(default_factory=dict)
    replicas: Sequence[ReplicaLog] = ()
    views: Sequence[BrokerView] = ()
    waiting: Sequence[Waiting] = ()
    stored: Mapping[TopicPartition, Stored] = field(default_factory=dict)
    metadata: StoredMetadata | None = None
    folders: Sequence[Folder] = ()
    future_folders: Sequence[Folder] = ()
    settings: Sequence[SettingInForce] = ()
    access: Mapping[int, Mapping[str, object]] = field(default_factory=dict)
    """What each broker knows of access rules and passwords."""
    stored_access: Mapping[str, object] = field(default_factory=dict)
    """What the store has of them."""
    unread: Sequence[Unread] = ()
    unsettled: Sequence[str] = ()
    """What is not as it must be in the groups whose members stay."""
    messages_per_second: float = 0.0
    """On the whole network, when no client has anything to do but to wait."""
