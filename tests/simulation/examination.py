"""Looks into the brokers of a simulation: reads their replicas' logs, their metadata and what waits in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from odradek.broker.metadata.metadata_cache import INTERNAL_TOPICS
from odradek.broker.server import Broker
from odradek.protocol.records import iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import PARTITION_METADATA, CorruptCheckpoint, read_partition_metadata
from odradek.storage.file_names import parse_folder
from odradek.storage.log.log import Log
from tests.simulation.final_state import (
    BrokerView,
    FinalState,
    Folder,
    Leadership,
    ReplicaLog,
    StoredBatch,
    Waiting,
)
from tests.simulation.history import Overrun
from tests.simulation.machine import DATA, Machine


def examine(machines: Iterable[Machine]) -> FinalState:
    """The state of all brokers that serve."""
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
    )


def overruns(machines: Iterable[Machine]) -> Iterator[Overrun]:
    """The replicas whose high watermark is beyond the end of their log."""
    for machine in machines:
        broker = machine.running
        for partition in () if broker is None else broker.replica_manager.partitions:
            log = partition.log
            if log.state.high_watermark > log.state.log_end_offset:
                yield Overrun(
                    process=machine.name,
                    partition=partition.topic_partition,
                    high_watermark=log.state.high_watermark,
                    log_end_offset=log.state.log_end_offset,
                )


def folders_of(machine: Machine) -> Iterable[Folder]:
    """The folders of partitions on a disk; their names say that those moved aside or to be removed are none."""
    for name in machine.disk.list_directory(DATA):
        partition = parse_folder(name)
        if partition is not None:
            yield Folder(machine.broker_id, partition, _topic_id(machine, f"{DATA}/{name}/{PARTITION_METADATA}"))


def _topic_id(machine: Machine, path: str) -> UUID | None:
    try:
        return read_partition_metadata(machine.disk, path)
    except CorruptCheckpoint:  # a power cut has torn it
        return None


def replica_log(key: TopicPartition, broker_id: int, log: Log) -> ReplicaLog:
    """All batches of a log."""
    batches = []
    for segment in log.segments:
        content = bytes(log.segments.use(segment).file.read(0, segment.size))
        for position, header in iter_batches(content):
            batches.append(
                StoredBatch(
                    header.base_offset,
                    header.last_offset,
                    header.partition_leader_epoch,
                    content[position : position + header.size_in_bytes],
                )
            )
    return ReplicaLog(
        partition=key,
        broker_id=broker_id,
        high_watermark=log.state.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.state.log_start_offset,
        batches=batches,
    )


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
    manager = broker.replica_manager
    waits = broker.coordinators.groups.waits
    now_ms = broker.clock.now_ms()
    for purgatory in (
        manager.produce_purgatory,
        manager.fetch_purgatory,
        manager.delete_records_purgatory,
        broker.links.waits.topics,
        broker.links.waits.elections,
        waits.rebalance,
        waits.heartbeat,
    ):
        for row in purgatory.waiting():
            yield Waiting(broker.broker_id, f"{purgatory.name}: {row.operation!r}", now_ms - row.deadline_ms)
