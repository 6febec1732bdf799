"""The checkpoints of a broker's log directories: for each partition up to where the log is durable, replicated and
cleaned, and where it begins (Kafka's OffsetCheckpointFile).

What a checkpoint is to say is decided on the loop (`take`) and written in any thread. A later look wins, in whichever
order two are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek.storage.log import Log
from odradek.storage.log_registry import LogRegistry


class LogCheckpoints:
    """Of all logs in all directories, and of those that are moving."""

    def __init__(self, registry: LogRegistry) -> None:
        self._registry = registry
        self._taken = 0

    def take(self, name: str, only: str | None = None) -> Callable[[], None]:
        """What a checkpoint (RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET, CLEANER_OFFSET) is to say now, as a
        function that writes it, in any thread, in all directories or in `only` this one. It raises OSError, and does
        nothing where the file says just that.
        """
        offset_of = CHECKPOINTED[name]
        registry = self._registry
        self._taken += 1
        number = self._taken
        offsets: dict[str, dict[TopicPartition, int]] = {path: {} for path in registry.directories}
        for topic_partition, log in registry.logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[registry.directory_of(log)][topic_partition] = offset
        for move in registry.moves.values():
            offset = move.synced_offset if name == RECOVERY_POINT else offset_of(move.log)
            if offset is not None:
                offsets[move.directory][move.log.topic_partition] = offset

        def write() -> None:
            for path, entries in offsets.items():
                if only is None or path == only:
                    registry.directories[path].checkpoint(name, entries, number)

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
