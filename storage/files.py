"""The disk interface of the log: a `Files` opens `File`s, renames, lists, syncs and locks.

All code in `storage/` accesses the disk through these two protocols, so that a test can pass a disk that is full after
n bytes, that loses unsynced data, or that is in memory. All calls are synchronous and raise OSError, which names the
file.

Durability guarantees of `OsFiles` (and of every other implementation):
(A) bytes written to a file are durable after `File.sync()`;
(B) a created, renamed or removed name is durable after `Files.sync_directory()` of its directory;
(C) `Files.replace_file` leaves either the old or the new content under the name, never a mixture.

Guarantees about other users of the machine:
(D) new files and directories are private to their owner: directories are 0700, files 0600;
(E) files are never created through a symbolic link, and replaced content is written to a new file (O_EXCL, O_NOFOLLOW).
"""

import errno
import fcntl
import os
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
    """Whether the disk or a disk quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: Exception) -> BaseException | None:
    """What an error was raised from. One that a compiled module raises has it as its context alone: mypyc leaves out
    `from`.
    """
    return error.__cause__ or error.__context__


class File(Protocol):
    """One open file, read and written at positions in bytes. `path` is the name it was opened under."""

    path: str

    def read(self, position: int, length: int) -> Buffer:
        """Returns up to `length` bytes from `position`; fewer only at the end of the file."""

    def read_cached(self, position: int, length: int) -> Buffer | None:
        """Like `read`, but returns None if the read would have to wait for the disk, or if this is unknown for the
        file.
        """

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        """Writes all parts one after the other from `position` on; returns their total size. On OSError any part may be
        on the disk.
        """

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Reserves `size` bytes of disk space. The file then has at least that size, padded with zeros."""

    def size(self) -> int: ...

    def modified_ms(self) -> int: ...

    def sync(self) -> None: ...

    def duplicate(self) -> "File":
        """Returns the same open file with its own handle, which a thread may use and close after this one is closed."""

    def slice(self, position: int, length: int) -> FileSlice | None:
        """Returns bytes to send from the file without reading them; None if this file does not support it."""

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    @property
    def waits_for_disk(self) -> bool:
        """Whether a sync may take long. If not, short work that writes and syncs needs no thread."""

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        """Opens a file for reading and writing. `create` creates a missing file; `exclusive` creates it and raises
        FileExistsError if it exists.
        """

    def read_file(self, path: str) -> bytes: ...

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replaces the file's content. On OSError, and after a crash, the file has either the old or the new
        content.
        """

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None: ...

    def version(self, path: str) -> tuple[int, ...]:
        """Returns numbers that change when the file is written or replaced."""

    def list_directory(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""

    def make_directories(self, path: str) -> None: ...

    def make_private(self, path: str) -> bool:
        """Removes the permissions of group and others from a directory or file; returns whether there were any."""

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> bool:
        """Gives a file a second name. A change through one of them is not seen through the other. Returns False,
        without any change, if these files or the file system cannot do that.
        """

    def reflink(self, source: str, target: str) -> bool:
        """Creates `target` with the content of `source`, and with the same room on the disk until one of them changes.
        Returns False, without any change, if these files or the file system cannot do that.
        """

    def remove(self, path: str) -> None:
        """Removes a file; a missing file is not an error."""

    def remove_tree(self, path: str) -> None: ...

    def sync_file(self, path: str) -> None:
        """Makes a closed file's content durable; a missing file is not an error."""

    def sync_directory(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock | None:
        """Takes the lock on the file, which is created if missing; returns None if the lock is held."""

    def space(self, path: str) -> tuple[int, int]:
        """Returns (total, usable) bytes of the file system that holds `path`."""


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
        """For systems that do not report cache hits (tmpfs, other systems): small reads are assumed to be cheap."""
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
        """Writes the rest after a short write. A full disk accepts what fits and fails only at the next write."""
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
        """Drops the reference to the descriptor, which is closed with the last slice. (A handle that is dropped without
        `close`, such as that of a ColdRead that never ran, is closed too.)
        """
        self._descriptor = -1
        self._owner = None


def _write_all(descriptor: int, data: bytes) -> None:
    """A full disk accepts what fits and fails only at the next write."""
    written = os.write(descriptor, data)
    while written < len(data):
        written += os.write(descriptor, data[written : written + _WRITE_MAX])


class _OsLock:
    """Two locks on one file: the record lock is compatible with the JVM's, the flock also excludes this process
    itself.
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

    @property
    def waits_for_disk(self) -> bool:
        return True

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC
        if create:
            flags |= os.O_CREAT | os.O_NOFOLLOW
        if exclusive:
            flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return self._opened(path, os.open(path, flags, 0o600))

    def _opened(self, path: str, descriptor: int) -> File:
        return OsFile(path, descriptor)

    def read_file(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        temporary = path + ".tmp"
        try:
            descriptor = self._new_file(temporary)
            try:
                _write_all(descriptor, data)
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError as error:
            error.filename = path
            self.remove(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def _new_file(self, path: str) -> int:
        """Returns a descriptor of a new file. A file that a crash, or another user, left under the name is removed."""
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

    def version(self, path: str) -> tuple[int, ...]:
        found = os.stat(path)
        return found.st_ino, found.st_size, found.st_mtime_ns

    def list_directory(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directories(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def make_private(self, path: str) -> bool:
        """Symbolic links to files are left alone."""
        if os.path.islink(path) and not os.path.isdir(path):
            return False
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if mode & _OF_OTHERS:
            os.chmod(path, mode & ~_OF_OTHERS)
        return mode & _OF_OTHERS != 0

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> bool:
        """Two names of one file would not be independent here; linked_files.py sees to that."""
        return False

    def reflink(self, source: str, target: str) -> bool:
        """Only LinkingFiles do this."""
        return False

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str) -> None:
        import shutil  # brings modules for every kind of archive, which the start need not wait for

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
        except PermissionError:  # POSIX allows EACCES too for a lock that is held
            os.close(descriptor)
            return None

    def space(self, path: str) -> tuple[int, int]:
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
