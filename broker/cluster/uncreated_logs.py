"""Logs that could not be created because the disk was full. They are not lost: as soon as there is room again, the
controller is informed as of a failed disk, and the broker accepts the roles that it is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog

from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.protocol.topic_partition import TopicPartition

LEAST_ROOM_BYTES = 1 << 20

log = structlog.get_logger("broker.cluster")


class UncreatedLogs:
    """`report` lets the controller send all roles again."""

    def __init__(self, replica_manager: ReplicaManager, report: Callable[[], object]) -> None:
        self._replica_manager = replica_manager
        self._report = report
        self._partitions: dict[TopicPartition, None] = {}

    def add(self, topic_partition: TopicPartition) -> None:
        """The disk was full."""
        self._partitions[topic_partition] = None

    def ask_again(self) -> None:
        """Asks for the roles whose logs could not be created, if there is room now. Called periodically."""
        if self._partitions and self._has_room():
            log.info("disk has room again", partitions=[str(key) for key in self._partitions])
            for key in self._partitions:
                self._replica_manager.partitions.offline.discard(key)
            self._partitions.clear()
            self._report()

    def idle_until_ms(self) -> float:
        """Returns until when there is nothing to ask for; 0 if there is something."""
        return 0 if self._partitions else math.inf

    def _has_room(self) -> bool:
        log_manager = self._replica_manager.log_manager
        try:
            return all(log_manager.files.space(path)[1] >= LEAST_ROOM_BYTES for path in log_manager.directories)
        except OSError:
            return False
