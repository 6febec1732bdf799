"""The moves of a broker's logs between the directories of log.dirs (Kafka's LogManager: future logs, preferred
directories).

Life of a move: `begin` makes the future folder, LogMove fills it, `finish` puts it in the log's place. The swap is
crash-safe by its order, each step durable before the next:

    1. the future folder holds all that the log holds (LogMove.copy_rest), the target's checkpoints name the log;
    2. the log's old folder is renamed to `-delete`;
    3. the future folder is renamed to the partition's name.

So a start that finds a `-future` folder beside the partition's own throws it away and the move begins anew
(`interrupted`); one that finds it alone was interrupted between 2 and 3 and finishes the swap. There is never a
moment at which two folders have the partition's name, as there is in Kafka, which then has to be told by hand which
one counts.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log import Log
from odradek.storage.log_checkpoints import LogCheckpoints
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_move import LogMove
from odradek.storage.log_names import future_folder, parse_future_folder
from odradek.storage.log_registry import LogRegistry

_log = structlog.get_logger(__name__)

MAX_PREFERENCES = 10_000


class LogMoves:
    """`interrupted`: where the moves went that a stop has cut short; whoever takes one up removes it. A folder that is
    given up is removed after `delay_ms()`.
    """

    def __init__(self, registry: LogRegistry, checkpoints: LogCheckpoints, delay_ms: Callable[[], int]) -> None:
        self._registry = registry
        self._checkpoints = checkpoints
        self._delay_ms = delay_ms
        self._files = registry.files
        self._under_way = registry.moves
        self._preferred: dict[TopicPartition, str] = {}
        self.interrupted: dict[TopicPartition, str] = {}
        self.completed: set[TopicPartition] = set()

    def get(self, topic_partition: TopicPartition) -> LogMove | None:
        return self._under_way.get(topic_partition)

    def under_way(self) -> list[LogMove]:
        """All of them."""
        return list(self._under_way.values())

    # ---- where a log that is not there yet shall be made

    def prefer(self, topic_partition: TopicPartition, directory: str) -> None:
        """The partition's log, once it is made here, is made in this directory; the oldest wishes are forgotten."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = directory
        if len(self._preferred) > MAX_PREFERENCES:
            del self._preferred[next(iter(self._preferred))]

    def take_preference(self, topic_partition: TopicPartition) -> str | None:
        """The directory, if somebody has named one; it counts once."""
        return self._preferred.pop(topic_partition, None)

    # ---- a move

    def begin(self, topic_partition: TopicPartition, directory: str) -> LogMove:
        """Makes the future folder. Raises OSError."""
        folder = f"{directory}/{future_folder(topic_partition, self._registry.unique())}"
        self._files.make_directories(folder)
        self._files.sync_directory(directory)
        move = LogMove(self._files, self._registry.logs[topic_partition], directory, folder)
        self._under_way[topic_partition] = move
        return move

    def abandon(self, topic_partition: TopicPartition) -> None:
        """Ends a move, if there is one, and takes its folder away."""
        move = self._under_way.pop(topic_partition, None)
        self.interrupted.pop(topic_partition, None)
        if move is not None:
            move.abandoned = True
            self._discard(move.folder, topic_partition)

    def _discard(self, folder: str, topic_partition: TopicPartition) -> None:
        self._registry.give_up(folder, topic_partition, "future folder not removed", self._delay_ms())

    def finish(self, move: LogMove) -> bool:
        """Puts the copy in the log's place; False when there is still too much to copy, or the cleaner has yet to give
        the log up. Raises OSError, and then the log is where it was.
        """
        if move.log.state.being_cleaned or not move.copy_rest():
            return False
        registry, log, files = self._registry, move.log, self._files
        source, source_directory = log.directory, registry.directory_of(log)
        target = f"{move.directory}/{log.topic_partition}"
        doomed = registry.deleted_path(source_directory, log.topic_partition)
        if files.exists(target):
            raise FileExistsError(errno.EEXIST, "a folder that is not this partition's has its name", target)
        self._checkpoints.write_all()  # those of the target know of the log before its folder is there
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
        """After the swap, which stands whatever happens here: at worst a crash finds it to be finished once more."""
        try:
            self._files.sync_directory(directory)
            self._checkpoints.write_all()
        except OSError as error:
            _log.error("move not durable", partition=str(log.topic_partition), directory=directory, reason=str(error))

    # ---- the start

    def put_in_order(self, directories: list[LogDirectory]) -> None:
        """Before the logs are opened: no future folder is left. Raises OSError."""
        present = {partition for directory in directories for partition in directory.partitions()}
        for directory in directories:
            for name in directory.futures():
                partition = parse_future_folder(name)
                assert partition is not None, "that is what makes it one"
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
