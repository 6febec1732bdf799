"""The checkpoints of a broker's log directories: for each partition, the offsets up to which the log is durable,
replicated and cleaned, and its start offset (Kafka's OffsetCheckpointFile).

The content of a checkpoint is collected on the loop (`take`) and written in any thread. If two are written in the wrong
order, the one that was collected later wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import CLEANER_OFFSET, HIGH_WATERMARK, LOG_START_OFFSET, RECOVERY_POINT
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.log.log import Log


class CheckpointWrite:
    """Writes what was collected, in any thread, directory by directory. One that fails does not keep the others from
    being written: `errors` has what went wrong, by the path of the directory.
    """

    def __init__(self, writes: Mapping[str, Callable[[], None]]) -> None:
        self._writes = writes
        self.errors: dict[str, OSError] = {}

    def __call__(self) -> None:
        """Raises the first OSError, after all are written that can be."""
        for path, write in self._writes.items():
            try:
                write()
            except OSError as error:
                self.errors[path] = error
        first = next(iter(self.errors.values()), None)
        if first is not None:
            raise first


class LogCheckpoints:
    """The checkpoints of all logs in all directories, including logs that are being moved."""

    def __init__(self, registry: LogRegistry) -> None:
        self._registry = registry
        self._taken = 0

    def take(self, name: str, only: str | None = None) -> CheckpointWrite:
        """Collects the offsets of a checkpoint (RECOVERY_POINT, HIGH_WATERMARK, LOG_START_OFFSET, CLEANER_OFFSET).
        Returns a function that writes them, in any thread, in all directories or in `only` this one. It raises OSError,
        and does nothing if the file already has this content.
        """
        registry = self._registry
        self._taken += 1
        number = self._taken
        return CheckpointWrite(
            {
                path: partial(registry.directories[path].checkpoint, name, entries, number)
                for path, entries in self._offsets(name).items()
                if only is None or path == only
            }
        )

    def is_written(self, name: str) -> bool:
        """Whether the files of a checkpoint have what `take` would write."""
        directories = self._registry.directories
        return all(directories[path].has_checkpoint(name, entries) for path, entries in self._offsets(name).items())

    def _offsets(self, name: str) -> dict[str, dict[TopicPartition, int]]:
        """Returns the entries of a checkpoint, by directory."""
        offset_of = CHECKPOINTED[name]
        registry = self._registry
        offsets: dict[str, dict[TopicPartition, int]] = {path: {} for path in registry.directories}
        for topic_partition, log in registry.logs.items():
            offset = offset_of(log)
            if offset is not None:
                offsets[registry.directory_of(log)][topic_partition] = offset
        for move in registry.moves.values():
            offset = move.synced_offset if name == RECOVERY_POINT else offset_of(move.log)
            if offset is not None:
                offsets[move.directory][move.log.topic_partition] = offset
        return offsets

    def write(self, *names: str) -> None:
        """Takes and writes the named checkpoints. Raises OSError."""
        for name in names:
            self.take(name)()

    def write_one(self, directory: str, *names: str) -> None:
        """Takes and writes checkpoints of one directory, given by its path. Raises OSError."""
        for name in names:
            self.take(name, directory)()

    def take_all(self) -> Callable[[], None]:
        """Like `take`, for all checkpoints."""
        writes = [self.take(name) for name in CHECKPOINTED]

        def write() -> None:
            for each in writes:
                each()

        return write

    def write_all(self) -> None:
        """Writes all checkpoints, before and after a log changes its directory. Raises OSError."""
        self.take_all()()


def _moved_start(log: Log) -> int | None:
    """None for 0. Needed even if the log starts with a segment: a deleted one may reappear after a crash."""
    return log.state.log_start_offset or None


CHECKPOINTED: Mapping[str, Callable[[Log], int | None]] = {
    RECOVERY_POINT: lambda log: log.flusher.safe_recovery_point,
    HIGH_WATERMARK: lambda log: log.state.high_watermark,
    LOG_START_OFFSET: _moved_start,
    CLEANER_OFFSET: lambda log: log.state.cleaned_offset,
}
