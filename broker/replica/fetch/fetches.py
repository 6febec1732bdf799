"""What the fetches of a broker share: how they read and wait, and what is counted. running_fetch.py is one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.replica.fetch.log_reader import LogReader
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.broker.replica.quota.replication_quota import ReplicationQuota
from odradek.purgatory import FetchExpirations

if TYPE_CHECKING:
    from odradek.broker.background.tasks import ThreadsAndTurns


class Fetches:
    def __init__(
        self,
        partitions: HostedPartitions,
        topic_name: Callable[[UUID], str | None],
        wakeups: Wakeups,
        background: ThreadsAndTurns,
        leader_quota: ReplicationQuota,
    ) -> None:
        self.reader = LogReader(partitions.find, topic_name, wakeups.watermark_moved)
        self.wakeups = wakeups
        self.background = background
        self.leader_quota = leader_quota
        self.expirations = FetchExpirations()
        self.cold_reads = 0
        """The number of times that a fetch was read from the disk."""
