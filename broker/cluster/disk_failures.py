"""Replicas whose disk has failed: this broker stops serving them and reports them to the controller.

An entry below `/log_dir_event_notification` informs the controller. It then sends this broker all its roles again,
learns from KAFKA_STORAGE_ERROR which replicas are gone, and elects other leaders. A partition without another replica
keeps its leader: it refuses appends, but can still be read.

Failures that occur close together are reported together. If the store is unavailable, the report is repeated once it is
back.

A log that could not be created because the disk was full is not lost: as soon as there is room again, the controller is
informed in the same way, and the broker accepts the roles that it is sent. Source: Kafka's `LogDirFailureHandler`,
`KafkaZkClient.propagateLogDirEvent`.
"""

from __future__ import annotations

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, MetadataStoreError, SessionState
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.protocol.topic_partition import TopicPartition

LEAST_ROOM_BYTES = 1 << 20

log = structlog.get_logger("broker.cluster")


class DiskFailures:
    def __init__(self, store: MetadataStore, replica_manager: ReplicaManager, broker_id: int, spawn: Spawn) -> None:
        self._store = store
        self._replica_manager = replica_manager
        self._broker_id = broker_id
        self._spawn = spawn
        self._is_reporting = False
        self._is_unreported = False
        self._not_created: dict[TopicPartition, None] = {}
        store.add_session_listener(self._session_changed)

    def failed(self, partition: Partition) -> None:
        """The partition's log accepts no appends any more. If the partition was deleted meanwhile, nothing is done:
        there may be a new one of its name.
        """
        is_hosted = self._replica_manager.partitions.get(partition.topic_partition) is partition
        if not is_hosted or len(partition.replicas) < 2:
            return
        log.error("replica offline", partition=str(partition.topic_partition), directory=partition.log.directory)
        self._replica_manager.take_offline(partition.topic_partition)
        self._is_unreported = True
        self._report()

    def log_not_created(self, topic_partition: TopicPartition) -> None:
        """The disk was full."""
        self._not_created[topic_partition] = None

    def retry_creations(self) -> None:
        """Asks for the roles whose logs could not be created, if there is room now. Called periodically."""
        if self._not_created and self._has_room():
            log.info("disk has room again", partitions=[str(key) for key in self._not_created])
            for key in self._not_created:
                self._replica_manager.partitions.offline.discard(key)
            self._not_created.clear()
            self._is_unreported = True
            self._report()

    def _has_room(self) -> bool:
        log_manager = self._replica_manager.log_manager
        try:
            return all(log_manager.files.space(path)[1] >= LEAST_ROOM_BYTES for path in log_manager.directories)
        except OSError:
            return False

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and self._is_unreported:
            self._report()

    def _report(self) -> None:
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
