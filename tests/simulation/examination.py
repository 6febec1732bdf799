"""Looks into the brokers of a simulation: reads their replicas' logs, their metadata and what waits in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.broker.coordinator.transaction.transaction_state import ONGOING
from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS, TRANSACTION_TOPIC
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.server import Broker
from odradek.protocol.batch_header import CorruptBatch
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import DelayedOperationPurgatory
from odradek.storage.checkpoint import PARTITION_METADATA, CorruptCheckpoint, read_partition_metadata
from odradek.storage.file_names import parse_folder, parse_future_folder
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import LogSegment
from tests.simulation.final_state import (
    BrokerView,
    FinalState,
    Folder,
    Leadership,
    ReplicaLog,
    SettingInForce,
    StoredBatch,
    Waiting,
)
from tests.simulation.history import Broken, JoinedBehind, ServedEarly
from tests.simulation.log_contents import segment_bytes, why_undecodable
from tests.simulation.machine import DIRECTORIES, Machine
from tests.simulation.upkeep_history import Setting


def examine(machines: Iterable[Machine], settings: Collection[Setting] = ()) -> FinalState:
    """The state of all brokers that serve, and what they have of these settings."""
    machines = list(machines)
    brokers = [broker for machine in machines if (broker := machine.running) is not None]
    logs: dict[TopicPartition, ReplicaLog] = {}
    replicas = []
    for broker in brokers:
        for partition in broker.replica_manager.partitions:
            replica = replica_log(partition.topic_partition, broker.broker_id, partition.log)
            replicas.append(replica)
            if partition.is_leader and partition.topic_partition.topic not in INTERNAL_TOPICS:
                logs[partition.topic_partition] = replica
    return FinalState(
        logs=logs,
        replicas=replicas,
        views=[view_of(broker) for broker in brokers],
        waiting=[each for broker in brokers for each in waiting_in(broker)],
        folders=[folder for machine in machines for folder in folders_of(machine)],
        future_folders=[folder for machine in machines for folder in folders_of(machine, parse_future_folder)],
        settings=[found for broker in brokers for found in settings_in(broker, settings)],
    )


class Checked(Protocol):
    """What states its invariants."""

    def check(self) -> None:
        """Raises AssertionError if one of them is broken."""


def broken(machines: Iterable[Machine]) -> Iterator[Broken]:
    """The states in brokers that must not be."""
    for machine in machines:
        broker = machine.running
        for kind, name, checked in () if broker is None else _checked_in(broker):
            try:
                checked.check()
            except AssertionError as error:
                yield Broken(process=machine.name, what=f"{kind}{name}", reason=str(error))


def _checked_in(broker: Broker) -> Iterator[tuple[str, object, Checked]]:
    yield "the timer", "", broker.timer
    yield "fetch sessions", "", broker.fetch_sessions
    for purgatory in purgatories_of(broker):
        yield "the purgatory ", purgatory.name, purgatory
    for partition in broker.replica_manager.partitions:
        yield "", partition.topic_partition, partition
    for of_groups in broker.coordinators.groups.shards():
        for name, group in of_groups.groups.items():
            yield "group ", name, group
    for of_transactions in broker.coordinators.transactions.shards():
        for name, transaction in of_transactions.transactions.items():
            yield "transactional id ", name, transaction


def served_early(machines: Iterable[Machine]) -> Iterator[ServedEarly]:
    """The coordinators of transactions that serve before what earlier leaders had appended is committed."""
    for machine in machines:
        broker = machine.running
        if broker is None:
            continue
        runtime = next(each for each in broker.coordinators.runtimes if each.settings.topic == TRANSACTION_TOPIC)
        for partition in broker.replica_manager.partitions:
            key = partition.topic_partition
            if key.topic != TRANSACTION_TOPIC or not partition.is_leader or not _serves(runtime, key.partition):
                continue
            high_watermark = partition.log.state.high_watermark
            if high_watermark < partition.epoch_start_offset:
                yield ServedEarly(
                    process=machine.name,
                    partition=partition.topic_partition,
                    high_watermark=high_watermark,
                    start_offset=partition.epoch_start_offset,
                )


def _serves(runtime: CoordinatorRuntime, number: int) -> bool:
    try:
        runtime.shard_of(number)
    except ProtocolError:
        return False
    return True


def has_open_transaction(
    machines: Mapping[int, Machine], coordinator_id: int, leader_id: int, transactional_ids: Iterable[str]
) -> bool:
    """Whether a coordinator has a transaction under way with a partition that another broker leads, and in which
    records are not decided yet."""
    broker = machines[coordinator_id].running
    if broker is None:
        return False
    for transactional_id in transactional_ids:
        try:
            transaction = broker.coordinators.transactions.describe(transactional_id)
        except ProtocolError:
            continue
        for partition in transaction.partitions if transaction.state == ONGOING else ():
            replica = replica_of(machines, leader_id, partition)
            if (
                replica is not None
                and replica.is_leader
                and replica.log.producers.state.first_unstable_offset is not None
            ):
                return True
    return False


def joined_behind(
    machines: Mapping[int, Machine], partition: TopicPartition, leader_id: int, joined: Iterable[int]
) -> Iterator[JoinedBehind]:
    """The replicas that have joined the in-sync replicas of this leader, and lack something below its watermark."""
    leader = replica_of(machines, leader_id, partition)
    if leader is None or not leader.is_leader:
        return
    high_watermark = leader.log.state.high_watermark
    for broker_id in joined:
        replica = replica_of(machines, broker_id, partition)
        if replica is not None and replica.log.state.log_end_offset < high_watermark:
            yield JoinedBehind(
                process="store",
                partition=partition,
                broker_id=broker_id,
                log_end_offset=replica.log.state.log_end_offset,
                high_watermark=high_watermark,
            )


def replica_of(machines: Mapping[int, Machine], broker_id: int, partition: TopicPartition) -> Partition | None:
    """A broker's replica, if the broker serves and the replica is online."""
    machine = machines.get(broker_id)
    broker = None if machine is None else machine.running
    return None if broker is None else broker.replica_manager.partitions.get(partition)


