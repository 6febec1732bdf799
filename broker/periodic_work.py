"""The periodic work of a broker and its intervals.

| work | setting |
|---|---|
| sweep connections: closed by clients, too slow to close, idle | every half second |
| flush rolled segments, remove files whose deletion delay is over | every second |
| bring replicas back that are offline | every second |
| look for certificates whose files have changed, and for those that expire | every two seconds, with TLS |
| apply retention | log.retention.check.interval.ms |
| write checkpoints: recovery points | log.flush.offset.checkpoint.interval.ms |
| ... log start offsets | log.flush.start.offset.checkpoint.interval.ms |
| ... high watermarks | replica.high.watermark.checkpoint.interval.ms |
| remove lagging followers from the ISRs | half of replica.lag.time.max.ms |
| elect preferred leaders, on the controller | leader.imbalance.check.interval.seconds |
| expire inactive producers | producer.id.expiration.check.interval.ms |
| expire offsets of empty groups | offsets.retention.check.interval.ms |
| abort timed-out transactions | transaction.abort.timed.out.transaction.cleanup.interval.ms |
| expire transactional ids | transaction.remove.expired.transaction.cleanup.interval.ms |

Loops over all logs yield to other work after each log; disk access runs in threads.

Frequent work says until when it has nothing to do, for tests that advance time (testing/virtual_time).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import structlog

from odradek.broker.background.background import Background, IdleUntil, always_works
from odradek.broker.cluster.member import ClusterMember
from odradek.broker.controller.controller import Controller
from odradek.broker.coordinator.coordinators import Coordinators
from odradek.broker.coordinator.transaction.timeouts import abort_steps, expiry_steps
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ProtocolError
from odradek.storage.checkpoint import HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek.storage.directories.log_manager import LogManager
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.network.certificates import Certificates

SWEEP_INTERVAL_MS = 500
HOUSEKEEPING_INTERVAL_MS = 1000
CERTIFICATES_INTERVAL_MS = 2000
MINUTE_MS = 60_000
GROUPS_PER_TURN = 100

log = structlog.get_logger("broker.background")


class Job(NamedTuple):
    """A row of the table. `name` is for the log; `idle_until_ms`: see Background."""

    interval_ms: int
    run: Callable[[], object]
    name: str
    idle_until_ms: IdleUntil = always_works


class PeriodicWork:
    """The periodic jobs, each of which can also be called directly."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        background: Background,
        socket_server: SocketServer,
        log_manager: LogManager,
        replica_manager: ReplicaManager,
        coordinators: Coordinators,
        cluster: ClusterMember,
        controller: Controller,
        certificates: Certificates | None,
    ) -> None:
        """`certificates`: None without TLS."""
        self._config = config
        self._clock = clock
        self._background = background
        self._socket_server = socket_server
        self._logs = log_manager
        self._replica_manager = replica_manager
        self._cluster = cluster
        self._controller = controller
        self._certificates = certificates
        self._groups = coordinators.groups
        self._transactions = coordinators.transactions

    def start(self) -> None:
        """Runs each job at its interval until the background is stopped."""
        if self._certificates is not None:
            self._certificates.warn_of_expiry(self._clock.wall_ms())
        for job in self.table():
            self._background.every(*job)

    def table(self) -> list[Job]:
        """See the head of this file."""
        config, certificates, server = self._config, self._certificates, self._socket_server
        offline = self._cluster.offline_replicas
        return [
            Job(SWEEP_INTERVAL_MS, server.sweep, "sweep connections", server.idle_until_ms),
            Job(HOUSEKEEPING_INTERVAL_MS, self.keep_house, "flush and remove segments", self._logs.idle_until_ms),
            Job(HOUSEKEEPING_INTERVAL_MS, offline.bring_back, "bring replicas back", offline.idle_until_ms),
            *(
                []
                if certificates is None
                else [Job(CERTIFICATES_INTERVAL_MS, self.follow_certificates, "certificates")]
            ),
            Job(config.log_retention_check_interval_ms, self.apply_retention, "retention"),
            Job(max(config.replica_lag_time_max_ms // 2, 1), self.shrink_isrs, "shrink ISRs", self._isrs_stay_until_ms),
            Job(
                1000 * config.leader_imbalance_check_interval_seconds,
                self._controller.replicas.balance_leaders,
                "balance leaders",
            ),
            Job(config.producer_id_expiration_check_interval_ms, self._logs.expire_producers, "expire producers"),
            Job(config.offsets_retention_check_interval_ms, self.expire_offsets, "expire offsets"),
            Job(
                config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                self.abort_late_transactions,
                "abort late transactions",
                self._no_transaction_until_ms,
            ),
            Job(
                config.transaction_remove_expired_transaction_cleanup_interval_ms,
                self.expire_transactional_ids,
                "expire transactional ids",
            ),
            *(
                Job(
                    max(interval_ms, 1),
                    partial(self.write_checkpoint, name),
                    name,
                    partial(self._written_until_ms, name),
                )
                for interval_ms, name in (
                    (config.log_flush_offset_checkpoint_interval_ms, RECOVERY_POINT),
                    (config.log_flush_start_offset_checkpoint_interval_ms, LOG_START_OFFSET),
                    (config.replica_high_watermark_checkpoint_interval_ms, HIGH_WATERMARK),
                )
            ),
        ]

    def _isrs_stay_until_ms(self) -> float:
        return 0 if self._replica_manager.in_sync_replicas.has_followers else math.inf

    def _no_transaction_until_ms(self) -> float:
        return 0 if any(shard.open for shard in self._transactions.shards()) else math.inf

    def _written_until_ms(self, name: str) -> float:
        return math.inf if self._logs.checkpoints.is_written(name) else 0

    async def keep_house(self) -> None:
        """Flushes rolled segments and removes files and folders whose deletion delay is over."""
        for flush in self._logs.take_flush_jobs():
            if flush is None:
                await asyncio.sleep(0)
                continue
            partition_log, job = flush
            await self._background.run_in_thread(job.run)
            try:
                partition_log.flusher.finish(job)
            except ProtocolError as error:  # the log has already logged it
                partition = self._replica_manager.partitions.get(partition_log.topic_partition)
                if partition is not None and partition.log is partition_log:
                    self._replica_manager.log_failed(partition, error)
        removal = self._logs.take_removals()
        if removal is not None:
            await self._background.run_in_thread(removal.run)

    async def follow_certificates(self) -> None:
        """Replaces keys and certificates whose files have changed, and warns of those that expire."""
        if self._certificates is not None:
            await self._certificates.follow(self._background.run_in_thread)
            self._certificates.warn_of_expiry(self._clock.wall_ms())

    async def apply_retention(self) -> None:
        """Deletes segments that exceed the retention time or size."""
        for _ in self._replica_manager.retention_steps():
            await asyncio.sleep(0)

    async def shrink_isrs(self) -> None:
        """Removes followers from the ISRs of led partitions that lag for too long."""
        await self._background.turns.take(self._replica_manager.in_sync_replicas.shrink())

    async def expire_offsets(self) -> None:
        """Expires committed offsets after the retention time, and groups that have neither members nor offsets."""
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        for step, _ in enumerate(self._groups.expire_offsets(retention_ms)):
            if step % GROUPS_PER_TURN == 0:
                await asyncio.sleep(0)

    async def abort_late_transactions(self) -> None:
        """Aborts transactions that have exceeded their timeout."""
        for _ in abort_steps(self._transactions, self._clock.wall_ms()):
            await asyncio.sleep(0)

    async def expire_transactional_ids(self) -> None:
        """Expires transactional ids that have not been used for transactional.id.expiration.ms."""
        expiration_ms = self._config.transactional_id_expiration_ms
        for _ in expiry_steps(self._transactions, self._clock.wall_ms(), expiration_ms):
            await asyncio.sleep(0)

    async def write_checkpoint(self, name: str) -> None:
        """Writes one of the checkpoint files of every log directory, if it has changed."""
        try:
            await self._background.run_in_thread(self._logs.take_checkpoint(name))
        except OSError as error:
            log.error("checkpoint not written", checkpoint=name, reason=str(error))
