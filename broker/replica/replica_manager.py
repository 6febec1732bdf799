"""The replica manager: creates what works on the partitions of this broker, and gives and takes the partitions' roles.

Its parts do the work, and each caller gets those that it needs: `appends` and `large_appends` (Produce), `fetches`
(Fetch), `deletions` (DeleteRecords), `verification` and the `markers` of transactions, `leaderships` (the coordinators
hear of them), `flusher` (fsync), `log_dirs` and `log_dir_moves`, `in_sync_replicas` (proposals to the controller), the
purgatories, the quotas. `partitions` has the partitions themselves. Here are the changes that concern several parts at
once: a partition gets or loses a role (role_changes.py calls), goes offline, has been flushed.

Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import structlog

from odradek.broker.background.tasks import ThreadsAndTurns
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.replica.fetch.running_fetch import Fetches
from odradek.broker.replica.leader.appends import Appends
from odradek.broker.replica.leader.deletions import Deletions
from odradek.broker.replica.leader.isr_proposals import AlterPartitions, SendAlterPartition
from odradek.broker.replica.leader.large_appends import LargeAppends
from odradek.broker.replica.leader.transaction_markers import TransactionMarkers
from odradek.broker.replica.leader.verification import TransactionVerification
from odradek.broker.replica.leadership_listener import Leaderships
from odradek.broker.replica.log_creations import LogCreations
from odradek.broker.replica.log_dir_moves import LogDirMoves
from odradek.broker.replica.log_dirs import LogDirs
from odradek.broker.replica.partition.flush_scheduler import FlushScheduler
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.replica.partition.offline_replica import OfflineReplica
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.partition.replication import Replication
from odradek.broker.replica.partition.topic_stats import AllTopicStats
from odradek.broker.replica.partition.wakeups import Wakeups
from odradek.broker.replica.quota.replication_quota import ReplicationQuota
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import Clock, SystemTimer

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig
    from odradek.storage.directories.log_creation import NewLog
    from odradek.storage.directories.log_manager import LogManager
    from odradek.storage.log_config import LogConfig

log = structlog.get_logger("broker.replica")


class ReplicaSettings(NamedTuple):
    """The broker settings that replication reads, under Kafka's names; times in milliseconds."""

    broker_id: int
    replica_lag_time_max_ms: int
    producer_purgatory_purge_interval_requests: int
    fetch_purgatory_purge_interval_requests: int
    delete_records_purgatory_purge_interval_requests: int
    num_replica_alter_log_dirs_threads: int | None
    replication_quota_window_num: int
    replication_quota_window_size_seconds: int
    odradek_max_decompressed_request_bytes: int

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ReplicaSettings:
        return cls(**{name: getattr(config, name) for name in cls._fields})


class ClusterAccess(NamedTuple):
    """What this broker knows of the cluster, and what it reports to the controller.

    `is_known` returns whether the cluster has such a partition, on any broker; `topic_name` the name of the topic with
    an id; `is_alive` whether the cluster has a live broker of this id. `alter_partition` sends a request to the
    controller, whichever broker that is, and may raise any exception; `broker_epoch` is that of this broker's
    registration. `replica_lost` reports that a partition with other replicas is offline, and why.
    """

    is_known: Callable[[TopicPartition], bool]
    topic_name: Callable[[UUID], str | None]
    is_alive: Callable[[int], bool]
    alter_partition: SendAlterPartition
    broker_epoch: Callable[[], int]
    replica_lost: Callable[[Partition, OfflineReplica], object]


class LiveSettings(NamedTuple):
    """Settings that may change while the broker runs. `verifies_transactions` is
    transaction.partition.verification.enable; for `move_bytes_per_second` see log_dir_moves.py.
    """

    verifies_transactions: Callable[[], bool]
    move_bytes_per_second: Callable[[], int]


