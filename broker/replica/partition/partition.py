"""One partition on this broker: its leader, its in-sync replicas, and the high watermark.

The log manages offsets; the partition manages replicas. It decides:

(A) Fencing. A client may send the leader epoch that it knows: an older one is FENCED_LEADER_EPOCH, a newer one
    UNKNOWN_LEADER_EPOCH.
(B) Whether an append is allowed. acks=all needs `min.insync.replicas` replicas in the committed ISR, or fails with
    NOT_ENOUGH_REPLICAS.
(C) The high watermark: on the leader, the smallest log end offset over the maximal ISR and over caught-up replicas that
    are about to join it. It does not move while too few replicas are in sync. On a follower it is the leader's, as far
    as its own log goes. It moves back only with a truncation.
(D) Durability. If the flush policy requires an append on disk before it is acknowledged, this replica's copy counts
    only up to the log's flushed offset until that append is flushed: neither acks=all nor a consumer gets ahead of the
    leader's flush, and a follower, whose next fetch acknowledges the append, flushes before it (`needs_flush`).
(E) Who is in sync (isr.py). A follower joins the ISR when it has reached the high watermark and the start of the
    leader's epoch: before the latter it may lack records that were committed under an earlier leader. It leaves when it
    has not been caught up for `replica.lag.time.max.ms`. The partition proposes, the controller decides.
(F) Which assignments apply. One with an older leader epoch or partition epoch changes nothing. A leader that becomes a
    follower keeps nothing of what it knew of the replicas.
(G) Whether the leadership has lapsed: another broker may lead, unknown to this one. Until the next assignment, appends
    and reads are refused with NOT_LEADER_OR_FOLLOWER, also reads that a follower may answer.

Everything here is synchronous and sends nothing; the replica manager notifies waiting operations.

Source: Kafka's Partition; KIP-101 and KIP-320 for the epochs, KIP-497 for the ISR, KIP-966 for holding the high
watermark below the minimum ISR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.broker.replica.partition.isr import Isr, IsrAnswer, IsrProposal
from odradek.broker.replica.partition.remote_replica import RemoteReplica
from odradek.broker.replica.partition.replication import Replication
from odradek.broker.replica.partition.topic_stats import TopicStats
from odradek.protocol.append_allowance import AppendAllowance
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.leader_assignment import ValidatedBatch
from odradek.protocol.plain_batch import PlainBatch
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.partition.watcher import Watcher
    from odradek.storage.log.append import LogAppendInfo
    from odradek.storage.log.follow import FollowerAppendInfo
    from odradek.storage.log.log import Log
    from odradek.storage.log_offsets import EpochEndOffset

NO_LEADER_EPOCH = -1
NO_PARTITION_EPOCH = -1


class Partition:
    """A hosted partition. `watchers` are the targets of fetch sessions to notify when anything visible to a fetch
    changes. `isr` and `remote_replicas` are the leader's; a follower has none.
    """

    __slots__ = (
        "_replication",
        "adding",
        "epoch_start_offset",
        "has_lapsed",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "partition_epoch",
        "remote_replicas",
        "replicas",
        "required_flush_offset",
        "stats",
        "topic_id",
        "topic_partition",
        "watchers",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: UUID, log: Log, stats: TopicStats, replication: Replication
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log: Log = log
        self.stats = stats
        self.leader_id = NO_LEADER
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = NO_PARTITION_EPOCH
        self.is_leader = False
        self.has_lapsed = False
        self.leadership = 0
        """Which time that this broker leads a partition; another one after each time that it did not."""
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.isr = Isr()
        self.remote_replicas: dict[int, RemoteReplica] = {}
        self.epoch_start_offset = 0
        self.required_flush_offset = 0
        """At first the end of what the log has already, if that should have been flushed."""
        self.watchers: dict[Watcher, None] = {}
        self._replication = replication
        self._require_flush()

    def check(self) -> None:
        """Asserts what holds between two calls: only a leader knows replicas and has an ISR, which contains itself; and
        see the checks of the ISR and of the log's state.
        """
        self.log.state.check()
        isr, local_id = self.isr, self._replication.broker_id
        isr.check()
        followers = set(self.remote_replicas)
        if self.is_leader:
            assert self.leader_id == local_id, f"{self.topic_partition} is led here and by {self.leader_id}"
            assert local_id in isr.committed, (
                f"{self.topic_partition} is led by a replica that is not in {isr.committed}"
            )
            assert not self.has_lapsed, f"the leadership of {self.topic_partition} has lapsed"
            assert followers == set(self.replicas) - {local_id}, f"{followers} follow, not {self.replicas}"
            assert self.epoch_start_offset <= self.log.state.log_end_offset, (
                f"epoch starts at {self.epoch_start_offset}"
            )
            assert isr.proposal is None or isr.proposal.leader_epoch == self.leader_epoch, f"{isr.proposal} is old"
        else:
            assert not followers, f"{followers} follow, but another broker leads {self.topic_partition}"
            assert not isr.committed, f"another broker leads {self.topic_partition}, not the one that knows its ISR"

    # Roles

    def is_outdated(self, state: PartitionState) -> bool:
        """Whether the assignment is older than the one that applies (F)."""
        return state.leader_epoch < self.leader_epoch or state.partition_epoch < self.partition_epoch

    def make_leader(self, state: PartitionState) -> bool:
        """Takes or renews leadership with this assignment, unless it is outdated (F). Returns True if the broker was
        not the leader in this epoch before.
        """
        if self.is_outdated(state):
            return False
        is_new_epoch = not self.is_leader or state.leader_epoch > self.leader_epoch
        led_before = self.is_leader and state.leader_epoch == self.leader_epoch + 1
        if is_new_epoch:
            self.log.assign_epoch_start_offset(state.leader_epoch)
        if is_new_epoch or state.partition_epoch > self.partition_epoch:
            self.isr.commit(state.isr)
        else:
            self.isr.assigned_again()
        self._assign(state)
        if not self.is_leader:
            self._replication.leaderships += 1
            self.leadership = self._replication.leaderships
        self.is_leader = True
        local_id = self._replication.broker_id
        self.remote_replicas = {
            broker_id: self.remote_replicas.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in state.replicas
            if broker_id != local_id
        }
        if is_new_epoch:
            self._begin_epoch(state, led_before)
        self.maybe_increment_high_watermark()
        return is_new_epoch

    def _begin_epoch(self, state: PartitionState, led_before: bool) -> None:
        """`led_before`: the broker led in the epoch just before this one, too. Otherwise the followers may have
        truncated their logs since to that of a leader in between.
        """
        end = self.log.state.log_end_offset
        self.epoch_start_offset = end
        self.required_flush_offset = min(self.required_flush_offset, end)
        now = self._replication.clock.now_ms()
        for replica in self.remote_replicas.values():
            in_sync = replica.broker_id in state.isr
            replica.reset(now, end, is_new_leader=not led_before, in_sync=in_sync)

    def make_follower(self, state: PartitionState) -> bool:
        """Follows the assignment's leader (maybe NO_LEADER), unless the assignment is outdated (F): appends by clients
        are refused with NOT_LEADER_OR_FOLLOWER. Returns True if the leader epoch is a new one.
        """
        if self.is_outdated(state):
            return False
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self._assign(state)
        self._forget_replicas()
        return is_new_epoch

    def _assign(self, state: PartitionState) -> None:
        self.has_lapsed = False
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.adding = state.adding

    def _forget_replicas(self) -> None:
        self.is_leader = False
        self.isr.commit(())
        self.remote_replicas = {}
        self.epoch_start_offset = 0

    def resign(self) -> None:
        """Stops serving the partition."""
        self.leader_id = NO_LEADER
        self._forget_replicas()

    def lapse(self) -> None:
        """Ends this broker's leadership until the next assignment (G). The epochs stay."""
        self.has_lapsed = True
        self._forget_replicas()

    @property
    def has_failed(self) -> bool:
        """Whether a flush failed (fsync): the log refuses appends until it is reopened. Reads continue."""
        return self.log.folder.failure is not None

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Checks the epoch (A); -1 skips the check. Raises FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ProtocolError(ErrorCode.FENCED_LEADER_EPOCH)
        raise ProtocolError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def local_log(self, current_leader_epoch: int = NO_LEADER_EPOCH, *, require_leader: bool = True) -> Log:
        """Returns the log after checking the epoch. Also raises NOT_LEADER_OR_FOLLOWER if the leader is required and is
        another broker, or if this broker's leadership has lapsed (G).
        """
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            self.check_leader_epoch(current_leader_epoch)
        if not self.is_leader and (require_leader or self.has_lapsed):
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.log

    # In-sync replicas

    @property
    def minimum_in_sync(self) -> int:
        """The topic's `min.insync.replicas`, capped at the number of replicas (as in Kafka since 3.7)."""
        return min(self.log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    @property
    def is_irreplaceable(self) -> bool:
        """Whether no other replica can lead in this one's place without losing records."""
        return len(self.replicas) < 2 or (self.is_leader and len(self.isr.committed) == 1)

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.committed) < self.minimum_in_sync

    @property
    def is_under_replicated(self) -> bool:
        """Whether fewer replicas are in sync than the partition has, not counting those that are being added."""
        return self.is_leader and len(self.isr.committed) < len(self.replicas) - len(self.adding)

    def maybe_shrink_isr(self) -> None:
        """Proposes an ISR without the followers that lag (E), unless another proposal is under way."""
        isr = self.isr
        if not self.is_leader or isr.proposal is not None or len(isr.committed) == 1:
            return
        replication = self._replication
        end, now = self.log.state.log_end_offset, replication.clock.now_ms()
        in_sync: list[int] = []
        for broker_id in isr.committed:
            replica = self.remote_replicas.get(broker_id)
            if broker_id == replication.broker_id or (
                replica is not None and replica.is_caught_up(end, now, replication.lag_time_max_ms)
            ):
                in_sync.append(broker_id)
        if len(in_sync) < len(isr.committed):
            self._propose(tuple(in_sync))

    def _maybe_expand_isr(self, replica: RemoteReplica) -> None:
        """Proposes an ISR with the follower if it has caught up and is alive (E)."""
        if (
            self.isr.proposal is None
            and replica.log_end_offset >= self.log.state.high_watermark
            and replica.log_end_offset >= self.epoch_start_offset
            and self._replication.is_alive(replica.broker_id)
        ):
            self._propose((*self.isr.committed, replica.broker_id))

    def _propose(self, isr: tuple[int, ...]) -> None:
        proposal = IsrProposal(self.topic_partition, self.leader_epoch, isr, self.partition_epoch)
        self.isr.propose(proposal)
        self._replication.propose(proposal)

    def is_proposing(self, proposal: IsrProposal) -> bool:
        """Whether the proposal still needs an answer."""
        return self.isr.proposal is proposal and not self.isr.is_outdated

    def isr_answered(self, proposal: IsrProposal, answer: IsrAnswer) -> bool:
        """Applies the controller's answer, unless the proposal is not the current one. Returns True if the high
        watermark moved. If `is_proposing` is still true afterwards, the proposal is to be sent again.
        """
        isr = self.isr
        if isr.proposal is not proposal:
            return False
        stats = self._replication.isr_stats
        if isinstance(answer, ErrorCode):
            stats.failed_updates += 1
            isr.refuse(answer)
            return False
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            stats.failed_updates += 1
            isr.refuse(ErrorCode.INVALID_UPDATE_VERSION)
            return False
        if len(proposal.isr) > len(isr.committed):
            stats.expands += 1
        else:
            stats.shrinks += 1
        self.partition_epoch = answer.partition_epoch
        isr.commit(answer.isr)
        return self.maybe_increment_high_watermark()

    # Appends

    def check_append(self, acks: int) -> None:
        """Checks whether an append is allowed (B). Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS."""
        if not self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if acks == -1 and self.remote_replicas and len(self.isr.committed) < self.minimum_in_sync:
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
        end = self.log.state.log_end_offset
        if end - max(self.required_flush_offset, self.log.state.recovery_point) >= self.log.config.flush_messages:
            self.required_flush_offset = end

    def maybe_increment_high_watermark(self) -> bool:
        """Advances the leader's high watermark if possible (C); returns True if it moved. Called after every append,
        follower fetch, flush and change of the ISR.
        """
        if not self.is_leader:
            return False
        log = self.log
        limit = log.state.log_end_offset
        if self.required_flush_offset > log.state.recovery_point:
            limit = log.state.recovery_point
        if self.remote_replicas:
            if self.is_under_min_isr:
                return False
            limit = self._smallest_end_offset(limit)
        if limit <= log.state.high_watermark:
            return False
        log.update_high_watermark(limit)
        return True

    def _smallest_end_offset(self, limit: int) -> int:
        maximal = self.isr.maximal
        for replica in self.remote_replicas.values():
            if replica.log_end_offset < limit and (replica.broker_id in maximal or self._may_join(replica)):
                limit = replica.log_end_offset
        return limit

    def _may_join(self, replica: RemoteReplica) -> bool:
        """Whether the follower is about to join the ISR (C). If the high watermark did not wait for it, it might never
        reach it.
        """
        replication = self._replication
        end, now = self.log.state.log_end_offset, replication.clock.now_ms()
        return replica.is_caught_up(end, now, replication.lag_time_max_ms) and replication.is_alive(replica.broker_id)

    def reached(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether acks=all is satisfied up to `required_offset` (exclusive), and the resulting error code."""
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.state.high_watermark < required_offset:
            return False, ErrorCode.KAFKA_STORAGE_ERROR if self.has_failed else ErrorCode.NONE
        if len(self.isr.maximal) < self.minimum_in_sync:
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, ErrorCode.NONE

    def flushed(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether the leader's own copy is on disk up to `required_offset` (exclusive), as far as the flush policy
        requires, and the resulting error code.
        """
        if not self.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.state.recovery_point >= required_offset or required_offset > self.required_flush_offset:
            return True, ErrorCode.NONE
        return False, ErrorCode.KAFKA_STORAGE_ERROR if self.has_failed else ErrorCode.NONE

    @property
    def needs_flush(self) -> bool:
        """Whether records wait for a flush that the policy requires (D)."""
        log = self.log
        return min(self.required_flush_offset, log.state.log_end_offset) > log.state.recovery_point

    # Following

    def append_as_follower(self, records: bytes | memoryview) -> FollowerAppendInfo | None:
        """Appends the batches of a fetch as the leader has them. Returns None if none of them is whole. If
        `needs_flush` is true afterwards, the flush must end before the next fetch (D).

        Raises NOT_LEADER_OR_FOLLOWER if this broker is the leader, and the errors of Log.append_as_follower.
        """
        if self.is_leader:
            raise ProtocolError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.log
        self.required_flush_offset = min(self.required_flush_offset, log.state.log_end_offset)
        info = log.append_as_follower(records)
        if info is not None and info.flush_required:
            self._require_flush()
        return info

    def follow(self, high_watermark: int, log_start_offset: int) -> bool:
        """Adopts the leader's high watermark (C) and log start offset, as far as this log goes. Returns True if one of
        them moved. Raises KAFKA_STORAGE_ERROR.
        """
        log = self.log
        old_high_watermark, old_start = log.state.high_watermark, log.state.log_start_offset
        limit = min(high_watermark, log.state.log_end_offset)
        if limit > old_high_watermark:
            log.update_high_watermark(limit)
        if log_start_offset > old_start:
            log.start.delete_records_before(min(log_start_offset, log.state.high_watermark))
        return log.state.high_watermark > old_high_watermark or log.state.log_start_offset > old_start

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
        """Records that a follower has everything before `fetch_offset`; it may be proposed for the ISR now (E). Returns
        True if the high or the low watermark moved.
        """
        replica = self.remote_replicas[replica_id]
        old_end, old_start = replica.log_end_offset, replica.log_start_offset
        old_low_watermark = self.low_watermark if log_start_offset != old_start else -1
        replica.update_fetch_state(
            fetch_offset, log_start_offset, self._replication.clock.now_ms(), self.log.state.log_end_offset
        )
        if replica_id not in self.isr.committed:
            self._maybe_expand_isr(replica)
        moved = fetch_offset != old_end and self.maybe_increment_high_watermark()
        return moved or (log_start_offset != old_start and self.low_watermark > old_low_watermark)

    # Deletion

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset over the live replicas, which DeleteRecords waits for."""
        lowest = self.log.state.log_start_offset
        for replica in self.remote_replicas.values():
            if replica.log_start_offset < lowest and self._replication.is_alive(replica.broker_id):
                lowest = replica.log_start_offset
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
        return self.log.start.delete_records_before(before)

    # Epochs

    def end_offset_for_epoch(
        self, current_leader_epoch: int, epoch: int, *, require_leader: bool = True
    ) -> EpochEndOffset:
        """Returns (largest epoch not above `epoch`, offset where it ended), or (-1, -1) if unknown. Raises the errors
        of `local_log`. (KIP-101)
        """
        return self.local_log(current_leader_epoch, require_leader=require_leader).end_offset_for_epoch(epoch)
