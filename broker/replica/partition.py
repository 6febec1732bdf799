"""One partition on this broker: its leader, its in-sync replicas, and the high watermark.

The log manages offsets; the partition manages replicas. It decides:

(A) Fencing. A client may send the leader epoch that it knows: an older one is FENCED_LEADER_EPOCH, a newer one
    UNKNOWN_LEADER_EPOCH.
(B) Whether an append is allowed. acks=all needs `min.insync.replicas` replicas in sync, or fails with
    NOT_ENOUGH_REPLICAS.
(C) The high watermark: the smallest log end offset over the in-sync replicas and over caught-up replicas that are about
    to join the ISR. It never moves back while this broker leads, and it does not move while too few replicas are in
    sync.
(D) Durability. If the flush policy requires an append on disk before it is acknowledged, the leader's own copy counts
    only up to the log's flushed offset until that append is flushed: neither acks=all nor a consumer gets ahead of it.

Everything here is synchronous and sends nothing; the replica manager notifies waiting operations.

Source: Kafka's Partition; KIP-101 and KIP-320 for the epochs, KIP-966 for holding the high watermark below the minimum
ISR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.replica.remote_replica import RemoteReplica
from odradek.broker.replica.topic_stats import TopicStats
from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

if TYPE_CHECKING:
    from odradek.broker.replica.watcher import Watcher
    from odradek.storage.log import Log
    from odradek.storage.log_append import LogAppendInfo
    from odradek.storage.log_offsets import EpochEndOffset

NO_LEADER_EPOCH = -1
HIGH_WATERMARK = -1  # DeleteRecords: "everything committed"


class Partition:
    """A hosted partition. `watchers` are the targets of fetch sessions to notify when anything visible to a fetch
    changes.
    """

    __slots__ = (
        "_clock",
        "_replica_lag_time_max_ms",
        "epoch_start_offset",
        "in_sync",
        "is_leader",
        "leader_epoch",
        "leader_id",
        "local_broker_id",
        "log",
        "remote_replicas",
        "replicas",
        "required_flush_offset",
        "stats",
        "topic_id",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        stats: TopicStats,
        *,
        local_broker_id: int,
        clock: Clock,
        replica_lag_time_max_ms: int = 30_000,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: Log = log
        self.stats = stats
        self.local_broker_id = local_broker_id
        self.leader_id = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.replicas: tuple[int, ...] = ()
        self.in_sync: frozenset[int] = frozenset()
        self.remote_replicas: dict[int, RemoteReplica] = {}
        self.epoch_start_offset = 0
        self.required_flush_offset = 0
        self.watchers: set[Watcher] = set()
        self._clock = clock
        self._replica_lag_time_max_ms = replica_lag_time_max_ms

    # Leadership

    def make_leader(self, leader_epoch: int, replicas: Sequence[int], isr: Iterable[int]) -> bool:
        """Takes or renews leadership with this assignment. Returns True if the broker was not the leader in this epoch
        before.
        """
        is_new_leader = not self.is_leader or leader_epoch != self.leader_epoch
        self.replicas = tuple(replicas)
        self.in_sync = frozenset(isr)
        self.remote_replicas = {
            broker_id: self.remote_replicas.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in replicas
            if broker_id != self.local_broker_id
        }
        end = self.log.log_end_offset
        if is_new_leader:
            self.leader_epoch = leader_epoch
            self.epoch_start_offset = end
            self.log.assign_epoch_start_offset(leader_epoch)
        now = self._clock.now_ms()
        for replica in self.remote_replicas.values():
            replica.reset(now, end, is_new_leader=is_new_leader, in_sync=replica.broker_id in self.in_sync)
        self.leader_id = self.local_broker_id
        self.is_leader = True
        self.maybe_increment_high_watermark()
        return is_new_leader

    def make_follower(self, leader_id: int, leader_epoch: int, replicas: Sequence[int]) -> None:
        """Makes `leader_id` the leader: appends and fetches by clients are refused with NOT_LEADER_OR_FOLLOWER."""
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.is_leader = False
        self.replicas = tuple(replicas)
        self.in_sync = frozenset()
        self.remote_replicas = {}

    def resign(self) -> None:
        """Stops serving the partition."""
        self.make_follower(-1, self.leader_epoch, self.replicas)

    @property
    def has_failed(self) -> bool:
        """Whether a flush failed (fsync): the log refuses appends until it is reopened. Reads continue."""
        return self.log.failure is not None

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Checks the epoch (A); -1 skips the check. Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def local_log(self, current_leader_epoch: int = NO_LEADER_EPOCH, *, require_leader: bool = True) -> Log:
        """Returns the log after checking the epoch. Also raises NOT_LEADER_OR_FOLLOWER if the leader is required and is
        another broker.
        """
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            self.check_leader_epoch(current_leader_epoch)
        if require_leader and not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

    # In-sync replicas

    @property
    def minimum_in_sync(self) -> int:
        """The topic's `min.insync.replicas`, capped at the number of replicas (as in Kafka since 3.7)."""
        return min(self.log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.in_sync) < self.minimum_in_sync

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.in_sync) < len(self.replicas)

    # Appends

    def check_append(self, acks: int) -> None:
        """Checks whether an append is allowed (B). Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS."""
        if not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and self.remote_replicas and len(self.in_sync) < self.minimum_in_sync:
            raise ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def append_as_leader(
        self,
        records: bytes | PlainBatch | ValidatedBatch,
        acks: int,
        api_version: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        allowance: AppendAllowance | None = None,
    ) -> LogAppendInfo:
        """Appends one batch, by default a client's, and advances the high watermark if possible (B, C, D).

        Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, and the log's errors: for an invalid batch, for a full disk,
        for a batch whose validation exceeds the `allowance`.
        """
        self.check_append(acks)
        log = self.log
        info = log.append_as_leader(
            records, self.leader_epoch, api_version=api_version, origin=origin, allowance=allowance
        )
        if info.flush_required:
            self._require_flush()
        self.maybe_increment_high_watermark()
        return info

    def _require_flush(self) -> None:
        """Requires a flush after `flush.messages` records (D). Records covered by the flush in progress do not count
        towards the next one.
        """
        end = self.log.log_end_offset
        if end - max(self.required_flush_offset, self.log.flushed_offset) >= self.log.config.flush_messages:
            self.required_flush_offset = end

    def maybe_increment_high_watermark(self) -> bool:
        """Advances the high watermark if possible (C); returns True if it moved. Called after every append, follower
        fetch, flush and change of the ISR.
        """
        log = self.log
        limit = log.log_end_offset
        if self.required_flush_offset > log.flushed_offset:
            limit = log.flushed_offset
        if self.remote_replicas:
            if self.is_under_min_isr:
                return False
            limit = self._smallest_end_offset(limit)
        if limit <= log.high_watermark:
            return False
        log.update_high_watermark(limit)
        return True

    def _smallest_end_offset(self, limit: int) -> int:
        leader_end = self.log.log_end_offset
        now = self._clock.now_ms()
        for replica in self.remote_replicas.values():
            if replica.log_end_offset < limit and (
                replica.broker_id in self.in_sync
                or replica.is_caught_up(leader_end, now, self._replica_lag_time_max_ms)
            ):
                limit = replica.log_end_offset
        return limit

    def reached(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether acks=all is satisfied up to `required_offset` (exclusive), and the resulting error code."""
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return False, ErrorCode.KAFKA_STORAGE_ERROR if self.has_failed else ErrorCode.NONE
        if self.is_under_min_isr:
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, ErrorCode.NONE

    def flushed(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether the leader's own copy is on disk up to `required_offset` (exclusive), as far as the flush policy
        requires, and the resulting error code.
        """
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.flushed_offset >= required_offset or required_offset > self.required_flush_offset:
            return True, ErrorCode.NONE
        return False, ErrorCode.KAFKA_STORAGE_ERROR if self.has_failed else ErrorCode.NONE

    # Followers

    def follower(self, replica_id: int, current_leader_epoch: int) -> RemoteReplica:
        """Returns the follower's state. Raises UNKNOWN_LEADER_EPOCH (or NOT_LEADER_OR_FOLLOWER if the fetch has no
        epoch) for a broker that is not assigned.
        """
        replica = self.remote_replicas.get(replica_id)
        if replica is None:
            if current_leader_epoch == NO_LEADER_EPOCH:
                raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return replica

    def update_follower(self, replica_id: int, fetch_offset: int, log_start_offset: int) -> bool:
        """Records that a follower has everything before `fetch_offset`. Returns True if the high or the low watermark
        moved.
        """
        replica = self.remote_replicas[replica_id]
        old_low_watermark = self.low_watermark
        replica.update_fetch_state(fetch_offset, log_start_offset, self._clock.now_ms(), self.log.log_end_offset)
        return self.maybe_increment_high_watermark() or self.low_watermark > old_low_watermark

    # Deletion

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset over all replicas, which DeleteRecords waits for."""
        lowest = self.log.log_start_offset
        for replica in self.remote_replicas.values():
            lowest = min(lowest, replica.log_start_offset)
        return lowest

    def delete_records(self, before: int) -> int:
        """Moves the log start offset to `before` (-1: the high watermark) and returns the resolved offset.

        Raises POLICY_VIOLATION for a topic that is only compacted, OFFSET_OUT_OF_RANGE below 0 or beyond the high
        watermark.
        """
        if not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not self.log.config.delete:
            raise ProtocolError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy does not include delete")
        offset = self.log.high_watermark if before == HIGH_WATERMARK else before
        if offset < 0 or offset > self.log.high_watermark:
            raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.log.delete_records_before(offset)
        return offset

    # Epochs

    def end_offset_for_epoch(
        self, current_leader_epoch: int, epoch: int, *, require_leader: bool = True
    ) -> EpochEndOffset:
        """Returns (largest epoch not above `epoch`, offset where it ended), or (-1, -1) if unknown. Raises the errors
        of `local_log`. (KIP-101)
        """
        return self.local_log(current_leader_epoch, require_leader=require_leader).end_offset_for_epoch(epoch)
