"""Creating a partition's log: files are created on the loop and synced in any thread; then the log is registered.

The order on the disk: the contents of the folder's small files, the names in the folder, and, once for all logs that
are created together, the folder's own name in its log directory. A crash in between leaves no folder, or one in which a
file may be missing or empty: the next start then creates the log again, or uses the folder and writes the rest.

At its start, a broker ignores the folder of another topic with the same name, and that of a replica that was moved to
another broker meanwhile. If a replica of another topic, or a new one, needs the name, such a folder is renamed
(`-stray`, as in Kafka) and kept for the operator. Otherwise its files may be those of the replica, which the broker
could not open, or did not know: an empty log does not replace them. What a failed creation has left, because its
folder could not be removed either, goes before the next attempt, or with the partition.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    LEADER_EPOCH,
    PARTITION_METADATA,
    CorruptCheckpoint,
    read_partition_metadata,
)
from odradek.storage.directories.log_checkpoints import LogCheckpoints
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.log_moves import LogMoves
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.files import Files
from odradek.storage.log.log import Log
from odradek.storage.log_config import LogConfig

NO_EPOCH = -1
DEVICE_ERRORS = frozenset({errno.EIO, errno.EROFS})
"""Errors of the device: another log could not be created in the directory either."""

OpenNew = Callable[[str, TopicPartition, LogConfig], Log]
"""Opens a log in a new folder, given by its path. Raises OSError."""

_log = structlog.get_logger(__name__)


class NewLog(NamedTuple):
    """A log that should exist. If it has to be created, it starts with this leader epoch. `is_new`: the broker did not
    have this replica before.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID | None
    leader_epoch: int
    config: LogConfig
    is_new: bool = False


class LogCreation:
    """The creation of `log` in `directory`, a path of log.dirs. Call `run` once, in any thread, then LogCreator.finish
    on the loop.
    """

    __slots__ = ("_files", "directory", "error", "log")

    def __init__(self, files: Files, directory: str, log: Log) -> None:
        self.log = log
        self.directory = directory
        self.error: OSError | None = None
        self._files = files

    def run(self) -> None:
        """Syncs the folder and its files; keeps an OSError in `error`."""
        folder = self.log.folder.path
        try:
            self._files.sync_file(f"{folder}/{PARTITION_METADATA}")
            self._files.sync_file(f"{folder}/{LEADER_EPOCH}")
            self._files.sync_directory(folder)
        except OSError as error:
            self.error = error