def folders_of(machine: Machine, parse: Callable[[str], TopicPartition | None] = parse_folder) -> list[Folder]:
    """The folders of partitions on a disk; their names say that those moved aside or to be removed are none. `parse`:
    parse_future_folder for those of replicas that are moved."""
    with machine.disk.looked_into():
        return [
            Folder(
                machine.broker_id,
                partition,
                _topic_id(machine, f"{directory}/{name}/{PARTITION_METADATA}"),
                directory,
                is_stuck=f"{directory}/{name}" in machine.disk.stuck,
            )
            for directory in DIRECTORIES
            for name in (machine.disk.list_directory(directory) if machine.disk.exists(directory) else ())
            if (partition := parse(name)) is not None
        ]


def settings_in(broker: Broker, settings: Iterable[Setting]) -> Iterator[SettingInForce]:
    """What the broker and its logs have of these settings. Logs of topics without a setting have the broker's."""
    where = f"broker {broker.broker_id}"
    for setting in settings:
        if setting.topic:
            yield SettingInForce(where, setting, broker.metadata.topic_config(setting.topic).get(setting.name))
        elif setting.broker_id in (0, broker.broker_id):
            known = broker.metadata.broker_config(setting.broker_id or None)
            yield SettingInForce(where, setting, known.get(setting.name))
    for partition in broker.replica_manager.partitions:
        setting = Setting("max.message.bytes", topic=partition.topic_partition.topic)
        if setting in settings and setting.name in broker.metadata.topic_config(setting.topic):
            log = f"the log of {partition.topic_partition} on {where}"
            yield SettingInForce(log, setting, str(partition.log.config.max_message_bytes))


def _topic_id(machine: Machine, path: str) -> UUID | None:
    try:
        return read_partition_metadata(machine.disk, path)
    except CorruptCheckpoint:  # a power cut has torn it
        return None


def replica_log(key: TopicPartition, broker_id: int, log: Log) -> ReplicaLog:
    """The batches of a log, up to the first one that cannot be decoded."""
    batches, damage = [], ""
    try:
        batches = [batch for segment in log.segments for batch in _batches_of(log, segment)]
    except (CorruptBatch, OSError) as error:
        damage = str(error)
    for number, batch in enumerate(batches):
        reason = why_undecodable(batch.content)
        if reason:
            batches, damage = batches[:number], f"the batch at {batch.base_offset} cannot be decoded: {reason}"
            break
    return ReplicaLog(
        partition=key,
        broker_id=broker_id,
        high_watermark=log.state.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.state.log_start_offset,
        is_compacted=log.config.compact and not log.config.delete,
        damage=damage,
        batches=batches,
    )


def _batches_of(log: Log, segment: LogSegment) -> Iterator[StoredBatch]:
    content = segment_bytes(log, segment)
    for position, header in iter_batches(content):
        whole = content[position : position + header.size_in_bytes]
        yield StoredBatch(header.base_offset, header.last_offset, header.partition_leader_epoch, whole)


def view_of(broker: Broker) -> BrokerView:
    """What the broker believes."""
    metadata = broker.metadata
    partitions = {
        TopicPartition(name, number): Leadership(state.leader, state.leader_epoch, state.replicas, state.isr)
        for name in metadata.topic_names()
        if (topic := metadata.topic(name)) is not None
        for number, state in topic.partitions.items()
    }
    return BrokerView(
        broker_id=broker.broker_id,
        controller_id=metadata.controller_id,
        live_brokers=sorted(metadata.brokers),
        partitions=partitions,
        led={
            partition.topic_partition: partition.leader_epoch
            for partition in broker.replica_manager.partitions
            if partition.is_leader
        },
    )


def waiting_in(broker: Broker) -> Iterable[Waiting]:
    """The parked requests of a broker."""
    now_ms = broker.clock.now_ms()
    for purgatory in purgatories_of(broker):
        for row in purgatory.waiting():
            yield Waiting(broker.broker_id, f"{purgatory.name}: {row.operation!r}", now_ms - row.deadline_ms)


def purgatories_of(broker: Broker) -> Iterable[DelayedOperationPurgatory]:
    """Where requests of a broker wait."""
    manager = broker.replica_manager
    waits = broker.coordinators.groups.waits
    return (
        manager.produce_purgatory,
        manager.fetch_purgatory,
        manager.delete_records_purgatory,
        broker.links.waits.topics,
        broker.links.waits.elections,
        waits.rebalance,
        waits.heartbeat,
    )


def has_proposed(machines: Mapping[int, Machine], leader_id: int, broker_id: int) -> bool:
    """Whether a leader waits for the answer to a proposal that adds this broker to the in-sync replicas."""
    broker = machines[leader_id].running
    return broker is not None and any(
        partition.isr.proposal is not None
        and broker_id in partition.isr.proposal.isr
        and broker_id not in partition.isr.committed
        for partition in broker.replica_manager.partitions
    )


def epochs_between(log: Log, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
    """The leader epochs that begin between two offsets of a log, and where."""
    return [entry for entry in log.leader_epochs.entries if start_offset < entry[1] < end_offset]
