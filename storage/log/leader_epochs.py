"""The start offset of each leader epoch (Kafka's LeaderEpochFileCache, KIP-101), stored in
`leader-epoch-checkpoint`.

A change is made in memory alone, so that a broker can become the leader of a thousand partitions, or truncate them,
without waiting for the disk. The file is written later, by a job in any thread (`take_write`). A crash before that
loses nothing, because every batch contains its epoch:

(A) The recovery point passes a batch only with a flush that has written the file, too (flushing.py). Epochs of batches
    below the recovery point are therefore in the file, and those above are read from the batches again.
(B) The file may still have entries of batches that were truncated. A truncation first lowers the recovery point, so
    recovery drops these entries, together with all others above the recovery point, before it reads the batches.
(C) An epoch without a batch may be lost. It says nothing about the log's records, and the next leader of the partition
    has a new one.
(D) A clean shutdown writes the file.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import structlog

from odradek.storage.checkpoint import CorruptCheckpoint, read_epochs, write_epochs
from odradek.storage.files import Files
from odradek.storage.log_offsets import EpochEndOffset

_log = structlog.get_logger(__name__)

UNDEFINED = EpochEndOffset(-1, -1)


class LeaderEpochs:
    """Entries (epoch, start offset), both strictly ascending. A change replaces the list `entries`.

    `is_known`: the file had content that could be read. Otherwise only the batches know the epochs.
    """

    __slots__ = ("_files", "_taken", "_writing", "_written", "_written_number", "entries", "is_known", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.entries: list[tuple[int, int]] = []
        self.is_known = False
        self._written: list[tuple[int, int]] | None = []  # None: unknown
        self._taken = 0
        self._written_number = 0
        self._writing = Lock()

    def load(self) -> None:
        """Reads the file. A corrupt file is logged and treated as empty (recovery restores it from the batches)."""
        try:
            self.is_known = self._files.exists(self.path) and self._files.size(self.path) > 0
            self._written = read_epochs(self._files, self.path)
        except CorruptCheckpoint as error:
            _log.warning("leader epochs unusable", reason=str(error))
            self.is_known = False
            self._written = None
        self.entries = []
        for epoch, start_offset in self._written or ():
            self.entries = _assigned(self.entries, epoch, start_offset)

    @property
    def latest_epoch(self) -> int:
        """-1 if there is no epoch."""
        return self.entries[-1][0] if self.entries else -1

    # ---- changes

    def assign(self, epoch: int, start_offset: int) -> None:
        """Starts the epoch at the offset and drops entries that contradict this."""
        entries = self.entries
        if not entries or entries[-1][0] != epoch or start_offset < entries[-1][1]:
            self.entries = _assigned(entries, epoch, start_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at `end_offset` or above."""
        if self.entries and self.entries[-1][1] >= end_offset:
            self.entries = [entry for entry in self.entries if entry[1] < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that ended before `start_offset`; the epoch that contains the offset now starts there."""
        older = [entry for entry in self.entries if entry[1] <= start_offset]
        if older:
            self.entries = [(older[-1][0], start_offset), *self.entries[len(older) :]]

    def clear(self) -> None:
        self.entries = []

    # ---- the file

    @property
    def is_written(self) -> bool:
        """Whether the file has these entries."""
        return self.entries == self._written

    def begin(self, epoch: int) -> None:
        """Writes the first epoch of a new log. The caller must sync the file. Raises OSError."""
        entries = [(epoch, 0)]
        write_epochs(self._files, self.path, entries, sync=False)
        self.entries = self._written = entries

    def take_write(self) -> Callable[[], None] | None:
        """Returns a function that writes and syncs the file, in any thread, or None if it is written. The function
        raises OSError.

        If two are written in the wrong order, the one that was taken later wins. If the log is moved meanwhile, the
        file is written where the log is then: its old path may belong to another log.
        """
        if self.is_written:
            return None
        self._taken += 1
        number = self._taken
        entries = self.entries

        def write() -> None:
            with self._writing:
                if number > self._written_number:
                    write_epochs(self._files, self.path, entries)
                    self._written = entries
                    self._written_number = number

        return write

    # ---- lookup

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Returns the largest known epoch not above `epoch`, and its end offset; (-1, -1) if unknown."""
        if epoch == UNDEFINED.epoch or not self.entries:
            return UNDEFINED
        if epoch == self.entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        floor = epoch
        for known, start_offset in self.entries:
            if known > epoch:
                return EpochEndOffset(floor, start_offset)
            floor = known
        return UNDEFINED


def _assigned(entries: list[tuple[int, int]], epoch: int, start_offset: int) -> list[tuple[int, int]]:
    kept = list(entries)
    while kept and (kept[-1][0] >= epoch or kept[-1][1] >= start_offset):
        kept.pop()
    return [*kept, (epoch, start_offset)]
