"""The embedded metadata store's file operations: appending to the journal, and replacing files as a whole. Raises
OSError and does not depend on the format.
"""

from __future__ import annotations

import os

from odradek.broker.metadata_store.journal import JOURNAL_NAME, SNAPSHOT_NAME
from odradek.storage.files import File, Files


class JournalDisk:
    """`journal_bytes` is the journal's size up to the end of its last complete change."""

    def __init__(self, directory: str, files: Files) -> None:
        self.directory = directory
        self.journal_bytes = 0
        self._files = files
        self._journal: File | None = None

    @property
    def is_writable(self) -> bool:
        """Whether a journal is open."""
        return self._journal is not None

    def read(self, name: str) -> bytes | None:
        """A file's content, or None if the file does not exist."""
        try:
            return self._files.read_file(self._path(name))
        except FileNotFoundError:
            return None

    def size(self) -> int:
        """The size of both files together. Raises OSError."""
        paths = map(self._path, (SNAPSHOT_NAME, JOURNAL_NAME))
        return sum(self._files.size(path) for path in paths if self._files.exists(path))

    def open_journal(self, size: int) -> None:
        """Opens the journal for appending after its first `size` bytes."""
        self._journal = self._files.open(self._path(JOURNAL_NAME))
        self.journal_bytes = size

    def check(self) -> None:
        """Asserts what holds between two changes: an open journal ends with the last complete one. Raises OSError."""
        if self._journal is not None:
            size = self._journal.size()
            assert size == self.journal_bytes, f"the journal has {size} bytes, and {self.journal_bytes} of changes"

    def append(self, line: bytes) -> None:
        """Writes and syncs. `journal_bytes` advances only if both succeed."""
        journal = self._open_journal()
        journal.write([line], self.journal_bytes)
        journal.sync()
        self.journal_bytes += len(line)

    def take_back(self) -> None:
        """Truncates what a failed `append` may have left behind."""
        journal = self._open_journal()
        journal.truncate(self.journal_bytes)
        journal.sync()

    def replace(self, name: str, content: bytes) -> None:
        """Replaces a file's content durably and atomically."""
        self._files.replace_file(self._path(name), content)

    def replace_journal(self, content: bytes) -> None:
        """Replaces the journal and opens it for appending after `content`. If opening fails, no journal is open."""
        self.replace(JOURNAL_NAME, content)
        self.close()
        self.open_journal(len(content))

    def close(self) -> None:
        """Closes the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open_journal(self) -> File:
        if self._journal is None:
            raise OSError("the metadata journal is not open")
        return self._journal

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
