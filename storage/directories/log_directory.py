"""One directory of log.dirs: its lock, its checkpoints and its partition folders."""

import os
from collections.abc import Callable
from threading import Lock

import structlog

from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.checkpoint import (
    CLEAN_SHUTDOWN,
    CLEAN_SHUTDOWN_CONTENT,
    CLEANER_OFFSET,
    HIGH_WATERMARK,
    LOG_START_OFFSET,
    RECOVERY_POINT,
    CorruptCheckpoint,
    read_offsets,
    write_offsets,
)
from odradek.storage.directories.meta_properties import MetaProperties, read_meta_properties
from odradek.storage.file_names import is_deleted_folder, parse_folder, parse_future_folder
from odradek.storage.files import DirectoryLock, Files, is_full

_log = structlog.get_logger(__name__)

LOCK = ".lock"


class DirectoryLocked(Exception):
    """The directory is used by another process, or by another broker in this process."""


class LogDirectory:
    """`path` has no trailing slash. `clean`: the last shutdown was clean; known after `begin_load`."""

    __slots__ = (
        "_checkpoint_numbers",
        "_checkpointed",
        "_checkpointing",
        "_files",
        "_lock",
        "clean",
        "cleaner_offsets",
        "high_watermarks",
        "log_start_offsets",
        "meta",
        "path",
        "recovery_points",
        "recovery_points_known",
        "unfinished",
        "unopened",
    )

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._lock: DirectoryLock | None = None
        self.meta: MetaProperties | None = None
        self.clean = False
        self.recovery_points: dict[TopicPartition, int] = {}
        self.recovery_points_known = False
        self.log_start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.unopened: dict[TopicPartition, str] = {}
        """Partitions whose logs could not be opened, with the reason. Their checkpoint entries are kept."""
        self.unfinished: set[TopicPartition] = set()
        """Partitions whose logs could not be created, nor what there was of their folders be removed."""
        self._checkpointed: dict[str, dict[TopicPartition, int]] = {}
        self._checkpoint_numbers: dict[str, int] = {}
        self._checkpointing = Lock()

    def open(self) -> None:
        """Creates the directory if missing, locks it, removes other users' permissions, and reads meta.properties.
        Raises OSError, DirectoryLocked, MetaPropertiesError.
        """
        self._make()
        self._lock = self._files.lock(f"{self.path}/{LOCK}")
        if self._lock is None:
            raise DirectoryLocked(f"{self.path} is in use by another broker (its {LOCK} is held)")
        try:
            self._make_private()
            self.meta = read_meta_properties(self._files, self.path)
        except BaseException:
            self.release()
            raise

    def _make(self) -> None:
        """Creates the directory and its missing parents, and makes their names durable."""
        made = []
        path = os.path.abspath(self.path)
        while not self._files.exists(path):
            made.append(path)
            path = os.path.dirname(path)
        self._files.make_directories(self.path)
        for path in made:
            self._files.sync_directory(os.path.dirname(path))

    def _make_private(self) -> None:
        """Restricts the directory and the files in it. (Partition folders are then out of reach for other users.)"""
        inside = (f"{self.path}/{name}" for name in self._files.list_directory(self.path))
        tightened, reasons = [], []
        for path in [self.path, *(path for path in inside if not self._files.is_directory(path))]:
            try:
                if self._files.make_private(path):
                    tightened.append(path)
            except OSError as error:
                reasons.append(str(error))
        if tightened:
            _log.info("permissions tightened", directory=self.path, paths=tightened)
        if reasons:
            _log.warning("permissions not tightened", directory=self.path, reasons=reasons)

    def begin_load(self) -> None:
        """Reads the checkpoints and removes the marker of a clean shutdown, so that a crash from now on is recognized.
        Raises OSError.
        """
        checkpoint = f"{self.path}/{RECOVERY_POINT}"
        if not self._files.exists(checkpoint) and not self.partitions():
            self._begin_recovery_points(checkpoint)
        marker = f"{self.path}/{CLEAN_SHUTDOWN}"
        self.clean = self._files.exists(marker)
        if self.clean:
            self._files.remove(marker)
            self._files.sync_directory(self.path)
        self.recovery_points = self._read(RECOVERY_POINT)
        self.recovery_points_known = self._files.exists(checkpoint) and self._files.size(checkpoint) > 0
        self.log_start_offsets = self._read(LOG_START_OFFSET)
        self.high_watermarks = self._read(HIGH_WATERMARK)
        self.cleaner_offsets = self._read(CLEANER_OFFSET)

    def _begin_recovery_points(self, checkpoint: str) -> None:
        """Writes an empty checkpoint: from now on, a partition that it does not list is new. Raises OSError, unless the
        disk is full.
        """
        try:
            write_offsets(self._files, checkpoint, {})
        except OSError as error:
            if not is_full(error):
                raise
            _log.warning("checkpoint not written", reason=str(error))

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            offsets = read_offsets(self._files, f"{self.path}/{name}")
            if offsets:
                self._checkpointed[name] = dict(offsets)
            return offsets
        except CorruptCheckpoint as error:
            _log.warning("checkpoint unusable", reason=str(error))
            self._files.remove(f"{self.path}/{name}")
            return {}

    def names(self, topic_partition: TopicPartition) -> bool:
        """Whether a checkpoint on the disk has an entry for the partition."""
        with self._checkpointing:
            return any(topic_partition in offsets for offsets in self._checkpointed.values())

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions with a folder here. Other folders are left alone; see `deleted` and `futures`."""
        found = []
        for name in self._folders(_may_be_of_partition):
            partition = parse_folder(name)
            if partition is not None:
                found.append(partition)
            elif not is_deleted_folder(name) and parse_future_folder(name) is None:
                _log.warning(
                    "folder ignored", directory=self.path, folder=name, reason="its name is not that of a partition"
                )
        return found

    def futures(self) -> list[str]:
        """Returns the names of the future folders of logs that were being moved here."""
        return self._folders(lambda name: parse_future_folder(name) is not None)

    def deleted(self) -> list[str]:
        """Returns the paths of folders that wait for their removal."""
        return [f"{self.path}/{name}" for name in self._folders(is_deleted_folder)]

    def _folders(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """Returns the names of the folders whose names are wanted."""
        names = filter(is_wanted, self._files.list_directory(self.path))
        return [name for name in names if self._files.is_directory(f"{self.path}/{name}")]

    def checkpoint(self, name: str, offsets: dict[TopicPartition, int], number: int) -> None:
        """Replaces a checkpoint, unless its content is the same or was collected later. Raises OSError.

        May run in several threads at once; `number` increases with every collection.
        """
        with self._checkpointing:
            offsets = self._with_unopened(name, offsets)
            if number > self._checkpoint_numbers.get(name, -1) and self._checkpointed.get(name) != offsets:
                write_offsets(self._files, f"{self.path}/{name}", offsets)
                self._checkpointed[name] = offsets
                self._checkpoint_numbers[name] = number

    def has_checkpoint(self, name: str, offsets: dict[TopicPartition, int]) -> bool:
        """Whether `checkpoint` would find the same content."""
        return self._checkpointed.get(name) == self._with_unopened(name, offsets)

    def _with_unopened(self, name: str, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Adds the known offsets of the logs that could not be opened."""
        if not self.unopened:
            return offsets
        known = self._checkpointed.get(name, {})
        return {**{partition: known[partition] for partition in self.unopened if partition in known}, **offsets}

    def mark_clean(self) -> None:
        self._files.replace_file(f"{self.path}/{CLEAN_SHUTDOWN}", CLEAN_SHUTDOWN_CONTENT)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _may_be_of_partition(name: str) -> bool:
    return "-" in name
