"""A broker's logs, their directories in log.dirs, and unique names for new folders."""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Iterable

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.directories.future_replica import LogMove
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.file_names import deleted_folder, stray_folder
from odradek.storage.files import Files
from odradek.storage.log.log import Log
from odradek.storage.removal import Removal, Removals
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class LogRegistry:
    """`directories` by path; `logs` and their `moves` in progress by partition."""

    def __init__(self, files: Files, paths: Iterable[str], clock: Clock, random_source: random.Random) -> None:
        self.files = files
        self.clock = clock
        self.directories = {path: LogDirectory(files, path) for path in (_trimmed(path) for path in paths)}
        self.logs: dict[TopicPartition, Log] = {}
        self.moves: dict[TopicPartition, LogMove] = {}
        self._random = random_source
        self._removals = Removals(clock)

    @staticmethod
    def directory_of(log: Log) -> str:
        """Returns the path of the directory of log.dirs that contains the log."""
        return log.folder.path.rpartition("/")[0]

    def unique(self) -> uuid.UUID:
        """Returns an id that makes a folder's name unique."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def stray_path(self, directory: str, topic_partition: TopicPartition) -> str:
        """Returns a path for a folder of an earlier partition of this name, which stays for the operator."""
        return f"{directory}/{stray_folder(topic_partition, self.unique())}"

    # ---- removing folders

    def deleted_path(self, directory: str, topic_partition: TopicPartition) -> str:
        """Returns a path for a folder of the partition that will be removed."""
        return f"{directory}/{deleted_folder(topic_partition, self.unique())}"

    def discard(self, folder: str, topic_partition: TopicPartition, delay_ms: int) -> None:
        """Renames a folder of the partition and schedules its removal. A rename works without free disk space or free
        descriptors, which may be what was missing. Raises OSError.
        """
        target = self.deleted_path(folder.rpartition("/")[0], topic_partition)
        self.files.rename(folder, target)
        self.remove_later(target, delay_ms)

    def give_up(self, folder: str, topic_partition: TopicPartition, event: str, delay_ms: int) -> bool:
        """Discards a folder. Returns False if this fails: `event` is logged and the folder stays."""
        try:
            self.discard(folder, topic_partition, delay_ms)
        except OSError as error:
            _log.error(event, folder=folder, reason=str(error))
            return False
        return True

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Schedules the removal of an unreferenced folder, so that its readers can finish."""
        self._removals.add(path, delay_ms)

    def take_removals(self, *, everything: bool = False) -> Removal | None:
        """Returns the removal of the files and folders that are due; with `everything`, of all that wait."""
        now_ms = self.clock.now_ms()
        due = self._removals.take_due(now_ms, everything=everything)
        for log in self.logs.values():
            if log.folder.removals.waiting:
                due += log.folder.removals.take_due(now_ms, everything=everything)
        return Removal(self.files, due) if due else None

    def next_removal_ms(self) -> float:
        """Returns when the next file or folder is due."""
        waiting = [self._removals, *(log.folder.removals for log in self.logs.values())]
        return min((due_ms for removals in waiting for due_ms, _ in removals.waiting), default=math.inf)


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"
