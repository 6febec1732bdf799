"""Replicas that are offline because their disk was full or had an error: the controller hears of them, and they are
brought back. The replica manager has stopped serving them.

An entry below `/log_dir_event_notification` informs the controller. It then sends this broker all its roles again,
learns from KAFKA_STORAGE_ERROR which replicas are gone, and elects other leaders. A partition without another replica
keeps its leader: it refuses appends, but can still be read. Failures that occur close together are reported together.
If the store is unavailable, the report is repeated once it is back.

(A) A replica is tried again after FIRST_DELAY_MS, and if it fails again, after twice as long each time, up to
    MOST_DELAY_MS. One that has been well for FORGET_MS begins anew.
(B) If the disk was full, there must be some room first. A quota may be used up although there is room: then (A) limits
    how often the replica fails.
(C) To try it, the broker accepts roles for the replica again, and lets the controller send them. Its log is as it was
    before the write that failed. While it was offline others were elected, so it mostly comes back as a follower, and
    must write what it has missed before it can lead.
(D) One whose log has an unknown content stays offline (replica/partition/offline_replica.py).

Source: Kafka's `LogDirFailureHandler`, `KafkaZkClient.propagateLogDirEvent`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, MetadataStoreError, SessionState
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.broker.replica.partition.partition import Partition
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.log_manager import LogManager
from odradek.timer import Clock

LEAST_ROOM_BYTES = 1 << 20
FIRST_DELAY_MS = 1000
MOST_DELAY_MS = 60_000
FORGET_MS = 10 * 60_000

log = structlog.get_logger("broker.cluster")


class DiskFailures:
    """Reports to the controller."""

    def __init__(self, store: MetadataStore, broker_id: int, spawn: Spawn) -> None:
        self._store = store
        self._broker_id = broker_id
        self._spawn = spawn
        self._is_reporting = False
        self._is_unreported = False
        store.add_session_listener(self._session_changed)

    def replica_lost(self, partition: Partition, replica: OfflineReplica) -> None:
        """The partition is offline."""
        log.error(
            "replica offline",
            partition=str(partition.topic_partition),
            directory=partition.log.folder.path,
            reason=replica.reason,
            needs_restart=replica.needs_restart,
        )
        self.report()

    def report(self) -> None:
        """Lets the controller send all roles again."""
        self._is_unreported = True
        self._begin_to_report()

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._is_unreported:
            self._begin_to_report()

    def _begin_to_report(self) -> None:
        if not self._is_reporting:
            self._is_reporting = True
            self._spawn(self._write_report(), "report of a failed disk")

    async def _write_report(self) -> None:
        try:
            while self._is_unreported:
                self._is_unreported = False
                data = znodes.encode_log_dir_event(self._broker_id)
                await self._store.create(znodes.LOG_DIR_EVENT, data, sequential=True)
        except MetadataStoreError as error:
            self._is_unreported = True
            log.warning("failed disk not reported yet", reason=str(error))
        finally:
            self._is_reporting = False


class Attempts(NamedTuple):
    """How often a replica has been tried, and when it is or was due."""

    tries: int
    due_ms: int


class OfflineReplicas:
    """`report` lets the controller send all roles again."""

    def __init__(
        self, partitions: HostedPartitions, log_manager: LogManager, clock: Clock, report: Callable[[], object]
    ) -> None:
        self._offline = partitions.offline
        self._log_manager = log_manager
        self._clock = clock
        self._report = report
        self._attempts: dict[TopicPartition, Attempts] = {}
        self._waiting: set[TopicPartition] = set()
        """Those among the attempts that have not been made yet."""

    def bring_back(self) -> None:
        """Asks for the roles of the replicas that are due. Called periodically."""
        now_ms = self._clock.now_ms()
        self._forget(now_ms)
        due = [key for key in self._offline if self._is_due(key, now_ms) and self._may_succeed(key)]
        if due:
            log.info("offline replicas tried again", partitions=[str(key) for key in due])
            for key in due:
                del self._offline[key]
                self._waiting.discard(key)
            self._report()

    def idle_until_ms(self) -> float:
        """Returns until when there is nothing to bring back; 0 if there is something."""
        return math.inf if all(replica.needs_restart for replica in self._offline.values()) else 0

    def _is_due(self, key: TopicPartition, now_ms: int) -> bool:
        """Whether the delay is over, which begins when the replica is seen here first (A)."""
        if key not in self._waiting:
            tries = self._attempts[key].tries if key in self._attempts else 0
            delay_ms = min(FIRST_DELAY_MS << min(tries, 32), MOST_DELAY_MS)
            self._attempts[key] = Attempts(tries + 1, now_ms + delay_ms)
            self._waiting.add(key)
        return self._attempts[key].due_ms <= now_ms

    def _may_succeed(self, key: TopicPartition) -> bool:
        replica = self._offline[key]
        return not replica.needs_restart and (not replica.is_full or self._has_room(key))

    def _forget(self, now_ms: int) -> None:
        self._waiting.intersection_update(self._offline)
        for key, attempts in list(self._attempts.items()):
            if key not in self._offline and now_ms - attempts.due_ms > FORGET_MS:
                del self._attempts[key]

    def _has_room(self, key: TopicPartition) -> bool:
        """Whether the directory of the replica's log has room; without a log, all that it might be created in."""
        logs = self._log_manager
        known = logs.get(key)
        paths = logs.directories if known is None else (logs.directory_of(known),)
        try:
            return all(logs.files.space(path)[1] >= LEAST_ROOM_BYTES for path in paths)
        except OSError:
            return False
