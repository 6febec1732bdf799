"""Patterns of `unreachable.py` for the coordinators and the purgatories, by the names of their reasons."""

from __future__ import annotations

from collections.abc import Mapping

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "old": (
        "broker/coordinator/group/classic/group.py ClassicGroup.offset_expiry: since_ms == NO_TIMESTAMP",
        "broker/coordinator/group/classic/rebalance.py joined_as_before: not can_skip_assignment",
    ),
    "kit": ("broker/coordinator/group/classic/group.py ClassicGroup.sessions: *",),
    "size": (
        "broker/coordinator/group/offsets/records.py offset_value: except struct.error",
        "broker/coordinator/transaction/timeouts.py _batches: *",
        "broker/coordinator/transaction/timeouts.py abort_steps: shard.is_current",
        "broker/coordinator/transaction/timeouts.py abort_steps: shard.open.get(*",
        "broker/coordinator/transaction/timeouts.py abort_steps: is_open",
        "broker/coordinator/transaction/timeouts.py abort_steps: _is_late(transaction, now_ms) (2)",
        "broker/coordinator/transaction/timeouts.py expiry_steps: (transaction := *",
        "broker/coordinator/transaction/local_markers.py LocalMarkerWriter._turn: *",
        "purgatory/completion_queue.py *: budget > 0",
        "purgatory/completion_queue.py CompletionQueue.is_empty: self._expired",
        "purgatory/delayed_join.py InitialDelayedJoin.on_complete: self.remaining_ms != 0",
        "purgatory/purgatory.py *: watchers.position > 0",
        "purgatory/purgatory.py *: watchers.again",
        "purgatory/purgatory.py DelayedOperationPurgatory._try_pass: budget > 0",
    ),
    "guard": (
        "broker/coordinator/group/*: *state is *GroupState.DEAD",
        "broker/coordinator/group/classic/group.py ClassicGroup.elect_joined_leader: self.leader_id",
        "broker/coordinator/group/classic/group.py ClassicGroup._topics_of_members: self.protocol_name is None",
        "broker/coordinator/group/classic/member.py Sessions.extend: not heartbeat.is_completed",
        "broker/coordinator/group/classic/member.py Sessions._missed: group.member(member.member_id) is not member",
        "broker/coordinator/group/classic/member.py Sessions._pending_missed: group.pending.pop(*",
        "broker/coordinator/group/classic/rebalance.py *: group.state is not GroupState.PREPARING_REBALANCE",
        "broker/coordinator/group/classic/rebalance.py Rebalances._sync_overdue: not group.can_rebalance",
        "broker/coordinator/group/classic/rebalance.py _generation: leader_id",
        "broker/coordinator/group/offsets/offsets.py GroupOffsets._count_in: partitions",
        "broker/coordinator/group/offsets/removal.py _remove_topic: offsets is None",
        "broker/coordinator/group/shard.py GroupShard.forget_if_unused: self.groups.get(group.group_id) is not group",
        "broker/coordinator/internal_topics.py InternalTopics.ensure: self.exists(name)",
        "broker/coordinator/transaction/marker_writing.py MarkerWriting._log_unwritten: code not in OUTCOMES",
        "broker/coordinator/transaction/marker_writing.py MarkerWriting._retry: self._is_pending(completion)",
        "broker/coordinator/transaction/marker_writing.py MarkerWriting._look: self._is_pending(completion)",
        "broker/coordinator/transaction/marker_writing.py MarkerWriting._send_to: not self._is_pending(completion)",
        "purgatory/completion_queue.py CompletionQueue.__init__: *",
        "purgatory/completion_queue.py CompletionQueue.drain: self._draining",
        "purgatory/delayed_fetch.py DelayedFetch.try_complete: accumulated >= self.min_bytes",
        "purgatory/delayed_operation.py DelayedOperation.force_complete: self.is_completed",
        "purgatory/purgatory.py *.try_complete_else_watch: not keys",
        "purgatory/purgatory.py *.try_complete_else_watch: operation.is_completed",
        "purgatory/purgatory.py *.cancel_for_key: not operation.is_cancelled",
        "purgatory/purgatory.py *.waiting: operation.is_cancelled",
    ),
    "absent": (
        "broker/coordinator/group/offsets/offsets.py GroupOffsets.tombstones_of: group.has(topic, partition)",
        "broker/coordinator/group/classic/group.py ClassicGroup.is_subscribed_to: *",
        "broker/coordinator/group/offsets/offsets.py GroupOffsets.committed: group is None",
        "broker/coordinator/group/offsets/offsets.py GroupOffsets.tombstones: group is None",
        "broker/coordinator/group/offsets/records.py offset_value: text.isascii()",
    ),
}
