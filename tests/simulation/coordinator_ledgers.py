"""What the logs of coordinators add up to, as Kafka's protocol has it, by code of its own."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.compiler import decode_versioned, versioned_version
from odradek.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.messages.transaction_records import TransactionLogKey, TransactionLogValue
from odradek.protocol.records import iter_batches, read_records
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.producers.transaction_marker import read_marker
from tests.simulation.consumer_group_ledger import KEYS, ConsumerGroupLedger
from tests.simulation.log_contents import segment_bytes

GROUP_METADATA = 2
"""The type of the records of classic groups."""
RECENT = 6
"""How many states of a transactional id a coordinator may have, of those in the log."""


class Content(NamedTuple):
    """A batch of a log."""

    header: BatchHeader
    content: bytes


def batches_from(log: Log, offset: int, end_offset: int) -> Iterator[Content]:
    """The batches from this offset on, below the other."""
    first = max(bisect_right(log.segments.base_offsets, offset) - 1, 0)
    for slot in range(first, len(log.segments)):
        segment = log.segments[slot]
        content = segment_bytes(log, segment)
        for position, header in iter_batches(content):
            if header.base_offset >= end_offset:
                return
            if header.base_offset >= offset:
                yield Content(header, content[position : position + header.size_in_bytes])


class LoggedTransaction(NamedTuple):
    """The state of a transactional id."""

    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    client_version: int = 0


class TransactionLedger:
    """What the records of a partition of `__transaction_state` add up to. `recent`: the last states of each id."""

    def __init__(self) -> None:
        self.now: dict[str, LoggedTransaction] = {}
        self.recent: dict[str, deque[LoggedTransaction | None]] = {}

    def take(self, batch: Content, note: Callable[[int, str, LoggedTransaction | None], object]) -> None:
        """Applies the next batch. `note` gets offset, id and new state of each record; None: deleted."""
        for record in read_records(batch.content, 0, batch.header) if not batch.header.is_control else ():
            transactional_id = decode_versioned(TransactionLogKey, record.key or b"")[1].transactional_id
            found = None
            if record.value is None:
                self.now.pop(transactional_id, None)
            else:
                value = decode_versioned(TransactionLogValue, record.value)[1]
                found = self.now[transactional_id] = LoggedTransaction(
                    TransactionState(value.transaction_status),
                    value.producer_id,
                    value.producer_epoch,
                    value.transaction_timeout_ms,
                    frozenset(
                        TopicPartition(topic.topic, number)
                        for topic in value.transaction_partitions or ()
                        for number in topic.partition_ids
                    ),
                    value.client_transaction_version,
                )
            self.recent.setdefault(transactional_id, deque(maxlen=RECENT)).append(found)
            note(record.offset, transactional_id, found)

    def branch(self) -> TransactionLedger:
        """Returns a copy, to apply batches to that may be lost."""
        branch = TransactionLedger()
        branch.now = dict(self.now)
        return branch


class Key(NamedTuple):
    """What a group commits an offset of."""

    group: str
    topic: str
    partition: int


class Written(NamedTuple):
    """An offset, and where its commit is in the log."""

    offset: int
    at: int


class LoggedGroup(NamedTuple):
    """A generation of a group. `members`: the assignments by member id."""

    generation: int
    protocol: str | None
    leader: str | None
    members: Mapping[str, tuple[str | None, bytes]]


class GroupLedger:
    """What the records of a partition of `__consumer_offsets` add up to. `open`: by producer id."""

    def __init__(self) -> None:
        self.groups: dict[str, LoggedGroup] = {}
        self.offsets: dict[Key, Written] = {}
        self.open: dict[int, dict[Key, Written]] = {}
        self.consumers = ConsumerGroupLedger()

    def take(self, batch: Content, note: object = None) -> None:
        """Applies the next batch."""
        header = batch.header
        if header.is_control:
            self._end(header, batch.content)
            return
        for record in read_records(batch.content, 0, header):
            kind = versioned_version(record.key or b"")
            if kind == GROUP_METADATA:
                self._take_group(record)
            elif kind in KEYS:
                self.consumers.take(record)
            else:
                self._take_offset(record, header)
        self.consumers.end_of_batch()

    def _end(self, header: BatchHeader, content: bytes) -> None:
        marker = read_marker(content, 0, header)
        ended = {} if marker is None else self.open.pop(header.producer_id, {})
        if marker is not None and not marker.aborted:
            for key, written in ended.items():
                known = self.offsets.get(key)
                if known is None or known.at < written.at:
                    self.offsets[key] = written

    def _take_offset(self, record: Any, header: BatchHeader) -> None:
        found = decode_versioned(OffsetCommitKey, record.key)[1]
        key = Key(found.group, found.topic, found.partition)
        if record.value is None:
            self.offsets.pop(key, None)
            for waiting in self.open.values():
                waiting.pop(key, None)
            return
        written = Written(decode_versioned(OffsetCommitValue, record.value)[1].offset, record.offset)
        if header.is_transactional:
            self.open.setdefault(header.producer_id, {})[key] = written
        else:
            self.offsets[key] = written

    def _take_group(self, record: Any) -> None:
        group = decode_versioned(GroupMetadataKey, record.key)[1].group
        if record.value is None:
            self.groups.pop(group, None)
            return
        value = decode_versioned(GroupMetadataValue, record.value)[1]
        members = {each.member_id: (each.group_instance_id, each.assignment) for each in value.members}
        self.groups[group] = LoggedGroup(value.generation, value.protocol, value.leader, members)

    def branch(self) -> GroupLedger:
        """Returns a copy, to apply batches to that may be lost."""
        branch = GroupLedger()
        branch.groups, branch.offsets, branch.open = dict(self.groups), dict(self.offsets), deepcopy(self.open)
        branch.consumers = self.consumers.branch()
        return branch
