"""Who hears of the leadership of an internal topic's partitions: its coordinator."""

from __future__ import annotations

from typing import Protocol


class LeadershipListener(Protocol):
    """Hears of the partitions of one topic that this broker leads."""

    def elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition, with that epoch; the log is open and may be read and appended to."""

    def resigned(self, partition: int) -> None:
        """It leads the partition no more, and the log may be gone. No effect where it did not lead it."""

    def transaction_ended(self, partition: int, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """A marker was appended to the partition, and the high watermark has passed it."""
