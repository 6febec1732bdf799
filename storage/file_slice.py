"""Bytes that stay in their file until a socket takes them: sendfile hands over pages of the cache, nobody copies."""

from __future__ import annotations

import errno
import os

SLICE_BYTES = 256 * 1024
"""No slice is smaller: below it is cheaper to read the bytes than to take sendfile's detours."""
_NOT_SENDABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""What sendfile says of file systems that it cannot read from."""
RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
"""None where a read cannot be kept from waiting for the disk."""
_READ_AHEAD_BYTES = 128 * 1024
"""What Linux reads ahead unless it is told otherwise."""


class Descriptor:
    """An open file's descriptor, closed when nobody holds this any more."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class FileSlice:
    """`length` bytes at `position` of a file. They can be sent, by any thread, also when the file has been closed or
    removed meanwhile.
    """

    __slots__ = ("_descriptor", "length", "path", "position")

    def __init__(self, path: str, descriptor: Descriptor, position: int, length: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def is_cached(self, start: int, length: int) -> bool:
        """Whether the page cache seems to hold so many bytes from `start` on: it is asked once per read-ahead."""
        if RWF_NOWAIT is None:
            return False
        end = self.position + min(start + length, self.length)
        byte = bytearray(1)
        try:
            for position in (*range(self.position + start, end, _READ_AHEAD_BYTES), end - 1):
                os.preadv(self._descriptor.number, (byte,), position, RWF_NOWAIT)
        except OSError:
            return False  # BlockingIOError, or a file system that cannot tell
        return True

    def send(self, socket: int, start: int, length: int) -> int:
        """Sends what the non-blocking socket takes of `length` bytes from `start` on, and returns how many that were.

        Raises BlockingIOError if it takes none now, EOFError if the file has been cut short, OSError."""
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
