"""What the replica manager uses of the rest of the broker, and through it of the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from odradek.broker.replica.leader.isr_proposals import SendAlterPartition
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.partition.offline_replica import OfflineReplica
    from odradek.broker.replica.partition.partition import Partition


class ClusterAccess(NamedTuple):
    """What this broker knows of the cluster, and what it reports to the controller.

    `is_known` returns whether the cluster has such a partition, on any broker; `topic_name` the name of the topic with
    an id; `is_alive` whether the cluster has a live broker of this id. `alter_partition` sends a request to the
    controller, whichever broker that is, and may raise any exception; `broker_epoch` is that of this broker's
    registration. `replica_lost` reports that a partition with other replicas is offline, and why.
    """

    is_known: Callable[[TopicPartition], bool]
    topic_name: Callable[[UUID], str | None]
    is_alive: Callable[[int], bool]
    alter_partition: SendAlterPartition
    broker_epoch: Callable[[], int]
    replica_lost: Callable[[Partition, OfflineReplica], object]


class LiveSettings(NamedTuple):
    """Settings that may change while the broker runs. `verifies_transactions` is
    transaction.partition.verification.enable; for `move_bytes_per_second` see log_dir_moves.py.
    """

    verifies_transactions: Callable[[], bool]
    move_bytes_per_second: Callable[[], int]
