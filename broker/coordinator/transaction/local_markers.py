"""Writes markers for the partitions that this broker leads directly to its logs, without the network.

Markers are written in the next iteration of the event loop, so that the EndTxn response is sent first. Requests that
clients send after they have seen the response are read after that iteration.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from odradek.broker.background.tasks import Soon
from odradek.broker.coordinator.transaction.marker_writing import Marker, OnWritten
from odradek.protocol.errors import ErrorCode
from odradek.protocol.topic_partition import TopicPartition

AppendMarker = Callable[[TopicPartition, int, int, int, bool, Callable[[ErrorCode], object], int], object]
"""`TransactionMarkers.append`."""

MARKERS_PER_TURN = 20


class LocalMarkerWriter:
    """A `MarkerWriter`. It writes MARKERS_PER_TURN markers per iteration and takes transactions in rotation, so that a
    transaction with thousands of partitions does not delay the others.
    """

    def __init__(self, append: AppendMarker, soon: Soon) -> None:
        self._append = append
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
                    self._write_one(entry[0], topic_partition, entry[2])
        finally:
            if waiting:
                self._schedule()

    def _write_one(self, marker: Marker, topic_partition: TopicPartition, on_written: OnWritten) -> None:
        self._append(
            topic_partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.committed,
            partial(on_written, topic_partition),
            marker.transaction_version,
        )
