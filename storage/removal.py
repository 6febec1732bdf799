"""Delayed removal of files and folders, so that their readers can finish."""

import structlog

from odradek.storage.files import Files
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class Removals:
    """`waiting`: (due time in ms by the monotonic clock, path)."""

    __slots__ = ("_clock", "waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: list[tuple[int, str]] = []

    def add(self, path: str, delay_ms: int) -> None:
        self.waiting.append((self._clock.now_ms() + delay_ms, path))

    def take_due(self, now_ms: int, *, everything: bool = False) -> list[str]:
        """Returns the paths that are due and stops tracking them; with `everything`, all paths."""
        due = [path for due_ms, path in self.waiting if everything or due_ms <= now_ms]
        self.waiting = [entry for entry in self.waiting if not everything and entry[0] > now_ms]
        return due

    def clear(self) -> None:
        """Drops all paths, which no longer exist."""
        self.waiting = []


class Removal:
    """Removes files or a folder that are due. `run` may be called in any thread; errors are logged."""

    __slots__ = ("_files", "paths")

    def __init__(self, files: Files, paths: list[str]) -> None:
        self._files = files
        self.paths = paths

    def run(self) -> None:
        for path in self.paths:
            try:
                if self._files.is_directory(path):
                    self._files.remove_tree(path)
                else:
                    self._files.remove(path)
            except OSError as error:
                _log.error("removal failed", path=path, reason=str(error))
