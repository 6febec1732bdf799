"""The embedded metadata store's files on the disk: the journal open for appending, and whole files replaced. Raises
OSError, knows no format.
"""

from __future__ import annotations

import os

from odradek.broker.controller.metadata_journal import JOURNAL_NAME
from odradek.storage.files import File, Files


class JournalDisk:
    """`journal_bytes` is the journal's size up to the end of its last whole change."""

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
        """A file's content, or None where there is no such file."""
        try:
            return self._files.read_file(self._path(name))
        except FileNotFoundError:
            return None

    def open_journal(self, size: int) -> None:
        """Goes on behind the journal's first `size` bytes."""
        self._journal = self._files.open(self._path(JOURNAL_NAME))
        self.journal_bytes = size

    def append(self, line: bytes) -> None:
        """Writes and syncs. `journal_bytes` moves only when both succeeded."""
        journal = self._open_journal()
        journal.write([line], self.journal_bytes)
        journal.sync()
        self.journal_bytes += len(line)

    def take_back(self) -> None:
        """Removes what a failed `append` may have left behind."""
        journal = self._open_journal()
        journal.truncate(self.journal_bytes)
        journal.sync()

    def replace(self, name: str, content: bytes) -> None:
        """Gives a file this content, durably and at once."""
        self._files.replace_file(self._path(name), content)

    def replace_journal(self, content: bytes) -> None:
        """Replaces the journal and goes on behind `content`. If the new one cannot be opened, none is open."""
        self.replace(JOURNAL_NAME, content)
        self.close()
        self.open_journal(len(content))

    def close(self) -> None:
        """Lets go of the journal."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _open_journal(self) -> File:
        if self._journal is None:
            raise OSError("the metadata journal is not open")
        return self._journal

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)
