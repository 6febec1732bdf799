"""The disk of a broker with faults: full, slow to sync, or failing.

    full        writes fail with ENOSPC, after `after_bytes` more bytes
    slow sync   each fsync takes `delay` longer, in the thread that syncs, or until the fault is released. It fails with
                EIO if that is not done within MOST_HELD_S
    fail sync   fsync fails with EIO
    fail read   reads fail with EIO

A fault selects by topic and partition, or by a pattern of paths, and is hit once for each access. Compaction of large
logs runs in a process of its own, which knows no faults.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath

from odradek.storage.file_slice import FileSlice
from odradek.storage.files import Buffer, File, OsFile
from odradek.storage.linked_files import LinkingFiles
from odradek.testing.faults.arguments import FAIL_READ, FAIL_SYNC, FULL, SLOW_SYNC
from odradek.testing.faults.fault import Fault

MOST_HELD_S = 120.0
"""What syncs is waited for when a broker stops, is reset or starts again, which must not hang."""


class DiskFault:
    """What a fault of a disk needs beside its counts."""

    def __init__(self, fault: Fault, path: str | None, after_bytes: int) -> None:
        self.fault = fault
        self.kind = fault.action.disk
        self._path = path
        self._left = after_bytes
        self._released = threading.Event()

    def is_for(self, kind: str, path: str, broker: int | None) -> bool:
        """Whether an access to a path is selected. `broker` is None before the broker knows its id."""
        selector = self.fault.selector
        return (
            self.kind == kind
            and (selector.broker is None or broker in (None, selector.broker))
            and (self._path is None or fnmatchcase(path, f"*{self._path}"))
            and _is_of_topic(path, selector.items.topic, selector.items.partition)
        )

    def has_room(self, size: int) -> bool:
        """Whether a full disk takes these bytes still."""
        self._left -= size
        return self._left >= 0

    def wait(self) -> None:
        """Waits until the delay is over or the fault is released, in the thread that syncs. Raises OSError if nobody
        releases it for MOST_HELD_S.
        """
        delay_s, go_on = self.fault.action.delay, self._released.set
        self.fault.hold(go_on, None)
        try:
            if not self._released.wait(delay_s or MOST_HELD_S) and not delay_s:
                raise OSError(errno.EIO, f"{self.fault!r} was not released for {MOST_HELD_S:g} s")
        finally:
            self.fault.let_go(go_on)


class FaultyFiles(LinkingFiles):
    """The disk of one broker. `faults` returns the faults of disks; `broker` the id of the broker."""

    def __init__(
        self,
        faults: Callable[[], Sequence[DiskFault]],
        broker: Callable[[], int | None],
        *,
        is_temporary: bool = False,
    ) -> None:
        super().__init__(is_temporary=is_temporary)
        self._faults = faults
        self._broker = broker

    @property
    def waits_for_disk(self) -> bool:
        """A fault may make each sync slow."""
        return super().waits_for_disk or bool(self._faults())

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        if create or exclusive:
            self.grow(path, 0)
        opened = super().open(path, create=create, exclusive=exclusive)
        assert isinstance(opened, OsFile)
        return FaultyFile(opened, self)

    def read_file(self, path: str) -> bytes:
        self.check(FAIL_READ, path)
        return super().read_file(path)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self.grow(path, len(data))
        if sync:
            self.sync(path)
        super().replace_file(path, data, sync=sync)

    def sync_file(self, path: str) -> None:
        self.sync(path)
        super().sync_file(path)

    # --- the faults ---------------------------------------------------------------------------------------------

    def hit(self, kind: str, path: str, size: int = 0) -> DiskFault | None:
        """Returns the fault that an access to a file meets, and counts it."""
        for each in self._faults():
            if not each.is_for(kind, path, self._broker()) or (kind == FULL and each.has_room(size)):
                continue
            if each.fault.takes():
                each.fault.count_hit()
                return each
        return None

    def check(self, kind: str, path: str) -> None:
        """Raises OSError if an access to a file fails."""
        if self._faults() and self.hit(kind, path) is not None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def grow(self, path: str, size: int) -> None:
        """Raises OSError if the disk is full."""
        if self._faults() and self.hit(FULL, path, size) is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def sync(self, path: str) -> None:
        """Waits if syncing is slow. Raises OSError if it fails."""
        if not self._faults():
            return
        slow = self.hit(SLOW_SYNC, path)
        if slow is not None:
            slow.wait()
        self.check(FAIL_SYNC, path)


class FaultyFile:
    """A file of such a disk."""

    __slots__ = ("_file", "_files", "path")

    def __init__(self, file: OsFile, files: FaultyFiles) -> None:
        self.path = file.path
        self._file = file
        self._files = files

    def read(self, position: int, length: int) -> Buffer:
        self._files.check(FAIL_READ, self.path)
        return self._file.read(position, length)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        self._files.check(FAIL_READ, self.path)
        return self._file.read_cached(position, length)

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        self._files.grow(self.path, sum(map(len, parts)))
        return self._file.write(parts, position)

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._files.grow(self.path, size)
        self._file.allocate(size)

    def size(self) -> int:
        return self._file.size()

    def modified_ms(self) -> int:
        return self._file.modified_ms()

    def sync(self) -> None:
        self._files.sync(self.path)
        self._file.sync()

    def duplicate(self) -> FaultyFile:
        return FaultyFile(self._file.duplicate(), self._files)

    def slice(self, position: int, length: int) -> FileSlice | None:
        self._files.check(FAIL_READ, self.path)
        return self._file.slice(position, length)

    def close(self) -> None:
        self._file.close()


def _is_of_topic(path: str, topic: str | None, partition: int | None) -> bool:
    """Whether a path is in the folder of a partition: `TOPIC-PARTITION`, with an ending once it is renamed."""
    if topic is None:
        return True
    for part in PurePath(path).parts:
        name = part.partition(".")[0] if "." not in topic else part
        folder, _, number = name.rpartition("-")
        if folder == topic and number.isdigit() and partition in (None, int(number)):
            return True
    return False
