"""Reads the logs of coordinators as they grow, and compares what coordinators have in memory.

Each partition of an internal topic has one ledger (coordinator_ledgers.py). It is read from the leader's log every half
a second, often before a cleaner removes anything: `Logged.skips` tells of a gap. coordinator_differences.py says what
must be as the log has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.broker.coordinator.runtime.led_partition import LedPartition
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.consumer_group_ledger import Lasting
from tests.simulation.coordinator_differences import (
    groups_astray,
    loaded_wrongly,
    transactions_astray,
)
from tests.simulation.coordinator_ledgers import (
    Content,
    GroupLedger,
    LoggedTransaction,
    TransactionLedger,
    batches_from,
)
from tests.simulation.history import History
from tests.simulation.machine import Machine
from tests.simulation.missteps import Misstep
from tests.simulation.transaction_history import Differs, Logged

LASTING = ("orders", "payments", "clicks")
"""Topics that stay as they were created."""


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
        self._loaded_to: dict[tuple[str, TopicPartition], int] = {}
        """The end of each process's log when it loaded the partition."""
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
        if partition is None:
            return
        end_offset = self._loaded_to[name, led.topic_partition] = partition.log.state.log_end_offset
        if partition.leader_epoch < self._known(led.topic_partition).leader_epoch:
            return
        self._catch_up(name, broker, partition)
        if end_offset < self._known(led.topic_partition).next_offset:
            return
        for what, in_memory, in_log in loaded_wrongly(led.shard, self._up_to(partition, end_offset)):
            self._note(name, led.topic_partition, what, in_memory, in_log, was_loaded=True)

    def _up_to(self, partition: Partition, end_offset: int) -> Any:
        """Returns the ledger of all that is committed, and of this leader's uncommitted records below the offset."""
        known = self._known(partition.topic_partition)
        if end_offset <= known.next_offset:
            return known.ledger
        ledger = known.ledger.branch()
        for batch in batches_from(partition.log, known.next_offset, end_offset):
            ledger.take(batch, lambda *_: None)
        return ledger

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
                self._catch_up(machine.name, broker, partition)
                self._compare(machine.name, broker, partition)

    def _known(self, key: TopicPartition) -> _Read:
        read = self._read.get(key)
        if read is None:
            ledger = TransactionLedger() if key.topic == TRANSACTION_TOPIC else GroupLedger()
            read = self._read[key] = _Read(ledger, 0, -1)
        return read

    def _catch_up(self, name: str, broker: Broker, partition: Partition) -> None:
        key = partition.topic_partition
        ledger, next_offset, _ = self._known(key)
        high_watermark = partition.log.state.high_watermark

        def note(offset: int, transactional_id: str, found: LoggedTransaction | None) -> None:
            nonlocal next_offset
            logged = Logged(
                process=name,
                partition=key,
                offset=offset,
                transactional_id=transactional_id,
                state=None if found is None else found.state,
                producer_id=-1 if found is None else found.producer_id,
                producer_epoch=-1 if found is None else found.producer_epoch,
                client_version=0 if found is None else found.client_version,
                skips=offset > next_offset,
            )
            next_offset = offset + 1
            self._history.note(logged)

        if isinstance(ledger, GroupLedger):
            ledger.consumers.lasting = _lasting_topics(broker)
        is_whole, end_offset = True, next_offset
        if high_watermark > next_offset:
            for batch in batches_from(partition.log, next_offset, high_watermark):
                is_whole = is_whole and batch.header.base_offset == end_offset and _is_whole(batch)
                ledger.take(batch, note)
                next_offset = end_offset = batch.header.last_offset + 1
        if isinstance(ledger, GroupLedger):
            for finding in ledger.consumers.found if is_whole else ():
                self._history.note(Misstep(process=name, finding=finding))
            ledger.consumers.found.clear()
        self._read[key] = _Read(ledger, next_offset, partition.leader_epoch)

    def _compare(self, name: str, broker: Broker, partition: Partition) -> None:
        key = partition.topic_partition
        if partition.log.state.high_watermark < partition.epoch_start_offset:
            return
        ledger: Any = self._known(key).ledger
        of_transactions = key.topic == TRANSACTION_TOPIC
        coordinator: Any = broker.coordinators.transactions if of_transactions else broker.coordinators.groups
        for shard in coordinator.shards():
            if shard.partition == key.partition:
                differences = (
                    transactions_astray(shard, ledger)
                    if of_transactions
                    else groups_astray(
                        shard,
                        self._up_to(partition, self._loaded_to.get((name, key), 0)),
                        self._up_to(partition, partition.log.state.log_end_offset),
                    )
                )
                for what, in_memory, in_log in differences:
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


def _lasting_topics(broker: Broker) -> dict[str, Lasting]:
    """Those that a broker knows."""
    known = broker.metadata.topics
    return {topic: Lasting(known[topic].topic_id, len(known[topic].partitions)) for topic in LASTING if topic in known}


def _is_whole(batch: Content) -> bool:
    """Whether no cleaner has removed records of a batch, which others may replace."""
    header = batch.header
    return header.record_count == header.last_offset - header.base_offset + 1
