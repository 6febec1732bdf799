"""Markers for the partitions that this broker leads itself: straight into its logs, no network between.

They are written in the next turn of the loop and not at once, so that the answer to EndTxn, which says that the end is
decided, goes out before them. Whatever that client or another sends having seen the answer is read after that turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.coordinator.transaction.markers import Marker, OnWritten
from odradek.broker.coordinator.transaction.state_change_log import Soon
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.replica_manager import ReplicaManager

MARKERS_PER_TURN = 20


class LocalMarkerWriter:
    """A `MarkerWriter`. In each turn it writes MARKERS_PER_TURN markers, of all transactions in rotation: nobody waits
    for one that has thousands of partitions.
    """

    def __init__(self, replica_manager: ReplicaManager, soon: Soon) -> None:
        self._replica_manager = replica_manager
        self._soon = soon
        self._waiting: deque[tuple[Marker, Iterator[TopicPartition], OnWritten]] = deque()
        self._is_scheduled = False

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        """See `MarkerWriter`. Each partition's marker waits for its own high watermark."""
        self._waiting.append((marker, iter(marker.partitions), on_written))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        waiting, left = self._waiting, MARKERS_PER_TURN
        try:
            while waiting and left > 0:
                entry = waiting.popleft()
                topic_partition = next(entry[1], None)
                if topic_partition is not None:
                    left -= 1
                    waiting.append(entry)
                    self._append(entry[0], topic_partition, entry[2])
        finally:
            if waiting:
                self._schedule()

    def _append(self, marker: Marker, topic_partition: TopicPartition, on_written: OnWritten) -> None:
        self._replica_manager.append_end_transaction_marker(
            topic_partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.committed,
            partial(on_written, topic_partition),
        )