class ReplicaManager:
    """`background` runs fsyncs and cold reads."""

    def __init__(
        self,
        settings: ReplicaSettings,
        *,
        log_manager: LogManager,
        clock: Clock,
        timer: SystemTimer,
        completions: CompletionQueue,
        background: ThreadsAndTurns,
        cluster: ClusterAccess,
        live: LiveSettings,
    ) -> None:
        self.settings = settings
        self.log_manager = log_manager
        self.partitions = HostedPartitions(cluster.is_known)
        self.topic_stats = AllTopicStats()
        self._renamed_in: dict[str, None] = {}
        self.leaderships = Leaderships(self.partitions)
        self._replica_lost = cluster.replica_lost
        self.produce_purgatory = DelayedOperationPurgatory(
            "Produce", timer, clock, completions, settings.producer_purgatory_purge_interval_requests
        )
        self.fetch_purgatory = DelayedOperationPurgatory(
            "Fetch", timer, clock, completions, settings.fetch_purgatory_purge_interval_requests
        )
        self.delete_records_purgatory = DelayedOperationPurgatory(
            "DeleteRecords", timer, clock, completions, settings.delete_records_purgatory_purge_interval_requests
        )
        self._clock = clock
        self._creations = LogCreations(log_manager, background)
        self.wakeups = Wakeups(completions, self.produce_purgatory, self.fetch_purgatory, self.delete_records_purgatory)
        self.in_sync_replicas = AlterPartitions(
            settings.broker_id,
            timer,
            background,
            self.partitions,
            self.wakeups,
            send=cluster.alter_partition,
            broker_epoch=cluster.broker_epoch,
            clock=clock,
        )
        self._replication = Replication(
            settings.broker_id, clock, settings.replica_lag_time_max_ms, cluster.is_alive, self.in_sync_replicas.propose
        )
        self.isr_stats = self._replication.isr_stats
        self.flusher = FlushScheduler(background, timer, self._flushed, self._flush_failed)
        self.appends = Appends(
            self.partitions,
            self.wakeups,
            self.flusher,
            settings.odradek_max_decompressed_request_bytes,
            self.log_failed,
        )
        self.large_appends = LargeAppends(self.appends, self.partitions, background)
        self.leader_quota = self._new_quota("leader_replication_throttled_replicas")
        self.follower_quota = self._new_quota("follower_replication_throttled_replicas")
        self.fetches = Fetches(self.partitions, cluster.topic_name, self.wakeups, background, self.leader_quota)
        self.deletions = Deletions(self.partitions, self.wakeups)
        self.log_dir_moves = LogDirMoves(
            log_manager,
            self.partitions,
            background,
            settings.num_replica_alter_log_dirs_threads,
            bytes_per_second=live.move_bytes_per_second,
        )
        self.verification = TransactionVerification(self.partitions, clock, is_enabled=live.verifies_transactions)
        self.markers = TransactionMarkers(self.appends, clock, self.leaderships, self.verification.marker_written)
        self.log_dirs = LogDirs(log_manager, self.partitions)

    def _new_quota(self, listed: str) -> ReplicationQuota:
        settings = self.settings
        return ReplicationQuota(
            self._clock,
            settings.broker_id,
            attrgetter(listed),
            windows=settings.replication_quota_window_num,
            window_ms=settings.replication_quota_window_size_seconds * 1000,
        )

    # Roles: see role_changes.py

    async def make_logs(self, new_logs: Iterable[NewLog]) -> dict[TopicPartition, ProtocolError]:
        """Creates the missing logs, all together; returns once they are on disk. A partition whose log could not be
        created is in the returned failures, and is offline.
        """
        failures = await self._creations.make(new_logs)
        for topic_partition, error in failures.items():
            self._fail(topic_partition, error)
        return failures

    def set_aside_predecessor(self, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """If the broker has the log of an earlier topic with this name, and serves it no more, moves the log aside
        (`sync_log_dirs` makes that durable) and returns True. Raises KAFKA_STORAGE_ERROR.
        """
        partition_log = self.log_manager.get(topic_partition)
        if partition_log is None or topic_partition in self.partitions:
            return False
        if partition_log.folder.topic_id is None or not topic_id.int or partition_log.folder.topic_id == topic_id:
            return False
        directory = self.log_manager.directory_of(partition_log)
        self.log_manager.set_aside(topic_partition)
        self._renamed_in[directory] = None
        return True

    async def sync_log_dirs(self) -> None:
        """Makes the renames by `stop_replica` and `set_aside_predecessor` durable; an error is logged."""
        paths, self._renamed_in = self._renamed_in, {}
        for path, error in (await self._creations.sync_directories(paths)).items():
            log.error("log directory not synced", directory=path, reason=str(error))

    def become_leader(
        self, topic_partition: TopicPartition, topic_id: UUID, state: PartitionState, log_config: LogConfig
    ) -> Partition:
        """Makes this broker the leader of a partition whose log was made (`make_logs`), or renews the assignment. The
        partition must not be followed.
        """
        partition = self._hosted(topic_partition, topic_id, log_config)
        partition.make_leader(state)
        self.wakeups.watermark_moved(partition)
        self.leaderships.elected(topic_partition, state.leader_epoch)
        return partition

    def become_follower(
        self, topic_partition: TopicPartition, topic_id: UUID, state: PartitionState, log_config: LogConfig
    ) -> Partition:
        """Makes another broker, or none, the leader of a partition whose log was made. The caller begins to follow the
        leader. Operations that wait for the partition are completed with an error.
        """
        partition = self._hosted(topic_partition, topic_id, log_config)
        was_leader = partition.is_leader
        partition.make_follower(state)
        if was_leader and not partition.is_leader:
            self._end_leadership(partition)
        return partition

    def lapse_leaderships(self) -> None:
        """Refuses to lead and to be read from, in all partitions that this broker leads, until they get a role again.
        Operations that wait for them are completed with an error.
        """
        led = [partition for partition in self.partitions if partition.is_leader]
        for partition in led:
            partition.lapse()
            self._end_leadership(partition)
        if led:
            log.warning("leaderships lapsed", partitions=len(led), reason="the session has ended")

    def _hosted(self, topic_partition: TopicPartition, topic_id: UUID, log_config: LogConfig) -> Partition:
        partition = self.partitions.get(topic_partition)
        if partition is None:
            partition = self._open(topic_partition, topic_id, log_config)
            self.partitions.put(partition)
            if partition.needs_flush:
                self.flusher.start(partition)
            self.log_dir_moves.resume(topic_partition)
        return partition

    def _end_leadership(self, partition: Partition) -> None:
        key = partition.topic_partition
        self.appends.expirations.forget(key)
        self.deletions.expirations.forget(key)
        self.wakeups.watermark_moved(partition)
        self.leaderships.resigned(key)

    def _fail(
        self, topic_partition: TopicPartition, error: Exception, *, needs_restart: bool = False
    ) -> OfflineReplica:
        """The partition is offline: it responds with KAFKA_STORAGE_ERROR until it comes back."""
        self.stop_replica(topic_partition)
        replica = OfflineReplica.because(error, self._clock.wall_ms(), needs_restart=needs_restart)
        self.partitions.offline[topic_partition] = replica
        return replica

    def _open(self, topic_partition: TopicPartition, topic_id: UUID, log_config: LogConfig) -> Partition:
        """The log may be open since the start, with settings that have changed since."""
        opened = self.log_manager.get_or_create(topic_partition, topic_id, log_config)
        opened.update_config(log_config)
        return Partition(
            topic_partition,
            topic_id,
            opened,
            self.topic_stats.of(topic_partition.topic),
            self._replication,
        )

    def stop_replica(self, topic_partition: TopicPartition, delete: bool = False) -> None:
        """Stops serving the partition, and with `delete` removes its log (`sync_log_dirs` makes that durable). A
        partition that is offline remains so, unless it is deleted.

        Operations that wait for the partition are completed with an error.
        """
        partition = self.partitions.pop(topic_partition)
        if partition is not None:
            partition.resign()
            self.flusher.forget(partition)
            self.log_dir_moves.forget(topic_partition)
            self._end_leadership(partition)
        if not self.partitions.of_topic(topic_partition.topic):
            self.topic_stats.forget(topic_partition.topic)
        if delete:
            self._renamed_in |= dict.fromkeys(self.log_manager.delete(topic_partition, sync=False))
            self.partitions.offline.pop(topic_partition, None)

    def update_log_config(self, topic: str, config: LogConfig) -> None:
        """Applies these settings to the topic's open logs."""
        for partition in self.partitions.of_topic(topic):
            partition.log.update_config(config)
            self.flusher.appended(partition, required=False)
            if partition.maybe_increment_high_watermark():
                self.wakeups.watermark_moved(partition)

    # Changes without a request

    def retention_steps(self) -> Iterator[int]:
        """Applies every log's retention, in bounded steps; yields the number of segments deleted in each. Notifies
        waiting operations and fetch sessions when a log start offset moves.
        """
        now_ms = self._clock.wall_ms()
        for partition in self.partitions:
            try:
                yield from self._retention_of(partition, now_ms)
            except ProtocolError:  # already logged by the log itself
                yield 0

    def _retention_of(self, partition: Partition, now_ms: int) -> Iterator[int]:
        log = partition.log
        steps = log.retention_steps(now_ms)
        while self.partitions.get(partition.topic_partition) is partition:
            old_start = log.state.log_start_offset
            try:
                deleted = next(steps, None)
            finally:  # a segment that cannot be deleted is no longer part of the log either
                if log.state.log_start_offset != old_start:
                    self.wakeups.watermark_moved(partition)
            if deleted is None:
                return
            yield deleted

    def _flushed(self, partition: Partition) -> None:
        if partition.maybe_increment_high_watermark():
            self.wakeups.watermark_moved(partition)
        else:
            self.wakeups.flushed(partition)

    def _flush_failed(self, partition: Partition, error: ProtocolError) -> None:
        self.wakeups.watermark_moved(partition)
        self.log_failed(partition, error)

    def log_failed(self, partition: Partition, error: Exception) -> None:
        """The partition's log could not be written. If another replica can take its place, this one goes offline, and
        the loss is reported. Otherwise it goes on: it can be read, and the next append tries again. If the partition
        was deleted meanwhile, nothing is done: there may be a new one of its name.
        """
        key = partition.topic_partition
        if self.partitions.get(key) is partition and not partition.is_irreplaceable:
            self._replica_lost(partition, self._fail(key, error, needs_restart=partition.has_failed))

    def live_brokers_changed(self) -> None:
        """Brokers have joined or left the cluster: DeleteRecords waits only for the replicas on live ones."""
        if self.delete_records_purgatory.delayed:
            for partition in self.partitions:
                if partition.remote_replicas:
                    self.wakeups.replicas_changed(partition)

    # Shutdown

    def shutdown(self) -> None:
        """Completes all waiting operations in their current state; nothing waits from then on. The logs stay open."""
        self.in_sync_replicas.close()
        for purgatory in (self.fetch_purgatory, self.produce_purgatory, self.delete_records_purgatory):
            purgatory.shutdown()