class DirectorySync:
    """Syncs a directory of log.dirs once for everything created or renamed in it. Call `run` in any thread."""

    __slots__ = ("_files", "error", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self.error: OSError | None = None
        self._files = files

    def run(self) -> None:
        """Keeps an OSError in `error`."""
        try:
            self._files.sync_directory(self.path)
        except OSError as error:
            self.error = error


class LogCreator:
    """Creates the logs of one broker. All methods run on the loop."""

    def __init__(self, registry: LogRegistry, checkpoints: LogCheckpoints, moves: LogMoves, open_new: OpenNew) -> None:
        self._registry = registry
        self._checkpoints = checkpoints
        self._moves = moves
        self._open_new = open_new
        self._begun: dict[TopicPartition, LogCreation] = {}
        self._failed: set[str] = set()
        """The directories in which a log could not be created because of the device."""

    def predecessors_checkpoints(self, partitions: Iterable[TopicPartition]) -> Callable[[], None] | None:
        """If checkpoints still have entries of deleted partitions with these names, returns a function that rewrites
        the checkpoints, in any thread; otherwise None. After a crash, the entries would be applied to the new
        partitions. The function raises OSError.
        """
        directories = self._registry.directories.values()
        if any(directory.names(partition) for partition in partitions for directory in directories):
            return self._checkpoints.take_all()
        return None

    def begin(self, new_log: NewLog) -> LogCreation | None:
        """Creates the partition's log in the directory with the fewest partitions, if possible in one that has not
        failed; returns None if the log exists.

        Raises INCONSISTENT_TOPIC_ID if the log belongs to another topic of the same name, KAFKA_STORAGE_ERROR if it
        cannot be created.
        """
        log = self._registry.logs.get(new_log.topic_partition)
        try:
            if log is None:
                return self._begin(new_log)
            if new_log.topic_id is not None and new_log.topic_id.int:
                log.folder.assign_topic_id(new_log.topic_id)
        except (OSError, CorruptCheckpoint) as error:
            raise _not_created(new_log.topic_partition, error) from error
        return None

    def _begin(self, new_log: NewLog) -> LogCreation:
        topic_partition = new_log.topic_partition
        registry = self._registry
        preferred = self._moves.take_preference(topic_partition)
        directory = self._emptiest() if preferred is None else registry.directories[preferred]
        folder = f"{directory.path}/{topic_partition}"
        self._make_way(new_log)
        write = self.predecessors_checkpoints((topic_partition,))
        if write is not None:
            write()
        try:
            log = self._open_new(folder, topic_partition, new_log.config)
            if new_log.topic_id is not None and new_log.topic_id.int:
                log.folder.assign_topic_id(new_log.topic_id, sync=False)
            if new_log.leader_epoch != NO_EPOCH:
                log.leader_epochs.begin(new_log.leader_epoch)
        except OSError as error:
            self._give_up(directory, topic_partition)
            self._note_failure(directory.path, error)
            raise
        creation = self._begun[topic_partition] = LogCreation(registry.files, directory.path, log)
        return creation

    def _make_way(self, new_log: NewLog) -> None:
        """Removes what earlier attempts have left, and moves strays aside. Raises FileExistsError if a folder may be
        the partition's own, OSError, CorruptCheckpoint.
        """
        registry, topic_partition = self._registry, new_log.topic_partition
        for directory in registry.directories.values():
            folder = f"{directory.path}/{topic_partition}"
            if topic_partition in directory.unfinished:
                registry.discard(folder, topic_partition, 0)
                directory.unfinished.remove(topic_partition)
            elif registry.files.exists(folder):
                is_known = topic_partition in directory.unopened
                if is_known or not (new_log.is_new or self._is_of_another_topic(folder, new_log.topic_id)):
                    raise FileExistsError(17, "the partition may have a log that could not be opened", folder)
                stray = registry.stray_path(directory.path, topic_partition)
                registry.files.rename(folder, stray)
                _log.warning("stray folder moved aside", folder=folder, now=stray)

    def _is_of_another_topic(self, folder: str, topic_id: uuid.UUID | None) -> bool:
        """Not if one of the ids is unknown. Raises CorruptCheckpoint."""
        if topic_id is None or not topic_id.int:
            return False
        return read_partition_metadata(self._registry.files, f"{folder}/{PARTITION_METADATA}") not in (None, topic_id)

    def finish(self, creation: LogCreation) -> Log:
        """Registers the log. Raises KAFKA_STORAGE_ERROR if it could not be synced; the log is then removed."""
        log = creation.log
        del self._begun[log.topic_partition]
        if creation.error is not None:
            log.segments.close_files()
            self._give_up(self._registry.directories[creation.directory], log.topic_partition)
            self._note_failure(creation.directory, creation.error)
            raise _not_created(log.topic_partition, creation.error) from creation.error
        self._registry.logs[log.topic_partition] = log
        return log

    def make(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None, config: LogConfig) -> Log:
        """Begins, syncs and finishes. Raises like `begin`."""
        creation = self.begin(NewLog(topic_partition, topic_id, NO_EPOCH, config))
        if creation is None:
            return self._registry.logs[topic_partition]
        creation.run()
        if creation.error is None:
            directory_sync = DirectorySync(self._registry.files, creation.directory)
            directory_sync.run()
            creation.error = directory_sync.error
        return self.finish(creation)

    def _give_up(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """Removes an unfinished folder, so that it does not block a topic of the same name."""
        registry, folder = self._registry, f"{directory.path}/{topic_partition}"
        if registry.files.exists(folder) and not registry.give_up(
            folder, topic_partition, "unfinished folder not removed", 0
        ):
            directory.unfinished.add(topic_partition)

    def _emptiest(self) -> LogDirectory:
        directories = self._registry.directories
        if len(directories) == 1:
            return next(iter(directories.values()))
        counts = dict.fromkeys(directories, 0)
        failed = set(self._failed)
        for log in self._registry.logs.values():
            directory = self._registry.directory_of(log)
            counts[directory] += 1
            if log.folder.failure is not None:
                failed.add(directory)
        for creation in self._begun.values():
            counts[creation.directory] += 1
        return directories[min(counts, key=lambda path: (path in failed, counts[path]))]

    def _note_failure(self, directory: str, error: OSError) -> None:
        if error.errno in DEVICE_ERRORS:
            self._failed.add(directory)


def _not_created(topic_partition: TopicPartition, error: Exception) -> ProtocolError:
    _log.error("log not created", partition=str(topic_partition), reason=str(error))
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic_partition} cannot be created: {reason}")
