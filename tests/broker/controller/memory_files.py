"""A disk in memory for the metadata store's tests: full, refusing to sync, and forgetting what was not synced."""

from __future__ import annotations

import errno
from collections.abc import Sequence

Buffer = bytes | bytearray | memoryview


class MemoryFile:
    def __init__(self, disk: MemoryFiles, path: str) -> None:
        self.path = path
        self._disk = disk

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        data = b"".join(parts)
        content = self._disk.contents[self.path]
        room = self._disk.room_left()
        self._disk.contents[self.path] = content[:position] + data[: max(0, room)]
        if room < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return len(data)

    def truncate(self, size: int) -> None:
        if self._disk.refuses_truncation:
            raise OSError(errno.EIO, "Input/output error")
        self._disk.contents[self.path] = self._disk.contents[self.path][:size]

    def sync(self) -> None:
        if self._disk.refuses_sync:
            raise OSError(errno.EIO, "Input/output error")
        self._disk.durable[self.path] = self._disk.contents[self.path]
        self._disk.syncs += 1

    def close(self) -> None:
        pass


class MemoryFiles:
    """`contents` is what is read, `durable` what is left after `crash()`. `capacity` is in bytes over all files."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.durable: dict[str, bytes] = {}
        self.capacity = 1 << 40
        self.refuses_sync = False
        self.refuses_truncation = False
        self.syncs = 0

    def room_left(self) -> int:
        return self.capacity - sum(map(len, self.contents.values()))

    def crash(self) -> None:
        self.contents = dict(self.durable)

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return MemoryFile(self, path)

    def read_file(self, path: str) -> bytes:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return self.contents[path]

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if self.room_left() < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.contents[path] = self.durable[path] = data
