"""The temporary directories of this process: of brokers, clusters and snapshots. None of them outlives the process.

(A) A directory has a file LOCK, which is locked (flock) as long as the directory is in use. The system ends the lock
    with the process, however that ends, and it holds in every namespace of processes.
(B) `adopt_left` finds, once in a process, the directories of this user whose lock nobody holds: their processes were
    killed. LOCK goes last: a directory that was removed in part is found again. Only names of ours count.
(C) SIGTERM and SIGHUP remove the directories, and then do what they do by default. Python runs handlers in the main
    thread, and only that one can install them; a handler of the program, or SIG_IGN, stays as it is. The handlers are
    there while a directory is (`follow_signals`) or may come into being in another thread (`expected`).
(D) A directory that is still there at the end of the process is removed then.
(E) A forked process has none of its parent's directories: it neither removes them nor keeps them locked.
(F) Few files are removed at once. More of them are removed in a thread: a broker with thousands of logs has as many
    folders, their removal takes a second or two, and other tasks of the event loop go on meanwhile.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import signal
import stat
import tempfile
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import FrameType

from odradek.broker.background.background import run_all_in_threads

LOCK = ".odradek.lock"
NAME = re.compile(r"odradek-(snapshot-)?[0-9a-f]{16}")
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
NOT_LOCKED = -1
SHELLS_STATUS = 128
"""A shell adds the number of the signal that ended a process."""
FEW_FILES = 100
"""What is removed within a few milliseconds."""


class ProcessDirectories:
    """`make`, `remove` and the others may be called in any thread."""

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}
        """The descriptor of the lock of each directory, by path."""
        self._expected: dict[object, None] = {}
        self._has_looked = False
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.remove_all)

    def make(self, kind: str = "") -> str:
        """Returns the path of a new directory, for its owner alone. Raises OSError."""
        while True:
            path = _new_path(kind)
            self._locks[path] = NOT_LOCKED  # a signal from now on removes it
            self.follow_signals()
            lock = None
            try:
                os.mkdir(path, 0o700)
                with contextlib.suppress(FileNotFoundError):
                    lock = _lock(path, os.O_CREAT | os.O_EXCL)
            finally:
                if lock is None:  # it failed, or a process that looked for (B) was faster
                    self._release(path)
            if lock is not None:
                self._locks[path] = lock
                return path

    def remove(self, path: str) -> None:
        """Removes a directory, unless that was done before. Raises OSError."""
        _to_the_end(self.removal(path))

    def removal(self, path: str) -> Iterator[None]:
        """`remove`, one file or folder in each step."""
        if path not in self._locks:
            return
        try:
            yield from _emptied(path)
            os.rmdir(path)
        except FileNotFoundError:
            pass
        finally:
            self._release(path)

    def remove_all(self) -> None:
        """Removes all directories, while other threads may go on creating files in them: first of all they lose their
        names. What cannot be removed stays.
        """
        while self._locks:
            path = next(iter(self._locks))
            with contextlib.suppress(OSError):
                hidden = _new_path()
                os.rename(path, hidden)
                _remove_tree(hidden)
            with contextlib.suppress(OSError):
                _remove_tree(path)  # what a thread has made anew
            self._release(path)

    def adopt_left(self) -> list[str]:
        """(B). Returns directories that are to be removed now, and belong to this process from now on."""
        if self._has_looked:
            return []
        self._has_looked = True
        found: list[str] = []
        with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
            ours = (entry.path for entry in entries if NAME.fullmatch(entry.name))
            found += [path for path in ours if path not in self._locks and self._has_adopted(path)]
        return found

    def _has_adopted(self, path: str) -> bool:
        try:
            found = os.stat(path, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                return False
            lock = _lock(path)
        except FileNotFoundError:  # its process ended before the lock was there, or at the end of a removal
            with contextlib.suppress(OSError):
                os.rmdir(path)
            return False
        except OSError:
            return False
        if lock is None:
            return False
        self._locks[path] = lock
        return True

    @contextlib.contextmanager
    def expected(self) -> Iterator[None]:
        """While other threads may make directories."""
        caller = object()
        self._expected[caller] = None
        self.follow_signals()
        try:
            yield
        finally:
            self._expected.pop(caller, None)
            self.follow_signals()

    def follow_signals(self) -> None:
        """(C). Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        is_needed = bool(self._locks or self._expected)
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if is_needed and handler == signal.SIG_DFL:
                signal.signal(number, self._end)
            elif not is_needed and handler == self._end:
                signal.signal(number, signal.SIG_DFL)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.remove_all()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        os._exit(SHELLS_STATUS + number)  # the first process of a container ignores the signal by default

    def _release(self, path: str) -> None:
        lock = self._locks.pop(path, NOT_LOCKED)
        if lock != NOT_LOCKED:
            os.close(lock)
        self.follow_signals()

    def _forget(self) -> None:
        """(E)."""
        locks, self._locks = self._locks, {}
        self._expected.clear()
        for lock in locks.values():
            if lock != NOT_LOCKED:
                os.close(lock)


def _new_path(kind: str = "") -> str:
    return os.path.join(tempfile.gettempdir(), f"odradek-{kind}{os.urandom(8).hex()}")


def _lock(path: str, flags: int = 0) -> int | None:
    """Returns the descriptor of a directory's lock, None if another process has it or had it. Raises OSError."""
    lock = os.open(f"{path}/{LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | flags, 0o600)
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(f"{path}/{LOCK}")):
            return lock
    os.close(lock)
    return None


def _emptied(path: str) -> Iterator[None]:
    """Removes what is in a directory; LOCK is the last."""
    for entry in _entries(path):
        if entry.is_dir(follow_symlinks=False):
            yield from _emptied(entry.path)
            os.rmdir(entry.path)
        else:
            _unlink(entry.path)
        yield


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        entries = os.scandir(path)
    except PermissionError:
        os.chmod(path, 0o700)
        entries = os.scandir(path)
    with entries:
        return sorted(entries, key=lambda entry: entry.name == LOCK)


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except PermissionError:
        os.chmod(os.path.dirname(path), 0o700)
        os.unlink(path)


def _remove_tree(path: str) -> None:
    _to_the_end(_emptied(path))
    os.rmdir(path)


def _to_the_end(removal: Iterator[None]) -> None:
    deque(removal, maxlen=0)


PROCESS_DIRECTORIES = ProcessDirectories()


@contextlib.asynccontextmanager
async def temporary_directory() -> AsyncIterator[Path]:
    """Yields a new directory, and removes it at the end (F). Removes those of processes that were killed (B), too."""
    directories = PROCESS_DIRECTORIES
    await run_all_in_threads([partial(_try_to, directories.removal(path)) for path in directories.adopt_left()])
    path = directories.make()
    try:
        yield Path(path)
    finally:
        removal = directories.removal(path)
        if len(list(islice(removal, FEW_FILES))) == FEW_FILES:
            await run_all_in_threads([partial(_to_the_end, removal)])


def _try_to(removal: Iterator[None]) -> None:
    with contextlib.suppress(OSError):
        _to_the_end(removal)
