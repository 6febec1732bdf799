"""The disk, as the log needs it: a `Files` that opens `File`s, renames, lists, syncs and locks.

Everything in `storage/` reaches the disk through these two protocols, so that a test can hand in a disk that is
full after n bytes, that forgets what was not synced, or that lives in memory. All calls are synchronous and raise
OSError, which names the file.

What `OsFiles` promises about durability (and any other implementation has to keep):
(A) bytes written to a file are durable after `File.sync()`;
(B) a created, renamed or removed name is durable after `Files.sync_directory()` of its directory;
(C) `Files.replace_file` leaves either the old or the new content under the name, never a mixture.

And about other users of the machine:
(D) what it makes is its owner's alone: directories are 0700, files 0600;
(E) it makes no file through a symbolic link, and a new content is written into a new file (O_EXCL, O_NOFOLLOW).
"""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Sequence
from typing import Protocol

from odradek.storage.file_slice import RWF_NOWAIT, Descriptor, FileSlice

Buffer = bytes | bytearray | memoryview

_HAS_SENDFILE = hasattr(os, "sendfile")
_SMALL_READ = 1 << 20
_WRITE_MAX = 0x7FFFF000  # the most that Linux writes in one call
_OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def is_full(error: OSError) -> bool:
    """Whether the disk, or a quota on it, has no room left."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class File(Protocol):
    """One open file, read and written at positions in bytes. `path` is the name it was opened under."""

    path: str

    def read(self, position: int, length: int) -> Buffer:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """As `read`, or None when some of it would have to come from the disk (or when that cannot be told for this
        file).
        """

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        """Writes all parts one after the other from `position` on; returns their total. On OSError any part may
        be on the disk.
        """

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserves `size` bytes of room; the file then has at least that size, zeros at its end."""

    def size(self) -> int: ...

    def modified_ms(self) -> int: ...

    def sync(self) -> None: ...

    def duplicate(self) -> "File":
        """The same open file under a handle of its own, which a thread may use and close while this one is closed."""

    def slice(self, position: int, length: int) -> FileSlice | None:
        """Bytes that are to be sent from the file, not read; None where this file cannot be sent."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """For reading and writing. `create` makes a missing file, `exclusive` refuses one that is there
        (FileExistsError).
        """

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """The file has exactly this content afterwards, or, on OSError and after a crash, still the one that it
        had.
        """

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directories(self, path: str) -> None: ...

    def make_private(self, path: str) -> bool:
        """Takes the permissions of group and others away from a directory or file; whether there were any."""

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Removes a file; one that is gone already is no error."""

    def remove_tree(self, path: str) -> None: ...

    def sync_file(self, path: str) -> None:
        """Makes a closed file's content durable; one that is gone already is no error."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock | None:
        """Takes the lock that the file stands for (made if missing), or None when somebody holds it."""

    def space(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the file system that holds `path`."""


class OsFile:
    """A File on the operating system's disk."""

    __slots__ = ("_descriptor", "_owner", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._owner: Descriptor | None = Descriptor(descriptor)

    def read(self, position: int, length: int) -> Buffer:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        return self._read_on(data, position, length)

    def _read_on(self, data: bytes, position: int, length: int) -> bytes:
        parts = [data]
        received = len(data)
        while received < length and (data := os.pread(self._descriptor, length - received, position + received)):
            parts.append(data)
            received += len(data)
        return b"".join(parts)

    def read_cached(self, position: int, length: int) -> Buffer | None:
        if RWF_NOWAIT is None:
            return self._read_if_small(position, length)
        data = bytearray(length)
        try:
            received = os.preadv(self._descriptor, (data,), position, RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self._read_if_small(position, length)
        return data if received == length else None

    def _read_if_small(self, position: int, length: int) -> Buffer | None:
        """Where the cache cannot be asked (tmpfs, other systems): small reads are taken to be cheap."""
        return self.read(position, length) if length <= _SMALL_READ else None

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        total = 0
        for part in parts:
            total += len(part)
        try:
            written = os.pwritev(self._descriptor, parts, position)
            if written != total:
                self._write_on(parts, position, written)
        except OSError as error:
            error.filename = self.path
            raise
        return total

    def _write_on(self, parts: Sequence[Buffer], position: int, done: int) -> None:
        """The rest after a short write: a full disk takes what fits, and says so only the next time."""
        for part in parts:
            length = len(part)
            if done >= length:
                done -= length
                position += length
                continue
            view = memoryview(part)
            while done < length:
                done += os.pwrite(self._descriptor, view[done : done + _WRITE_MAX], position + done)
            position += length
            done = 0

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            error.filename = self.path
            raise

    def allocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            error.filename = self.path
            raise

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def modified_ms(self) -> int:
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def sync(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            error.filename = self.path
            raise

    def duplicate(self) -> "OsFile":
        return OsFile(self.path, os.dup(self._descriptor))

    def slice(self, position: int, length: int) -> FileSlice | None:
        if not _HAS_SENDFILE or self._owner is None:
            return None
        return FileSlice(self.path, self._owner, position, length)

    def close(self) -> None:
        """The descriptor is closed with the last slice. (A handle that is dropped, as that of a ColdRead that nobody
        ran, is closed all the same.)
        """
        self._descriptor = -1
        self._owner = None


class _OsLock:
    """Two locks on one file: the record lock is the one that the JVM takes, the other also excludes this very
    process.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsFiles:
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_NOFOLLOW
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return OsFile(path, os.open(path, flags, 0o600))

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            with open(self._new_file(temporary), "wb") as file:
                file.write(data)
                file.flush()
                if sync:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            error.filename = path
            self.remove(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def _new_file(self, path: str) -> int:
        """A descriptor of a file that was not there before; what a crash, or somebody else, left there is removed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileExistsError:
            self.remove(path)
            return os.open(path, flags, 0o600)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def make_private(self, path: str) -> bool:
        """A link to a file is left alone."""
        if os.path.islink(path) and not os.path.isdir(path):
            return False
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & _OF_OTHERS:
            os.chmod(path, mode & ~_OF_OTHERS)
        return mode & _OF_OTHERS != 0

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_file(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(descriptor)

    def sync_directory(self, path: str) -> None:
        self.sync_file(path or ".")

    def lock(self, path: str) -> DirectoryLock | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            return _OsLock(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except PermissionError:  # EACCES is the other answer that POSIX allows for a lock that is held
            os.close(descriptor)
            return None

    def space(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
