"""Files of which several names may share one content, on the operating system's disk: copies of a log directory that
take no room.

(A) `link` makes a hard link. A file with several names is copied before it is first changed through `open`; the copy
    takes the place of this name, and the other names keep the content, its size and its time.
(B) Whether a file has several names is looked up when it is opened. So a file must not be open for changes while it is
    linked: LogSegment.release closes one.
(C) `reflink` shares the blocks of two files (FICLONE). The file system separates them by itself.
(D) Whatever replaces or removes a file as a whole (replace_file, rename, remove) concerns one name anyway.
(E) In a temporary directory nothing is synced: it is not there after a power cut, and outlives the end of a process
    without that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence

from odradek.storage.file_slice import Descriptor
from odradek.storage.files import Buffer, File, OsFile, OsFiles

SLICE_BYTES = 1 << 20
_FICLONE = 0x40049409
_NO_LINK = (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP)
_NO_REFLINK = (errno.EXDEV, errno.ENOTTY, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


class LinkingFiles(OsFiles):
    """The operating system's file system, with links."""

    def __init__(self, *, is_temporary: bool = False) -> None:
        """`is_temporary`: all files are (E)."""
        self._is_temporary = is_temporary

    @property
    def waits_for_disk(self) -> bool:
        return not self._is_temporary

    def _opened(self, path: str, descriptor: int) -> File:
        if os.fstat(descriptor).st_nlink > 1:
            return (_TemporaryLinkedFile if self._is_temporary else _LinkedFile)(path, descriptor)
        return (_TemporaryFile if self._is_temporary else OsFile)(path, descriptor)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        super().replace_file(path, data, sync=sync and not self._is_temporary)

    def sync_file(self, path: str) -> None:
        if not self._is_temporary:
            super().sync_file(path)

    def link(self, source: str, target: str) -> bool:
        """(A). Returns False across file systems, and for a file with too many names."""
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            return False
        return True

    def reflink(self, source: str, target: str) -> bool:
        """(C). Returns False on most file systems; Btrfs and XFS can do it."""
        with contextlib.ExitStack() as stack:
            original = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, original)
            copy = _new_file(target)
            stack.callback(os.close, copy)
            try:
                fcntl.ioctl(copy, _FICLONE, original)
            except OSError as error:
                os.unlink(target)
                if error.errno not in _NO_REFLINK:
                    error.filename = target
                    raise
                return False
        return True


class _LinkedFile(OsFile):
    """A file with several names (A)."""

    __slots__ = ("_is_own",)

    def __init__(self, path: str, descriptor: int) -> None:
        super().__init__(path, descriptor)
        self._is_own = False

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        self._make_own()
        return super().write(parts, position)

    def truncate(self, size: int) -> None:
        self._make_own()
        super().truncate(size)

    def allocate(self, size: int) -> None:
        self._make_own()
        super().allocate(size)

    def _make_own(self) -> None:
        if self._is_own:
            return
        try:
            descriptor = _copied(self._descriptor, self.path)
        except OSError as error:
            error.filename = self.path
            raise
        self._descriptor = descriptor
        self._owner = Descriptor(descriptor)
        self._is_own = True


class _TemporaryFile(OsFile):
    """(E)."""

    __slots__ = ()

    def sync(self) -> None:
        """Does nothing."""

    def duplicate(self) -> OsFile:
        return _TemporaryFile(self.path, os.dup(self._descriptor))


class _TemporaryLinkedFile(_LinkedFile):
    """(A) and (E)."""

    __slots__ = ()

    def sync(self) -> None:
        """Does nothing."""

    def duplicate(self) -> OsFile:
        return _TemporaryFile(self.path, os.dup(self._descriptor))


def _copied(original: int, path: str) -> int:
    """Returns a descriptor of a copy that has taken the place of `path`."""
    temporary = path + ".tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    copy = _new_file(temporary)
    try:
        position = 0
        while data := os.pread(original, SLICE_BYTES, position):
            written = 0
            while written < len(data):
                written += os.pwrite(copy, data[written:], position + written)
            position += len(data)
        os.replace(temporary, path)
    except OSError:
        os.close(copy)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    return copy


def _new_file(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
