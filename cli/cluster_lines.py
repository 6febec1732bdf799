"""The lines that `odradek cluster` prints: the cluster, its brokers, and partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from odradek.cli.tables import table_lines

if TYPE_CHECKING:
    from odradek.clients.admin.missing_replicas import Reasons
    from odradek.clients.admin.overview import BrokerOverview, ClusterOverview, PartitionOverview
    from odradek.protocol.topic_partition import TopicPartition

BROKER_COLUMNS = ("BROKER", "ADDRESS", "RACK", "LEADS", "REPLICAS", "IN-SYNC", "ROLE")
REASON_COLUMNS = ("BROKER", "OUT", "BECAUSE", "PARTITIONS")
MOST_NAMES = 5
PARTITION_COLUMNS = ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "STATE")


def cluster_lines(found: ClusterOverview, partitions: list[PartitionOverview]) -> Iterator[str]:
    """Yields the lines that show a cluster with these partitions."""
    controller = "none" if found.controller < 0 else found.controller
    yield (
        f"cluster {found.cluster_id}: {len(found.brokers)} brokers, controller {controller}, {found.topics} topics, "
        f"{len(found.partitions)} partitions"
    )
    reassigned = f"{found.reassigned} reassigned" if found.knows_reassignments else "reassignments unknown"
    yield f"{found.offline} offline, {found.under_replicated} under-replicated, {reassigned}"
    yield ""
    yield from table_lines(BROKER_COLUMNS, [_broker_row(broker, found) for broker in found.brokers.values()])
    if partitions:
        yield ""
        yield from table_lines(PARTITION_COLUMNS, [_partition_row(partition) for partition in partitions])


def reason_lines(reasons: Reasons) -> Iterator[str]:
    """Yields the lines that say why replicas are not in sync; none if all are."""
    if reasons:
        yield ""
        rows = [[broker, len(keys), reason, _some(keys)] for (broker, reason), keys in reasons.items()]
        yield from table_lines(REASON_COLUMNS, rows)


def _some(keys: Sequence[TopicPartition]) -> str:
    names = ",".join(map(str, keys[:MOST_NAMES]))
    return names if len(keys) <= MOST_NAMES else f"{names} and {len(keys) - MOST_NAMES} more"


def _broker_row(broker: BrokerOverview, found: ClusterOverview) -> list[Any]:
    role = "controller" if broker.broker_id == found.controller else None
    counts = (broker.leads, broker.replicas, broker.in_sync)
    return [broker.broker_id, f"{broker.host}:{broker.port}", broker.rack, *counts, role]


def _partition_row(partition: PartitionOverview) -> list[Any]:
    leader = "none" if partition.is_offline else partition.leader
    words = list(partition.problems)
    words += [f"adding {_ids(partition.adding)}"] if partition.adding else []
    words += [f"removing {_ids(partition.removing)}"] if partition.removing else []
    replicas, isr = _ids(partition.replicas), _ids(partition.isr)
    return [partition.key, leader, partition.leader_epoch, replicas, isr, ", ".join(words) or None]


def _ids(broker_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, broker_ids)) or "-"
