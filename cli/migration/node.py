"""The stopped node: its log directories are locked, its metadata are read, its note is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.embedded_store import read_files
from odradek.broker.metadata_store.journal import JOURNAL_NAME
from odradek.broker.metadata_store.journal_disk import JournalDisk
from odradek.broker.metadata_store.migration_note import MigrationNote, read_note, write_note
from odradek.cli.migration.entries import Entries, MigrationError, entries_of
from odradek.storage.directories.log_directory import DirectoryLocked, LogDirectory
from odradek.storage.directories.meta_properties import check_meta_properties
from odradek.storage.files import Files


class StoppedNode:
    """A single node that does not run. `directory` is the first of its log directories, which has its metadata."""

    def __init__(self, files: Files, directories: Sequence[LogDirectory]) -> None:
        self._files = files
        self._directories = directories
        self.directory = directories[0].path
        self.entries: Entries = entries_of(read_files(JournalDisk(self.directory, files)).tree)
        self.cluster_id = znodes.parse_cluster_id(self.entries.copied[znodes.CLUSTER_ID].data)
        self.broker_id = self._broker_id()
        self.note = read_note(files, self.directory)

    def _broker_id(self) -> int:
        """Raises MigrationError if no directory names the broker."""
        for directory in self._directories:
            if directory.meta is not None and directory.meta.broker_id is not None:
                return directory.meta.broker_id
        raise MigrationError(f"{self.directory} has no meta.properties with the id of its broker")

    def check_owner(self, broker_id: int) -> None:
        """Raises MetaPropertiesError if a directory belongs to another broker or cluster."""
        for directory in self._directories:
            if directory.meta is not None:
                check_meta_properties(directory.path, directory.meta, broker_id, self.cluster_id)

    def write_note(self, note: MigrationNote) -> None:
        """Replaces the note durably."""
        write_note(self._files, self.directory, note)
        self.note = note


@contextmanager
def stopped_node(files: Files, paths: Sequence[str]) -> Iterator[StoppedNode]:
    """Keeps brokers away from the log directories. Raises MigrationError if one runs there, or if there are no metadata
    of a single node; StoreDamaged, MetaPropertiesError and OSError.
    """
    if not files.exists(os.path.join(paths[0], JOURNAL_NAME)):
        raise MigrationError(f"{paths[0]} has no {JOURNAL_NAME}: it is not the (first) data directory of a single node")
    directories = [LogDirectory(files, path) for path in dict.fromkeys(path.rstrip("/") or "/" for path in paths)]
    try:
        for directory in directories:
            _open(directory)
        yield StoppedNode(files, directories)
    finally:
        for directory in directories:
            directory.release()


def _open(directory: LogDirectory) -> None:
    try:
        directory.open()
    except DirectoryLocked as error:
        raise MigrationError(f"{error}: stop it first; nothing was copied") from error
