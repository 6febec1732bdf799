"""Which logs a broker has, in which directories of log.dirs, and what it may call a new folder."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.files import Files
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_move import LogMove
from odradek.storage.log_names import deleted_folder
from odradek.storage.removal import Removal, Removals
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class LogRegistry:
    """`directories` by path; `logs` and their `moves` under way by partition."""

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
        """The path of the directory of log.dirs that holds the log."""
        return log.directory.rpartition("/")[0]

    def unique(self) -> uuid.UUID:
        """What makes the name of a folder the only one."""
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    # ---- folders that go

    def deleted_path(self, directory: str, topic_partition: TopicPartition) -> str:
        """A path for a folder of the partition that is to be removed."""
        return f"{directory}/{deleted_folder(topic_partition, self.unique())}"

    def give_up(self, folder: str, topic_partition: TopicPartition, event: str, delay_ms: int) -> None:
        """Renames a folder of the partition, to be removed later. A rename needs neither room nor a descriptor, which
        may be what was missing. If it fails, the `event` is logged and the folder stays.
        """
        target = self.deleted_path(folder.rpartition("/")[0], topic_partition)
        try:
            self.files.rename(folder, target)
        except OSError as error:
            _log.error(event, folder=folder, reason=str(error))
            return
        self.remove_later(target, delay_ms)

    def remove_later(self, path: str, delay_ms: int) -> None:
        """A folder that nothing refers to any more; who reads it may finish."""
        self._removals.add(path, delay_ms)

    def take_removals(self, *, everything: bool = False) -> Removal | None:
        """The files and folders that are due; all that wait, with `everything`."""
        now_ms = self.clock.now_ms()
        due = self._removals.take_due(now_ms, everything=everything)
        for log in self.logs.values():
            if log.removals:
                due += log.folder.removals.take_due(now_ms, everything=everything)
        return Removal(self.files, due) if due else None


def _trimmed(path: str) -> str:
    return path.rstrip("/") or "/"
