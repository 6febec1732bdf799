"""The checkpoints of a broker's log directories: for each of its partitions where the log is durable, how far it is
committed, where it begins, how far it is cleaned (Kafka's OffsetCheckpointFile).

What a checkpoint is to say is decided on the loop (`take`) and written in any thread. A later look wins, in whichever
order two are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT

if TYPE_CHECKING:
    from odradek.storage.log import Log
    from odradek.storage.log_directory import LogDirectory
    from odradek.storage.log_moves import LogMoves


class LogCheckpoints:
    """Of all `logs` in all `directories` (by path), and of those that are moving."""

    def __init__(
        self, directories: Mapping[str, LogDirectory], logs: Mapping[TopicPartition, Log], moves: LogMoves
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._moves = moves
        self._taken = 0

    def take(self, name: str, only: str | None = None) -> Callable[[], None]:
        """What a checkpoint (RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET, CLEANER_OFFSET) is to say now, as a
        function that writes it, in any thread, in all directories or in `only` this one. It raises OSError, and does
        nothing where the file says just that.
        """
        offset_of = CHECKPOINTED[name]
        self._taken += 1
        number = self._taken
        offsets: dict[str, dict[TopicPartition, int]] = {path: {} for path in self._directories}
        for topic_partition, log in self._logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[log.directory.rpartition("/")[0]][topic_partition] = offset
        for move in self._moves.under_way():
            offset = move.synced_offset if name == RECOVERY_POINT else offset_of(move.log)
            if offset is not None:
                offsets[move.directory][move.log.topic_partition] = offset

        def write() -> None:
            for path, entries in offsets.items():
                if only is None or path == only:
                    self._directories[path].checkpoint(name, entries, number)

        return write

    def write(self, *names: str) -> None:
        """Takes and writes them. Raises OSError."""
        for name in names:
            self.take(name)()

    def write_one(self, directory: str, *names: str) -> None:
        """Takes and writes those of one directory, given by its path. Raises OSError."""
        for name in names:
            self.take(name, directory)()

    def take_all(self) -> Callable[[], None]:
        """All of them as `take`."""
        writes = [self.take(name) for name in CHECKPOINTED]

        def write() -> None:
            for each in writes:
                each()

        return write

    def write_all(self) -> None:
        """Before and after a log changes its directory. Raises OSError."""
        self.take_all()()


def _moved_start(log: Log) -> int | None:
    """Also of a log that begins with a segment: a deleted one before it may come back with a crash."""
    return log.log_start_offset or None


CHECKPOINTED: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT: lambda log: log.safe_recovery_point,
    HIGH_WATERMARK: lambda log: log.high_watermark,
    LOG_START_OFFSET: _moved_start,
    CLEANER_OFFSET: lambda log: log.cleaned_offset,
}
