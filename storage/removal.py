"""Files and folders that wait for their removal, so that what reads them can finish."""

import structlog

from odradek.storage.files import Files

_log = structlog.get_logger(__name__)


class Removal:
    """Files, or a folder, whose time has come. `run` in any thread; errors are named in the log."""

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
                _log.error("removal_failed", path=path, reason=str(error))


def take_due(waiting: list[tuple[int, str]], now_ms: int, everything: bool) -> list[str]:
    due = [path for due_ms, path in waiting if everything or due_ms <= now_ms]
    waiting[:] = [entry for entry in waiting if not everything and entry[0] > now_ms]
    return due
