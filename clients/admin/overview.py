"""The whole cluster at a glance: brokers, controller, leaders, in-sync replicas, reassignments; and what has changed
between two glances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from odradek.clients.admin.client import AdminClient, Reassignment
from odradek.clients.network_errors import NetworkError
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition

NO_LEADER = -1
NO_CONTROLLER = -1


class BrokerOverview(NamedTuple):
    """One live broker. `leads`, `replicas` and `in_sync` count partitions."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    leads: int
    replicas: int
    in_sync: int


class PartitionOverview(NamedTuple):
    """One partition. `adding` and `removing` are replicas of a reassignment under way."""

    key: TopicPartition
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_offline(self) -> bool:
        """Whether the partition has no leader."""
        return self.leader == NO_LEADER

    @property
    def missing(self) -> list[int]:
        """The replicas that are not in sync, all if there is no leader; those that are being added do not count."""
        in_sync = () if self.is_offline else self.isr
        return [replica for replica in self.replicas if replica not in (*in_sync, *self.adding)]

    @property
    def is_under_replicated(self) -> bool:
        """Whether replicas are missing from the ISR; those that are being added do not count."""
        return len(set(self.isr) - set(self.adding)) < len(set(self.replicas) - set(self.adding))

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def problems(self) -> list[str]:
        """What there is to say about the partition, nothing if all is well."""
        found = []
        if self.is_offline:
            found.append("offline")
        elif self.is_under_replicated:
            found.append("under-replicated")
        if self.is_reassigned:
            found.append("reassigned")
        return found


class ClusterOverview(NamedTuple):
    """`controller` is NO_CONTROLLER if the broker asked knows none; `knows_reassignments` is False if no controller
    could be asked about them.
    """

    cluster_id: str
    controller: int
    brokers: dict[int, BrokerOverview]
    partitions: dict[TopicPartition, PartitionOverview]
    knows_reassignments: bool

    @property
    def topics(self) -> int:
        """The number of topics."""
        return len({key.topic for key in self.partitions})

    @property
    def offline(self) -> int:
        """The number of partitions without a leader."""
        return sum(partition.is_offline for partition in self.partitions.values())

    @property
    def under_replicated(self) -> int:
        """The number of partitions with too few replicas in sync."""
        return sum(partition.is_under_replicated for partition in self.partitions.values())

    @property
    def reassigned(self) -> int:
        """The number of partitions whose reassignment is under way."""
        return sum(partition.is_reassigned for partition in self.partitions.values())


async def overview(admin: AdminClient, *, patience_s: float) -> ClusterOverview:
    """Returns the state of the cluster. Waits for a controller that reports reassignments for `patience_s` at most.

    Raises NetworkError, ProtocolError.
    """
    cluster = await admin.describe_cluster()
    topics = await admin.topics()
    reassignments = await _reassignments(admin, patience_s)
    partitions = {}
    for topic in topics:
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            key = TopicPartition(topic.name or "", partition.partition_index)
            reassignment = None if reassignments is None else reassignments.get(key)
            partitions[key] = PartitionOverview(
                key,
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                () if reassignment is None else tuple(reassignment.adding_replicas),
                () if reassignment is None else tuple(reassignment.removing_replicas),
            )
    states = list(partitions.values())
    brokers = {
        broker.broker_id: BrokerOverview(
            broker.broker_id,
            broker.host,
            broker.port,
            broker.rack,
            leads=sum(state.leader == broker.broker_id for state in states),
            replicas=sum(broker.broker_id in state.replicas for state in states),
            in_sync=sum(broker.broker_id in state.isr for state in states),
        )
        for broker in sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    }
    return ClusterOverview(cluster.cluster_id, cluster.controller_id, brokers, partitions, reassignments is not None)


async def _reassignments(admin: AdminClient, patience_s: float) -> Mapping[TopicPartition, Reassignment] | None:
    try:
        async with asyncio.timeout(patience_s):
            return await admin.reassignments()
    except (NetworkError, ProtocolError, TimeoutError):
        return None


def changes(before: ClusterOverview, after: ClusterOverview) -> Iterator[str]:
    """Yields a line for each change between two states."""
    if before.controller != after.controller:
        yield f"controller: {_id(before.controller)} -> {_id(after.controller)}"
    for broker_id in sorted(before.brokers.keys() | after.brokers.keys()):
        old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
        if old is None:
            assert new is not None
            yield f"broker {broker_id}: joined at {new.host}:{new.port}"
        elif new is None:
            yield f"broker {broker_id}: left"
        elif (old.host, old.port) != (new.host, new.port):
            yield f"broker {broker_id}: moved to {new.host}:{new.port}"
    for key in sorted(before.partitions.keys() | after.partitions.keys()):
        words = ", ".join(_partition_changes(before.partitions.get(key), after.partitions.get(key)))
        if words:
            yield f"{key}: {words}"


def _partition_changes(before: PartitionOverview | None, after: PartitionOverview | None) -> Iterator[str]:
    if after is None:
        yield "deleted"
        return
    if before is None:
        yield f"created with leader {_id(after.leader)}, replicas {_ids(after.replicas)}"
        return
    if (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch):
        yield f"leader {_id(before.leader)} -> {_id(after.leader)} in epoch {after.leader_epoch}"
    if before.replicas != after.replicas:
        yield f"replicas {_ids(before.replicas)} -> {_ids(after.replicas)}"
    if sorted(before.isr) != sorted(after.isr):
        yield f"ISR {_ids(sorted(before.isr))} -> {_ids(sorted(after.isr))}"
    if before.is_reassigned != after.is_reassigned:
        yield "reassignment begun" if after.is_reassigned else "reassignment ended"
    elif (before.adding, before.removing) != (after.adding, after.removing):
        yield "another reassignment"


def _id(broker_id: int) -> str:
    return "none" if broker_id < 0 else str(broker_id)


def _ids(broker_ids: tuple[int, ...] | list[int]) -> str:
    return ",".join(map(str, broker_ids)) or "none"
