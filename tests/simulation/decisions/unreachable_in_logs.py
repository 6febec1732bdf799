"""Patterns of `unreachable.py` for logs, recovery and compaction, by the names of their reasons."""

from __future__ import annotations

from collections.abc import Mapping

PATTERNS: Mapping[str, tuple[str, ...]] = {
    "crash": ("broker/cleaning/log_cleaner.py LogCleaner.settings_changed: task.done()",),
    "damage": (
        "storage/log/leftovers.py _offset: offset is None",
        "storage/log/recovery.py open_log_steps: not _ends_with_a_whole_batch(*",
        "storage/log/recovery.py _ends_with_a_whole_batch: last.position + *",
        "storage/log/recovery.py _recover_batch: header.base_offset < next_offset",
        "storage/log/recovery.py _recover_batch: not header.base_offset - 1 <= *",
        "storage/segment/index.py SparseIndex.load: len(data) % self._entry_size",
        "storage/segment/segment.py LogSegment._locate_without_index: *",
        "storage/directories/log_directory.py LogDirectory.begin_load: self._files.size(checkpoint) > 0",
        "broker/cleaning/log_cleaner.py LogCleaner._clean: except (ProcessLookupError, UncleanableLog)",
        "broker/cleaning/log_cleaner.py LogCleaner._clean: self.manager.is_valid(clean)",
    ),
    "old": (
        "storage/log/recovery.py _recover: contiguous",
        "storage/directories/log_directory.py LogDirectory.begin_load: not self.partitions()",
        "storage/directories/log_directory.py LogDirectory.partitions: parse_future_folder(name) is None",
    ),
    "size": (
        "storage/log/writer.py LogWriter.write_copied: segment.size*",
        "*: not *.can_take(last_offset)",
        "storage/log/read.py _records: records is not None",
        "storage/cleaner/cleaner.py group_segments: *index + segment.*",
    ),
    "wrong": (
        "storage/log/append.py LogAppender.append: size > config.segment_bytes",
        "storage/log/start_offset.py LogStart.delete_records_before: offset < 0",
    ),
    "setting": (
        "storage/log/read.py _records: sendable",
        "storage/segment/segment.py LogSegment.create: path.endswith(LOG_SUFFIX)",
        "storage/producers/producer_state.py *self._is_expired(entry, now_ms)",
        "storage/producers/producer_state.py ProducerState._is_expired: now_ms - *",
        "storage/producers/refused_batches.py RefusedBatches.remove_expired: *",
        "storage/directories/log_creation.py LogCreator._emptiest: len(directories) == 1",
        "storage/cleaner/manager.py CleanerManager._compacted: key not in self.in_progress",
        "storage/cleaner/walk.py _move_timestamps: fixed",
    ),
    "kit": (
        "storage/directories/log_checkpoints.py LogCheckpoints.is_written: *",
        "storage/directories/log_manager.py LogManager.idle_until_ms: *",
        "storage/directories/log_creation.py LogCreator.make: *",
        "storage/directories/log_manager.py LogManager.delete: sync",
        "storage/directories/log_manager.py LogManager._sync_directory: *",
        "storage/directories/log_directory.py LogDirectory._make_private: *",
    ),
    "guard": (
        "storage/log/flushing.py LogFlusher.finish: segment is not segments.active",
        "storage/log/leader_epochs.py LeaderEpochs.end_offset_for: not self.entries",
        "storage/log/leftovers.py _finish_swaps: offset is not None",
        "storage/directories/future_replica.py LogMove.settle.work: files.exists(metadata)",
        "storage/directories/log_directory.py LogDirectory.begin_load: self._files.exists(checkpoint)",
        "storage/directories/log_manager.py LogManager._open_steps: topic_partition not in self.moves.completed",
        "storage/directories/log_moves.py LogMoves.finish: files.exists(target)",
        "storage/cleaner/candidates.py LogToClean.cleanable_ratio: self.total_bytes",
        "broker/cleaning/log_cleaner.py LogCleaner.settings_changed: self._tasks",
    ),
    "absent": (
        "storage/producers/producer_state.py _check_sequence: first != 0",
        "storage/cleaner/manager.py CleanerManager.is_valid: log.config.compact",
    ),
}
