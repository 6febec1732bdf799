"""Reads the logs of coordinators as they grow, and compares what coordinators have in memory.

Each partition of an internal topic has one `Ledger`: what its committed records add up to, as Kafka's protocol has it,
by code of its own. It is read from the leader's log every half a second, before a cleaner can remove anything.

    after a load    What a coordinator has loaded is what its log adds up to, from the first record to the last, the
                    uncommitted ones at its end included.
    now and then    A transaction without a pending change is in a state that its log had lately: an append that is in
                    the log, but failed (the in-sync replicas were too few for a moment), does not count for the
                    coordinator. So is a stable group. An offset in effect is in the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, NamedTuple

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.shard import GroupShard
from odradek.broker.coordinator.runtime.led_partition import LedPartition
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction_state import TransactionState
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
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
from tests.simulation.history import History
from tests.simulation.log_contents import segment_bytes
from tests.simulation.machine import Machine
from tests.simulation.transaction_history import Differs, Logged

Difference = tuple[str, object, object]
"""What differs, how it is in memory and how in the log."""
RECENT = 6
"""How many states of a transactional id or a group a coordinator may have, of those in the log."""


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
    """What the records of a partition of `__consumer_offsets` add up to. `recent`: the last states of each group.
    `open`: by producer id."""

    def __init__(self) -> None:
        self.groups: dict[str, LoggedGroup] = {}
        self.recent: dict[str, deque[LoggedGroup]] = {}
        self.offsets: dict[Key, Written] = {}
        self.open: dict[int, dict[Key, Written]] = {}

    def take(self, batch: Content, note: object = None) -> None:
        """Applies the next batch."""
        header = batch.header
        if header.is_control:
            self._end(header, batch.content)
            return
        for record in read_records(batch.content, 0, header):
            if versioned_version(record.key or b"") == 2:
                self._take_group(record)
            else:
                self._take_offset(record, header)

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
        self.recent.setdefault(group, deque(maxlen=RECENT)).append(self.groups[group])

    def branch(self) -> GroupLedger:
        """Returns a copy, to apply batches to that may be lost."""
        branch = GroupLedger()
        branch.groups, branch.offsets, branch.open = dict(self.groups), dict(self.offsets), deepcopy(self.open)
        return branch


class _Read(NamedTuple):
    """How far the committed records of a partition were read, and in which leader epoch."""

    ledger: TransactionLedger | GroupLedger
    next_offset: int
    leader_epoch: int


class CoordinatorLogs:
    """Call `watch` for each broker that serves, and `look` now and then. What differs is noted once of each thing."""

    def __init__(self, history: History, machines: Mapping[int, Machine]) -> None:
        self._history = history
        self._machines = machines
        self._read: dict[TopicPartition, _Read] = {}
        self._seen: dict[tuple[TopicPartition, str, bool], None] = {}

    def watch(self, name: str, broker: Broker) -> None:
        """Compares what this broker's coordinators load from now on."""
        for runtime in broker.coordinators.runtimes:
            self._watch_loads(name, broker, runtime)

    def _watch_loads(self, name: str, broker: Broker, runtime: CoordinatorRuntime) -> None:
        loader: Any = runtime._loader
        on_loaded = loader._on_loaded

        def loaded(led: LedPartition) -> None:
            try:
                self._compare_loaded(name, broker, led)
            except Exception as error:  # what is judged must not be disturbed
                self._note(name, led.topic_partition, "what cannot be read", repr(error), "", was_loaded=True)
            on_loaded(led)

        loader._on_loaded = loaded

    def _compare_loaded(self, name: str, broker: Broker, led: LedPartition) -> None:
        partition = broker.replica_manager.partitions.get(led.topic_partition)
        if partition is None or partition.leader_epoch < self._known(led.topic_partition).leader_epoch:
            return
        self._catch_up(name, partition)
        read = self._known(led.topic_partition)
        end_offset = partition.log.state.log_end_offset
        if end_offset < read.next_offset:
            return
        ledger = read.ledger.branch()
        for batch in batches_from(partition.log, read.next_offset, end_offset):
            ledger.take(batch, lambda *_: None)
        for what, in_memory, in_log in _differences(led.shard, ledger):
            self._note(name, led.topic_partition, what, in_memory, in_log, was_loaded=True)

    # --- now and then -------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Reads what is committed, and compares the coordinators of the newest leaders."""
        leaders: dict[TopicPartition, tuple[Machine, Broker, Partition]] = {}
        for machine in self._machines.values():
            broker = machine.running
            for partition in () if broker is None else broker.replica_manager.partitions:
                key = partition.topic_partition
                if broker is None or not partition.is_leader or key.topic not in (GROUP_TOPIC, TRANSACTION_TOPIC):
                    continue
                if key not in leaders or leaders[key][2].leader_epoch < partition.leader_epoch:
                    leaders[key] = (machine, broker, partition)
        for key, (machine, broker, partition) in sorted(leaders.items()):
            if partition.leader_epoch >= self._known(key).leader_epoch:
                self._catch_up(machine.name, partition)
                self._compare(machine.name, broker, partition)

    def _known(self, key: TopicPartition) -> _Read:
        read = self._read.get(key)
        if read is None:
            ledger = TransactionLedger() if key.topic == TRANSACTION_TOPIC else GroupLedger()
            read = self._read[key] = _Read(ledger, 0, -1)
        return read

    def _catch_up(self, name: str, partition: Partition) -> None:
        key = partition.topic_partition
        ledger, next_offset, _ = self._known(key)
        high_watermark = partition.log.state.high_watermark
        is_first = next_offset > 0

        def note(offset: int, transactional_id: str, found: LoggedTransaction | None) -> None:
            logged = Logged(
                process=name,
                partition=key,
                offset=offset,
                transactional_id=transactional_id,
                state=None if found is None else found.state,
                producer_id=-1 if found is None else found.producer_id,
                producer_epoch=-1 if found is None else found.producer_epoch,
                skips=is_first and offset > next_offset,
            )
            self._history.note(logged)

        if high_watermark > next_offset:
            for batch in batches_from(partition.log, next_offset, high_watermark):
                ledger.take(batch, note)
                next_offset = batch.header.last_offset + 1
        self._read[key] = _Read(ledger, next_offset, partition.leader_epoch)

    def _compare(self, name: str, broker: Broker, partition: Partition) -> None:
        key = partition.topic_partition
        if partition.log.state.high_watermark < partition.epoch_start_offset:
            return
        ledger = self._known(key).ledger
        of_transactions = key.topic == TRANSACTION_TOPIC
        coordinator: Any = broker.coordinators.transactions if of_transactions else broker.coordinators.groups
        differences: Callable[[Any, Any], Iterator[Difference]] = (
            _transactions_astray if of_transactions else _groups_astray
        )
        for shard in coordinator.shards():
            if shard.partition == key.partition:
                for what, in_memory, in_log in differences(shard, ledger):
                    self._note(name, key, what, in_memory, in_log, was_loaded=False)

    def _note(
        self, name: str, key: TopicPartition, what: str, in_memory: object, in_log: object, *, was_loaded: bool
    ) -> None:
        if (key, what, was_loaded) not in self._seen:
            self._seen[key, what, was_loaded] = None
            self._history.note(
                Differs(
                    process=name,
                    partition=key,
                    what=what,
                    in_memory=str(in_memory),
                    in_log=str(in_log),
                    was_loaded=was_loaded,
                )
            )


