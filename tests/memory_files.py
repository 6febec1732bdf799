"""Files in memory: a disk that forgets what was not synced, and one that is full after n bytes."""

import contextlib
import errno
import functools
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypeVar, cast

from odradek.storage.files import Buffer

parent = functools.lru_cache(maxsize=1 << 14)(os.path.dirname)
"""Tests ask for the parents of few paths, and very often."""


class Inode:
    __slots__ = ("changed_from", "data", "has_lost_pages", "modified_ms", "synced")

    def __init__(self, data: bytes = b"", synced: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = bytearray(synced)
        self.modified_ms = 0
        self.changed_from = 0
        """Before this position the synced content is the current one, or the system takes it for that."""
        self.has_lost_pages = False

    def change(self, position: int) -> None:
        """Notes that the content changes from this position on."""
        self.changed_from = min(self.changed_from, position)

    def sync(self) -> None:
        """Makes the content durable; the cost is that of what has changed."""
        self.synced.extend(bytes(max(self.changed_from - len(self.synced), 0)))  # lost pages leave a hole
        self.synced[self.changed_from :] = self.data[self.changed_from :]
        self.changed_from = len(self.data)

    def lose_pages(self) -> None:
        """A sync has failed, and the system marks as clean what it could not write: no later sync writes it."""
        self.has_lost_pages = self.has_lost_pages or self.changed_from < len(self.data)
        self.changed_from = len(self.data)

    def on_the_disk(self) -> bytes:
        """The content without lost pages, as it is read once the cache has dropped them."""
        if not self.has_lost_pages:
            return bytes(self.data)
        tail = self.data[self.changed_from :]
        hole = bytes(max(self.changed_from - len(self.synced), 0)) if tail else b""
        return bytes(self.synced[: self.changed_from]) + hole + bytes(tail)


class Names(dict[str, Inode | None]):
    """What is at each path, and which paths are directly in each directory. None: a directory."""

    def __init__(self, found: Iterable[tuple[str, Inode | None]] = ()) -> None:
        super().__init__()
        self._inside: dict[str, dict[str, None]] = {}
        self.add_all(found)

    def __setitem__(self, path: str, inode: Inode | None) -> None:
        super().__setitem__(path, inode)
        if path != "/":
            self._inside.setdefault(parent(path), {})[path] = None

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        self._inside[parent(path)].pop(path, None)

    def remove(self, path: str) -> None:
        """Removes a path that may not be there."""
        if path in self:
            del self[path]

    def add_all(self, found: Iterable[tuple[str, Inode | None]]) -> None:
        """Adds or replaces paths (`update` would not note where they are)."""
        for path, inode in found:
            self[path] = inode

    def inside(self, directory: str) -> list[str]:
        """The paths directly in a directory."""
        return list(self._inside.get(directory, ()))

    def tree(self, path: str) -> list[str]:
        """The path, if it is there, and what is below it."""
        below = [each for name in self._inside.get(path, ()) for each in self.tree(name)]
        return [path, *below] if path in self else below


class MemoryFile:
    """`write` takes what fits and then raises ENOSPC, as a real disk does."""

    def __init__(self, disk: "ForgetfulFiles", path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode: Inode | None = inode

    @property
    def inode(self) -> Inode:
        if self._inode is None:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._inode

    def read(self, position: int, length: int) -> Buffer:
        self._disk.require(self.path)
        if self._disk.warms_up:
            self._disk.cold.discard(self.path)
        return bytes(self.inode.data[position : position + length])

    def read_cached(self, position: int, length: int) -> Buffer | None:
        if self.path in self._disk.cold:
            return None
        return self.read(position, length)

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        inode = self.inode
        self._disk.begin("write", self.path)
        if self._disk.fail_write is not None:
            raise self._disk.fail_write
        inode.change(min(position, len(inode.data)))
        total = 0
        for part in parts:
            end = position + len(part)
            growth = max(0, end - len(inode.data))
            room = self._disk.take(growth)
            if len(inode.data) < position:
                inode.data.extend(bytes(position - len(inode.data)))
            fits = len(part) - (growth - room)
            inode.data[position : position + fits] = part[:fits]
            if room < growth:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
            position = end
            total += len(part)
        return total

    def truncate(self, size: int) -> None:
        self._disk.begin("truncate", self.path)
        if self._disk.fail_truncate is not None:
            raise self._disk.fail_truncate
        data = self.inode.data
        self.inode.change(min(size, len(data)))
        if size < len(data):
            self._disk.give_back(len(data) - size)
            del data[size:]
        else:
            data.extend(bytes(size - len(data)))

    def allocate(self, size: int) -> None:
        if size > len(self.inode.data):
            self.truncate(size)

    def size(self) -> int:
        return len(self.inode.data)

    def modified_ms(self) -> int:
        return self.inode.modified_ms

    def sync(self) -> None:
        try:
            self._disk.begin("sync", self.path)
            self._disk.count_sync(self.path)
        except OSError:
            if self._disk.failed_syncs_lose_pages:
                self.inode.lose_pages()
            raise
        self.inode.sync()

    def duplicate(self) -> "MemoryFile":
        return MemoryFile(self._disk, self.path, self.inode)

    def slice(self, position: int, length: int) -> None:
        """Returns None: sendfile cannot send a file in memory."""

    def close(self) -> None:
        self._inode = None


class _Lock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path
        held.add(path)

    def release(self) -> None:
        self._held.discard(self._path)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _alone(method: _Method) -> _Method:
    """Runs the method under the disk's lock, because several threads use a disk."""

    @functools.wraps(method)
    def alone(self: "ForgetfulFiles", *args: Any, **kwargs: Any) -> Any:
        with self._one_at_a_time:
            return method(self, *args, **kwargs)

    return cast(_Method, alone)


class ForgetfulFiles:
    """`crash()` is the disk as it may be after a power cut: contents that were not synced, and names in
    directories that were not synced, are lost. With a random source, contents may be there or not or in part, and
    the first so many changes of names are there, often all of them, as a journal keeps them.

    `room`: bytes that still fit, None for no limit. `cold`: paths that are not in the page cache; with `warms_up`,
    until they are read.
    `fail_sync`, `fail_truncate`, `fail_write`: raised by every sync, truncation or write of a file while it is set.
    `failed_syncs_lose_pages`: what a failed sync has not written is lost when the cache is dropped (`drop_cache`), also
    if a later sync succeeds. `broken`: directories below which nothing can be read or changed any more.
    """

    waits_for_disk = True
    warms_up = False

    def __init__(self, room: int | None = None) -> None:
        self.names = Names({"/": None}.items())
        self.durable_names = Names({"/": None}.items())
        self.room = room
        self.cold: set[str] = set()
        self.synced_paths: list[str] = []
        self.fail_sync: BaseException | None = None
        self.fail_truncate: BaseException | None = None
        self.fail_write: BaseException | None = None
        self.failed_syncs_lose_pages = False
        self.broken: set[str] = set()
        self._locks: set[str] = set()
        self._pending: list[tuple[str, dict[str, Inode | None], list[str]]] = []  # (directory, added, removed)
        self._renamed: list[tuple[str, str]] = []  # directories, whose new names are not durable yet
        self._one_at_a_time = threading.RLock()  # of what changes names, or looks at all of them

    # ---- what a test does

    @_alone
    def crash(self, source: random.Random | None = None) -> Self:
        after = type(self)(self.room)
        for path, inode in self._surviving_names(source).items():
            survivor = None if inode is None else Inode(*[bytes(_surviving_content(inode, source))] * 2)
            after.names[path] = after.durable_names[path] = survivor
        return after

    def _surviving_names(self, source: random.Random | None) -> dict[str, Inode | None]:
        names = dict(self.durable_names)
        if source is not None:
            kept = source.choice([len(self._pending), source.randint(0, len(self._pending))])
            for _, added, removed in self._pending[:kept]:
                for path in removed:
                    names.pop(path, None)
                names.update(added)
        return {path: inode for path, inode in names.items() if _has_parents(path, names)}

    def require(self, path: str) -> None:
        """Raises EIO below a broken directory."""
        if self.broken and any(path == each or path.startswith(f"{each}/") for each in self.broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def begin(self, operation: str, path: str) -> None:
        """Called before each change of a file, a name or a directory: raises what it fails with."""
        self.require(path)

    @contextlib.contextmanager
    def looked_into(self) -> Iterator[None]:
        """Meanwhile a test looks at what is in broken directories, too."""
        broken, self.broken = self.broken, set()
        try:
            yield
        finally:
            self.broken = broken

    def drop_cache(self) -> None:
        """Lets files have what their disk has: lost pages are read no longer."""
        for inode in self.names.values():
            if inode is not None and inode.has_lost_pages:
                inode.data[:] = inode.on_the_disk()
                inode.changed_from, inode.has_lost_pages = 0, False

    def take(self, wanted: int) -> int:
        if self.room is None:
            return wanted
        granted = min(wanted, self.room)
        self.room -= granted
        return granted

    def give_back(self, size: int) -> None:
        if self.room is not None:
            self.room += size

    def count_sync(self, path: str) -> None:
        if self.fail_sync is not None:
            raise self.fail_sync
        self.synced_paths.append(path)

    def content(self, path: str) -> bytearray:
        inode = self.names[path]
        assert inode is not None
        inode.change(0)  # the caller may change it
        return inode.data

    def contents(self) -> dict[str, bytes]:
        """What is in each file, synced or not."""
        return {path: bytes(inode.data) for path, inode in self.names.items() if inode is not None}

    @_alone
    def _change(self, directory: str, added: dict[str, Inode | None], removed: list[str]) -> None:
        self.require(directory)
        for path in added:
            self.require(path)
        for path in removed:
            self.names.remove(path)
        self.names.add_all(added.items())
        self._pending.append((directory, added, removed))

    @_alone
    def make_durable(self) -> None:
        self._pending.clear()
        for inode in self.names.values():
            if inode is not None:
                inode.sync()
        self.durable_names = Names(self.names.items())

    def end_of_process(self) -> None:
        """Everything stays as it is but the locks, as after kill -9."""
        self._locks.clear()

    # ---- Files

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> MemoryFile:
        self.require(path)
        if path in self.names:
            if exclusive:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            inode = self.names[path]
            if inode is None:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        elif create or exclusive:
            inode = self._new(path)
        else:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return MemoryFile(self, path, inode)

    def _new(self, path: str) -> Inode:
        self._check_directory_of(path)
        self.begin("create", path)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        inode = Inode()
        self._change(parent(path), {path: inode}, [])
        return inode

    def _check_directory_of(self, path: str) -> None:
        if parent(path) not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def read_file(self, path: str) -> bytes:
        return bytes(self.open(path).inode.data)

    def replace_file(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._check_directory_of(path)
        self.begin("replace", path)
        inode = Inode()
        room = self.take(len(data))
        if room < len(data):
            self.give_back(room)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        inode.data[:] = data
        if sync:
            self.count_sync(path)
            inode.sync()
        old = self.names.get(path)
        if old is not None:
            self.give_back(len(old.data))
        self._change(parent(path), {path: inode}, [])
        if sync:
            self.sync_directory(parent(path))

    def exists(self, path: str) -> bool:
        return path in self.names

    def is_directory(self, path: str) -> bool:
        return path in self.names and self.names[path] is None

    def size(self, path: str) -> int:
        return self.open(path).size()

    def modified_ms(self, path: str) -> int:
        return self.open(path).modified_ms()

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.open(path).inode.modified_ms = modified_ms

    def version(self, path: str) -> tuple[int, ...]:
        inode = self.open(path).inode
        return id(inode), len(inode.data), inode.modified_ms

    @_alone
    def list_directory(self, path: str) -> list[str]:
        self.require(path)
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return sorted(os.path.basename(name) for name in self.names.inside(path))

    def make_directories(self, path: str) -> None:
        if path not in self.names:
            self.make_directories(parent(path))
            self.begin("create", path)
            self._change(parent(path), {path: None}, [])

    def make_private(self, path: str) -> bool:
        """There are no other users."""
        return False

    @_alone
    def rename(self, source: str, target: str) -> None:
        if source not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        self.begin("rename", source)
        moved = self.names.tree(source)
        if self.names[source] is None:
            self._renamed.append((source, target))
        self._change(parent(source), {target + path[len(source) :]: self.names[path] for path in moved}, moved)

    def link(self, source: str, target: str) -> bool:
        """Files in memory have one name."""
        return False

    def reflink(self, source: str, target: str) -> bool:
        """There are no blocks to share."""
        return False

    def remove(self, path: str) -> None:
        inode = self.names.get(path)
        if path in self.names:
            self.begin("remove", path)
        self._change(parent(path), {}, [path])
        if inode is not None:
            self.give_back(len(inode.data))

    @_alone
    def remove_tree(self, path: str) -> None:
        for name in self.names.tree(path):
            self.remove(name)

    def sync_file(self, path: str) -> None:
        if path in self.names:
            self.open(path).sync()

    @_alone
    def sync_directory(self, path: str) -> None:
        self.begin("sync directory", path)
        for source, target in [renamed for renamed in self._renamed if parent(renamed[1]) == path]:
            self._renamed.remove((source, target))
            for below in [each for each in self.durable_names.tree(source) if each != source]:
                self.durable_names[target + below[len(source) :]] = self.durable_names[below]
                del self.durable_names[below]
        for name in [name for name in self.durable_names.inside(path) if name not in self.names]:
            for below in self.durable_names.tree(name):
                del self.durable_names[below]
        for name in self.names.inside(path):
            self.durable_names[name] = self.names[name]
        self._pending = [change for change in self._pending if change[0] != path]

    def lock(self, path: str) -> _Lock | None:
        if path in self._locks:
            return None
        self.open(path, create=True)
        return _Lock(self._locks, path)

    def space(self, path: str) -> tuple[int, int]:
        self.require(path)
        return 1 << 40, (1 << 40) if self.room is None else self.room


def _has_parents(path: str, names: dict[str, Inode | None]) -> bool:
    while path != "/":
        path = parent(path)
        if path not in names:
            return False
    return True


def _surviving_content(inode: Inode, source: random.Random | None) -> bytes | bytearray:
    """The synced content; or, by chance, all or a part of what was written, its end torn or filled with zeros."""
    if inode.has_lost_pages:
        return inode.synced if source is None or source.randrange(2) else inode.on_the_disk()
    if source is None or inode.data == inode.synced:
        return inode.synced
    choice = source.randrange(4)
    if choice == 0:
        return inode.synced
    if choice == 1 or inode.data[: len(inode.synced)] != inode.synced:
        return inode.data
    cut = source.randint(len(inode.synced), len(inode.data))
    torn = bytes(inode.data[:cut])
    return torn if choice == 2 else torn + bytes(len(inode.data) - cut)
