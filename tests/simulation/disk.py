"""The disk of one machine: memory that forgets what was not synced when the power goes, is full, or fails.

    disk.fail_sync = disk.fail_write = DISK_ERROR    every sync or write fails until it is None again
    disk.room = 0                                    full, until it is None again
    disk = disk.crash(source)                        after a power cut: unsynced writes are there, lost or torn
    disk.end_of_process()                            after kill -9: everything is there, and nothing is locked
    disk.changes_left = 3                            at the fourth change of names from now on, the process ends
    disk.traps = [trap]                              trap(operation, path) is called before each change, and may raise

Threads that wait for the disk take the time that `ThreadTimes` draws; a slow disk multiplies it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any, NoReturn, Self

from odradek.protocol.records import iter_batches
from odradek.storage.file_names import LOG_SUFFIX
from tests.memory_files import ForgetfulFiles, Inode
from tests.simulation.loop import NODE, ProcessEnded

DISK_ERROR = OSError(errno.EIO, os.strerror(errno.EIO))


class SimulatedDisk(ForgetfulFiles):
    """`on_sync(path)` is called for every sync of a file: the trace. `on_last_change()` ends the process that uses the
    disk, in the midst of a callback. What this callback goes on to do to files has no effect."""

    on_sync: Callable[[str], object] | None = None
    on_last_change: Callable[[], object] | None = None
    changes_left: int | None = None
    warms_up = True
    _has_ended = False

    def __init__(self, room: int | None = None) -> None:
        super().__init__(room)
        self.traps: list[Callable[[str, str], object]] = []
        self.lost: set[str] = set()
        """The files of which the process that uses the disk knows that a sync has failed, and lost pages."""
        self.stuck: set[str] = set()
        """The files and directories that could not be renamed when a process tried to, nor were since."""

    def crash(self, source: Random | None = None) -> Self:
        """See ForgetfulFiles."""
        after = super().crash(source)
        after.stuck = self.stuck
        return after

    def put(self, path: str, content: bytes) -> None:
        """An operator puts a file here, whatever state the disk is in."""
        self.names[path] = Inode(content, content)

    def begin(self, operation: str, path: str) -> None:
        """See ForgetfulFiles."""
        super().begin(operation, path)
        for trap in self.traps:
            trap(operation, path)

    def count_sync(self, path: str) -> None:
        """See ForgetfulFiles."""
        if self.on_sync is not None:
            self.on_sync(path)
        if self.fail_sync is not None:
            if self.failed_syncs_lose_pages:
                self.lost.add(path)
            raise self.fail_sync

    def rename(self, source: str, target: str) -> None:
        """See ForgetfulFiles."""
        try:
            super().rename(source, target)
        except OSError:
            self.stuck.add(source)
            raise
        self.stuck.discard(source)

    def start_of_process(self) -> None:
        """A process begins to use the disk. Other processes have used the page cache meanwhile, and a machine that has
        lost pages was restarted: what the cache has of them, a process could not tell from what is on the disk."""
        self.drop_cache()
        self.cold = {path for path in self.names if path.endswith(LOG_SUFFIX)}
        self.changes_left = None
        self.lost.clear()
        if self._has_ended:
            self._has_ended = False
            self.fail_sync = self.fail_truncate = self.fail_write = None

    def _change(self, directory: str, added: dict[str, Inode | None], removed: list[str]) -> None:
        if self.changes_left == 0:
            self.end_process()
        if self.changes_left is not None:
            self.changes_left -= 1
        super()._change(directory, added, removed)

    def end_process(self) -> NoReturn:
        """Ends the process that uses the disk, in the midst of a callback."""
        ended = ProcessEnded()
        if not self._has_ended and self.on_last_change is not None:
            self._has_ended = True
            self.fail_sync = self.fail_truncate = self.fail_write = ended
            self.on_last_change()
        raise ended


class ThreadTimes:
    """How long threads take: SimulatedLoop's `thread_delays`. `slowness` by name of the node."""

    def __init__(self, source: Random, *, mean_s: float = 0.001) -> None:
        self.slowness: dict[str, float] = {}
        self._source = source
        self._mean_s = mean_s

    def __call__(self, function: Callable[..., Any]) -> tuple[float, float]:
        """See ThreadDelays."""
        node = NODE.get()
        seconds = self._source.expovariate(1 / self._mean_s) * self.slowness.get(node.name if node else "", 1.0)
        return seconds * 0.75, seconds * 0.25


def kept_of_log(disk: SimulatedDisk, folder: str, end_offset: int) -> int:
    """Up to which offset the content of a log that ends at `end_offset` would certainly be kept in a power cut."""
    for path in sorted(name for name in disk.names.inside(folder) if name.endswith(LOG_SUFFIX)):
        inode = disk.names[path]
        assert inode is not None, "it is a file"
        changed_from, kept = inode.changed_from, min(len(inode.synced), len(inode.data))
        if inode.data[changed_from:kept] != inode.synced[changed_from:kept]:
            kept = changed_from
        if kept < len(inode.data):
            return int.from_bytes(inode.data[kept : kept + 8], "big")
    return end_offset


def lost_of_log(disk: SimulatedDisk, folder: str) -> int | None:
    """From which offset on the disk lacks batches of a log that a failed sync has lost, as its broker knows."""
    for path in sorted(name for name in disk.lost if name.startswith(f"{folder}/") and name.endswith(LOG_SUFFIX)):
        inode = disk.names.get(path)
        if inode is not None:
            content, on_disk = bytes(inode.data), inode.on_the_disk()
            for position, header in iter_batches(content):
                end = position + header.size_in_bytes
                if content[position:end] != on_disk[position:end]:
                    return header.base_offset
    return None
