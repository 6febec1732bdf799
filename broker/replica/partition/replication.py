"""What all partitions on a broker share: its id and clock, and their access to the rest of the cluster."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.replica.partition.isr import IsrProposal, IsrStats
from odradek.timer import Clock


class Replication:
    """`is_alive` returns whether a broker of this id is in the cluster; `propose` sends a leader's proposal to the
    controller, whose answer goes to `Partition.isr_answered`. `leaderships` counts how often this broker has become the
    leader of a partition.
    """

    __slots__ = ("broker_id", "clock", "is_alive", "isr_stats", "lag_time_max_ms", "leaderships", "propose")

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        lag_time_max_ms: int,
        is_alive: Callable[[int], bool],
        propose: Callable[[IsrProposal], None],
    ) -> None:
        self.broker_id = broker_id
        self.clock = clock
        self.lag_time_max_ms = lag_time_max_ms
        self.is_alive = is_alive
        self.propose = propose
        self.isr_stats = IsrStats()
        self.leaderships = 0
