"""Bugs of logs, their recovery, compaction and retention, and of disks: see planted.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.replica.leader.deletions import Deletions
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.replica.replica_manager import ReplicaManager
from odradek.storage.cleaner import candidates
from odradek.storage.cleaner.batches import BatchFilter
from odradek.storage.cleaner.transactions import CleanedTransactions
from odradek.storage.log import recovery
from odradek.storage.log.folder import LogFolder
from odradek.storage.log.leader_epochs import LeaderEpochs
from odradek.storage.log.retention import Retention
from odradek.storage.producers import snapshots
from odradek.storage.producers.snapshot_format import write_snapshot
from odradek.storage.producers.snapshots import ProducerSnapshots
from odradek.storage.segment.index import SparseIndex, TimeIndex
from odradek.storage.segment.segment import LogSegment
from tests.simulation.planted_in_sessions import Replace

# --- recovery and truncation --------------------------------------------------------------------------------------


def _recover_without_producers(replace: Replace) -> None:
    replace(recovery, "apply_stored", lambda state, batch, header: None)


def _recover_without_indexes(replace: Replace) -> None:
    def count(self: LogSegment, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self.max_timestamp:
            self._max_timestamp, self._offset_of_max_timestamp = max_timestamp, last_offset

    replace(LogSegment, "index_recovered", count)


def _keep_epochs(replace: Replace) -> None:
    replace(LeaderEpochs, "truncate_from_end", lambda self, end_offset: None)


def _keep_index_entries(replace: Replace) -> None:
    replace(SparseIndex, "truncate_to_entries", lambda self, entries: None)


def _keep_snapshots(replace: Replace) -> None:
    replace(ProducerSnapshots, "remove_outside", lambda self, log_start_offset, log_end_offset: None)


def _roll_without_the_last_time(replace: Replace) -> None:
    finish, append = LogSegment._finish, TimeIndex.maybe_append

    def without_time(self: LogSegment) -> None:
        TimeIndex.maybe_append = lambda *_: None  # type: ignore[method-assign]
        try:
            finish(self)
        finally:
            TimeIndex.maybe_append = append  # type: ignore[method-assign]

    replace(LogSegment, "_finish", without_time)


def _snapshot_without_open_transactions(replace: Replace) -> None:
    def entries(entries: Any) -> bytes:
        return write_snapshot([entry for entry in entries if entry.current_transaction_first_offset < 0])

    replace(snapshots, "write_snapshot", entries)


# --- compaction ---------------------------------------------------------------------------------------------------


def _remove_any_marker(replace: Replace) -> None:
    marker = CleanedTransactions.marker

    def may_go(self: CleanedTransactions, header: Any, control_type: Any) -> bool:
        marker(self, header, control_type)
        return True

    replace(CleanedTransactions, "marker", may_go)


def _remove_markers_at_once(replace: Replace) -> None:
    control_batch = BatchFilter._control_batch

    def without_horizon(self: BatchFilter, data: bytes, position: int, header: Any) -> bytes | None:
        kept = control_batch(self, data, position, header)
        return kept if kept is data or kept is None else self._without_records(header)

    replace(BatchFilter, "_control_batch", without_horizon)


def _clean_what_is_unstable(replace: Replace) -> None:
    def first_uncleanable(log: Any, first_dirty: int, now_ms: int) -> int:
        return len(log.segments) - 1 - len([each for each in log.segments.unsynced if each is not log.segments.active])

    replace(candidates, "_first_uncleanable", first_uncleanable)


def _let_aborted_records_count(replace: Replace) -> None:
    data_batch = CleanedTransactions.data_batch

    def in_the_second_pass(self: CleanedTransactions, header: Any) -> bool:
        is_aborted = data_batch(self, header)
        return is_aborted and self.note_aborted is not None

    replace(CleanedTransactions, "data_batch", in_the_second_pass)


# --- retention and deletion ---------------------------------------------------------------------------------------


def _delete_one_segment_more(replace: Replace) -> None:
    def by_size(self: Retention, config: Any, at_most: int) -> int:
        surplus: int = self._segments.size_in_bytes - config.retention_bytes

        def too_much(segment: LogSegment, next_base: int | None) -> bool:
            nonlocal surplus
            surplus -= segment.size
            return surplus + segment.size > 0

        return self._delete_while(too_much, config, "size", at_most) if config.retention_bytes >= 0 else 0

    replace(Retention, "_delete_by_size", by_size)


def _follow_without_the_start(replace: Replace) -> None:
    follow = Partition.follow
    replace(Partition, "follow", lambda self, high_watermark, log_start_offset: follow(self, high_watermark, 0))


def _confirm_deletions_alone(replace: Replace) -> None:
    delete_one = Deletions._delete_one

    def delete(self: Deletions, key: Any, before: int) -> Any:
        status = delete_one(self, key, before)
        status.low_watermark, status.acks_pending = self._low_watermark(key)[0], False
        return status

    replace(Deletions, "_delete_one", delete)


# --- disks --------------------------------------------------------------------------------------------------------


def _sync_again(replace: Replace) -> None:
    replace(LogFolder, "fail", lambda self, error: None)


def _lose_all_replicas(replace: Replace) -> None:
    log_failed = ReplicaManager.log_failed

    def all_failed(self: ReplicaManager, partition: Partition, error: Exception) -> None:
        log_failed(self, partition, error)
        for other in list(self.partitions):
            log_failed(self, other, error)

    replace(ReplicaManager, "log_failed", all_failed)


LOG_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "recovery does not note producers": _recover_without_producers,
    "recovery does not index batches": _recover_without_indexes,
    "leader epochs are not truncated": _keep_epochs,
    "indexes are not truncated": _keep_index_entries,
    "snapshots of what was truncated stay": _keep_snapshots,
    "a roll does not index the largest time": _roll_without_the_last_time,
    "a snapshot lacks producers with an open transaction": _snapshot_without_open_transactions,
    "compaction removes markers before their records": _remove_any_marker,
    "compaction removes markers before their horizon": _remove_markers_at_once,
    "compaction goes beyond the last stable offset": _clean_what_is_unstable,
    "compaction counts aborted records": _let_aborted_records_count,
    "retention by size deletes one segment more": _delete_one_segment_more,
    "a follower does not take over the log's start": _follow_without_the_start,
    "a deletion is confirmed by the leader alone": _confirm_deletions_alone,
    "a sync that has failed is tried again": _sync_again,
    "a failed disk takes all replicas offline": _lose_all_replicas,
}
"""How to plant each bug."""
