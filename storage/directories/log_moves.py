"""The moves of a broker's logs between the directories of log.dirs (Kafka's LogManager: future logs, preferred
directories).

Life of a move: `begin` creates the future folder, LogMove fills it, `finish` replaces the log with it. The swap is
crash-safe by its order, each step durable before the next:

    1. the future folder has everything that the log has (LogMove.copy_rest), and the target's checkpoints list the log;
    2. the log's old folder is renamed to `-delete`;
    3. the future folder is renamed to the partition's name.

If a start finds a `-future` folder beside the partition's own folder, it discards the future folder and the move starts
again (`interrupted`). If it finds only the `-future` folder, the swap was interrupted between 2 and 3, and the start
completes it. At no time do two folders have the partition's name. In Kafka this can happen, and an operator must then
choose a folder.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.future_replica import LogMove
from odradek.storage.directories.log_checkpoints import LogCheckpoints
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.registry import LogRegistry
from odradek.storage.file_names import future_folder, parse_future_folder
from odradek.storage.log.log import Log

_log = structlog.get_logger(__name__)

MAX_PREFERENCES = 10_000


class LogMoves:
    """`interrupted`: the targets of moves that a shutdown interrupted; the caller that resumes a move removes its
    entry. A folder that is given up is removed after `delay_ms()`.
    """

    def __init__(self, registry: LogRegistry, checkpoints: LogCheckpoints, delay_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._checkpoints = checkpoints
        self._delay_ms = delay_ms
        self._files = registry.files
        self._under_way = registry.moves
        self._preferred: dict[TopicPartition, str] = {}
        self._left: dict[TopicPartition, list[str]] = {}
        """The future folders of former moves that could not be removed yet."""
        self.interrupted: dict[TopicPartition, str] = {}
        self.completed: set[TopicPartition] = set()

    def get(self, topic_partition: TopicPartition) -> LogMove | None:
        return self._under_way.get(topic_partition)

    def under_way(self) -> list[LogMove]:
        """Returns all moves in progress."""
        return list(self._under_way.values())

    # ---- where a new log is created

    def prefer(self, topic_partition: TopicPartition, directory: str) -> None:
        """Sets the directory for the partition's log when it is created. The oldest preferences are dropped."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > MAX_PREFERENCES:
            del self._preferred[next(iter(self._preferred))]

    def take_preference(self, topic_partition: TopicPartition) -> str | None:
        """Returns the preferred directory, or None, and drops the preference."""
        return self._preferred.pop(topic_partition, None)

    # ---- a move

    def begin(self, topic_partition: TopicPartition, directory: str) -> LogMove:
        """Creates the future folder. Raises OSError."""
        folder = f"{directory}/{future_folder(topic_partition, self._registry.unique())}"
        self._files.make_directories(folder)
        self._files.sync_directory(directory)
        move = LogMove(self._files, self._registry.logs[topic_partition], directory, folder)
        self._under_way[topic_partition] = move
        return move

    def abandon(self, topic_partition: TopicPartition) -> None:
        """Cancels the partition's move, if there is one, and removes its folder."""
        move = self._under_way.pop(topic_partition, None)
        self.interrupted.pop(topic_partition, None)
        if move is not None:
            move.abandoned = True
            self._discard(move.folder, topic_partition)

    def _discard(self, folder: str, topic_partition: TopicPartition) -> None:
        if not self._registry.give_up(folder, topic_partition, "future folder not removed", self._delay_ms()):
            self._left.setdefault(topic_partition, []).append(folder)

    def remove_futures(self, topic_partition: TopicPartition) -> None:
        """Cancels the partition's move and durably removes all its future folders. Call before the partition's own
        folder gets another name: a future folder without it is a swap that the next start completes. Raises OSError.
        """
        move = self._under_way.get(topic_partition)
        self.abandon(topic_partition)
        left = self._left.get(topic_partition, [])
        changed = {folder.rpartition("/")[0] for folder in left}
        if move is not None:
            changed.add(move.directory)
        while left:
            self._registry.discard(left[-1], topic_partition, self._delay_ms())
            left.pop()
        self._left.pop(topic_partition, None)
        for directory in sorted(changed):
            self._files.sync_directory(directory)

    def finish(self, move: LogMove) -> bool:
        """Replaces the log with the copy. Returns False if there is still too much to copy, or if the log is still
        being cleaned or truncated. Raises OSError; the log then stays where it was.
        """
        state = move.log.state
        if state.being_cleaned or state.truncating_to is not None or not move.copy_rest():
            return False
        registry, log, files = self._registry, move.log, self._files
        source, source_directory = log.folder.path, registry.directory_of(log)
        target = f"{move.directory}/{log.topic_partition}"
        doomed = registry.deleted_path(source_directory, log.topic_partition)
        if files.exists(target):
            raise FileExistsError(errno.EEXIST, "another folder already has the partition's name", target)
        self._checkpoints.write_all()  # the target's checkpoints list the log before its folder is there
        files.rename(source, doomed)
        try:
            files.sync_directory(source_directory)
            files.rename(move.folder, target)
        except OSError:
            files.rename(doomed, source)
            raise
        log.relocate(target)
        del self._under_way[log.topic_partition]
        registry.remove_later(doomed, log.config.file_delete_delay_ms)
        self._make_durable(log, move.directory)
        _log.info("log moved", partition=str(log.topic_partition), source=source_directory, target=move.directory)
        return True

    def _make_durable(self, log: Log, directory: str) -> None:
        """Syncs after the swap. A failure does not undo it: at worst a start after a crash completes it again."""
        try:
            self._files.sync_directory(directory)
            self._checkpoints.write_all()
        except OSError as error:
            _log.error("move not durable", partition=str(log.topic_partition), directory=directory, reason=str(error))

    # ---- starting

    def put_in_order(self, directories: list[LogDirectory]) -> None:
        """Before the logs are opened: removes or completes all future folders. Raises OSError."""
        present = {partition for directory in directories for partition in directory.partitions()}
        for directory in directories:
            for name in directory.futures():
                partition = parse_future_folder(name)
                assert partition is not None, "futures() returns only such names"
                if partition in present:
                    self._discard(f"{directory.path}/{name}", partition)
                    self.interrupted[partition] = directory.path
                else:
                    self._complete(directory, name, partition)
                    present.add(partition)

    def _complete(self, directory: LogDirectory, name: str, partition: TopicPartition) -> None:
        _log.warning("interrupted move completed", partition=str(partition), directory=directory.path)
        self._files.rename(f"{directory.path}/{name}", f"{directory.path}/{partition}")
        self._files.sync_directory(directory.path)
        self.completed.add(partition)
