"""File bytes that are sent by sendfile directly from the page cache, without a copy, or read by those who cannot."""

from __future__ import annotations

import errno
import os

SLICE_BYTES = 256 * 1024
"""The minimum size of a slice. Reading fewer bytes is cheaper than the overhead of sendfile."""
_NOT_SENDABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of sendfile on file systems that do not support it."""
RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""None on systems where reads cannot be kept from waiting for the disk."""
_READ_AHEAD_BYTES = 128 * 1024
"""Linux's default read-ahead."""


class Descriptor:
    """An open file's descriptor, closed when the last reference to this object is dropped."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class FileSlice:
    """`length` bytes at `position` of a file. Any thread can send them, even after the file was closed or removed."""

    __slots__ = ("_descriptor", "length", "path", "position")

    def __init__(self, path: str, descriptor: Descriptor, position: int, length: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def is_cached(self, start: int, length: int) -> bool:
        """Whether the page cache seems to hold `length` bytes from `start` on. Probes one byte per read-ahead."""
        if RWF_NOWAIT is None:
            return False
        end = self.position + min(start + length, self.length)
        byte = bytearray(1)
        try:
            for position in (*range(self.position + start, end, _READ_AHEAD_BYTES), end - 1):
                os.preadv(self._descriptor.number, (byte,), position, RWF_NOWAIT)
        except OSError:
            return False  # BlockingIOError, or a file system that does not support the check
        return True

    def send(self, socket: int, start: int, length: int) -> int:
        """Sends up to `length` bytes from `start` on to a non-blocking socket. Returns the number of bytes sent.

        Raises BlockingIOError if the socket accepts none now, EOFError if the file has been truncated, OSError.
        """
        where = self.position + start
        try:
            sent = os.sendfile(socket, self._descriptor.number, where, length)
        except OSError as error:
            if error.errno not in _NOT_SENDABLE:
                raise
            sent = os.write(socket, os.pread(self._descriptor.number, length, where))
        if sent == 0:
            raise EOFError(f"{self.path} ends before byte {where}")
        return sent

    def read(self, start: int, length: int) -> bytes:
        """Reads up to `length` bytes from `start` on. Raises EOFError if the file has been truncated, OSError."""
        where = self.position + start
        data = os.pread(self._descriptor.number, min(length, self.length - start), where)
        if not data:
            raise EOFError(f"{self.path} ends before byte {where}")
        return data
