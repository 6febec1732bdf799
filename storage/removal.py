"""Files and folders that wait for their removal, so that what reads them can finish."""

import structlog

from odradek.storage.files import Files
from odradek.timer.clock import Clock

_log = structlog.get_logger(__name__)


class Removals:
    """`waiting`: paths, each with the time (ms, monotonic) when it is due."""

    __slots__ = ("_clock", "waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.waiting: list[tuple[int, str]] = []

    def add(self, path: str, delay_ms: int) -> None:
        self.waiting.append((self._clock.now_ms() + delay_ms, path))

    def take_due(self, now_ms: int, *, everything: bool = False) -> list[str]:
        """The paths that are due, which wait no longer; all of them with `everything`."""
        due = [path for due_ms, path in self.waiting if everything or due_ms <= now_ms]
        self.waiting = [entry for entry in self.waiting if not everything and entry[0] > now_ms]
        return due

    def clear(self) -> None:
        """The paths are not there any more."""
        self.waiting = []


class Removal:
    """Files, or a folder, that are due. `run` in any thread; errors are logged."""

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