def _differences(shard: object, ledger: TransactionLedger | GroupLedger) -> Iterator[Difference]:
    """Between a shard that was just loaded and its log."""
    if isinstance(shard, TransactionShard) and isinstance(ledger, TransactionLedger):
        yield from _different("transactional id", _transactions(shard), ledger.now)
    elif isinstance(shard, GroupShard) and isinstance(ledger, GroupLedger):
        of_groups = {name: group for name, group in shard.groups.items() if isinstance(group, ClassicGroup)}
        yield from _different("group", {name: _logged(group) for name, group in of_groups.items()}, ledger.groups)
        offsets = {key: written.offset for key, written in ledger.offsets.items()}
        yield from _different("the offset of", _offsets(shard), offsets)
        still_open = {
            f"{producer_id} {key}": written.offset
            for producer_id, of_producer in ledger.open.items()
            for key, written in of_producer.items()
        }
        yield from _different("the open commit of", _open_offsets(shard), still_open)


def _different(what: str, in_memory: Mapping[Any, object], in_log: Mapping[Any, object]) -> Iterator[Difference]:
    for name in sorted({*in_memory, *in_log}):
        if in_memory.get(name) != in_log.get(name):
            yield f"{what} {name}", in_memory.get(name), in_log.get(name)


def _transactions(shard: TransactionShard) -> dict[str, LoggedTransaction]:
    return {
        name: LoggedTransaction(
            each.state, each.producer_id, each.producer_epoch, each.timeout_ms, frozenset(each.partitions)
        )
        for name, each in shard.transactions.items()
    }


def _logged(group: ClassicGroup) -> LoggedGroup:
    members = {each.member_id: (each.group_instance_id, each.assignment) for each in group.members}
    return LoggedGroup(group.generation_id, group.protocol_name, group.leader_id, members)


def _offsets(shard: GroupShard) -> dict[Key, int]:
    return {
        Key(group, topic, partition): committed.offset
        for group in shard.offsets.group_ids()
        for topic, partitions in shard.offsets.committed(group).items()
        for partition, committed in partitions.items()
    }


def _open_offsets(shard: GroupShard) -> dict[str, int]:
    return {
        f"{producer_id} {Key(group, topic, partition)}": committed.offset
        for group in shard.offsets.group_ids()
        if (of_group := shard.offsets.of_group(group)) is not None
        for producer_id, commits in of_group.transactions.items()
        for topic, partitions in commits.items()
        for partition, committed in partitions.items()
    }


def _transactions_astray(shard: TransactionShard, ledger: TransactionLedger) -> Iterator[Difference]:
    """The transactions without a pending change that are in no state that their log had lately."""
    for name, found in _transactions(shard).items():
        transaction, recent = shard.transactions[name], ledger.recent.get(name, ())
        if transaction.pending is None and not transaction.failed_fence and found not in recent:
            yield f"transactional id {name}", found, list(recent)


def _groups_astray(shard: GroupShard, ledger: GroupLedger) -> Iterator[Difference]:
    """The stable groups that are not as their log had them lately, and the offsets beyond those in it: they only
    grow."""
    for name, group in shard.groups.items():
        if not isinstance(group, ClassicGroup) or group.state is not GroupState.STABLE or group.awaiting:
            continue
        recent = ledger.recent.get(name, ())
        if _logged(group) not in recent:
            yield f"group {name}", _logged(group), list(recent)
    for key, offset in _offsets(shard).items():
        written = ledger.offsets.get(key)
        if written is None or written.offset < offset:
            yield f"the offset of {key}", offset, written
