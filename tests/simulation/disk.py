"""The disk of one machine: memory that forgets what was not synced when the power goes, is full, or fails.

    disk.fail_sync = disk.fail_write = DISK_ERROR    every sync or write fails until it is None again
    disk.room = 0                                    full, until it is None again
    disk = disk.crash(source)                        after a power cut: unsynced writes are there, lost or torn
    disk.end_of_process()                            after kill -9: everything is there, and nothing is locked

Threads that wait for the disk take the time that `ThreadTimes` draws; a slow disk multiplies it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from random import Random
from typing import Any

from odradek.storage.file_names import LOG_SUFFIX
from tests.memory_files import ForgetfulFiles, Inode
from tests.simulation.loop import NODE

DISK_ERROR = OSError(errno.EIO, os.strerror(errno.EIO))


class SimulatedDisk(ForgetfulFiles):
    """`on_sync(path)` is called for every sync of a file: the trace."""

    on_sync: Callable[[str], object] | None = None

    def put(self, path: str, content: bytes) -> None:
        """An operator puts a file here, whatever state the disk is in."""
        self.names[path] = Inode(content, content)

    def count_sync(self, path: str) -> None:
        """See ForgetfulFiles."""
        if self.on_sync is not None:
            self.on_sync(path)
        if self.fail_sync is not None:
            raise self.fail_sync


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
        changed_from, kept = inode.changed_from, len(inode.synced)
        if inode.data[changed_from:kept] != inode.synced[changed_from:]:
            kept = changed_from
        if kept < len(inode.data):
            return int.from_bytes(inode.data[kept : kept + 8], "big")
    return end_offset
