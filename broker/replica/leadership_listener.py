"""The interface by which a coordinator follows the leadership of its internal topic's partitions."""

from __future__ import annotations

from typing import Protocol


class LeadershipListener(Protocol):
    """Receives the events of the partitions of one topic that this broker leads."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker became the partition's leader, in that epoch; the log is open for reads and appends."""

    def resigned(self, partition: int) -> None:
        """This broker is no longer the leader, and the log may be gone. No effect if it was not the leader."""

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker was appended to the partition, and the high watermark has passed the marker."""
