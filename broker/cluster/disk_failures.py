"""Reports replicas whose disk has failed to the controller. The replica manager has stopped serving them.

An entry below `/log_dir_event_notification` informs the controller. It then sends this broker all its roles again,
learns from KAFKA_STORAGE_ERROR which replicas are gone, and elects other leaders. A partition without another replica
keeps its leader: it refuses appends, but can still be read.

Failures that occur close together are reported together. If the store is unavailable, the report is repeated once it is
back. Source: Kafka's `LogDirFailureHandler`, `KafkaZkClient.propagateLogDirEvent`.
"""

from __future__ import annotations

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, MetadataStoreError, SessionState
from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.broker.replica.partition.partition import Partition

log = structlog.get_logger("broker.cluster")


class DiskFailures:
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
