"""The start offset of each leader epoch (Kafka's LeaderEpochFileCache, KIP-101), stored in
`leader-epoch-checkpoint`.
"""

import structlog

from odradek.storage.checkpoint import CorruptCheckpoint, read_epochs, write_epochs
from odradek.storage.files import Files, is_full
from odradek.storage.log_offsets import EpochEndOffset

_log = structlog.get_logger(__name__)

UNDEFINED = EpochEndOffset(-1, -1)


class LeaderEpochs:
    """Entries (epoch, start offset), both strictly ascending. A change is written to the disk before it is made in
    memory. On a full disk, a change that the log's batches contain too (`may_wait`) is made in memory alone, until
    `write`.
    """

    __slots__ = ("_files", "entries", "is_written", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self.entries: list[tuple[int, int]] = []
        self.is_written = True

    def load(self) -> None:
        """Reads the file. A corrupt file is logged and treated as empty (recovery restores it from the batches)."""
        try:
            entries = read_epochs(self._files, self.path)
        except CorruptCheckpoint as error:
            _log.warning("leader epochs unusable", reason=str(error))
            entries = []
        self.entries = []
        for epoch, start_offset in entries:
            self.entries = _assigned(self.entries, epoch, start_offset)

    @property
    def latest_epoch(self) -> int:
        """-1 if there is no epoch."""
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, start_offset: int, *, may_wait: bool = False) -> None:
        """Starts the epoch at the offset and drops entries that contradict this. Raises OSError, without any change."""
        entries = self.entries
        if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
            return
        self._replace(_assigned(entries, epoch, start_offset), may_wait)

    def begin(self, epoch: int) -> None:
        """Writes the first epoch of a new log. The caller must sync the file. Raises OSError."""
        entries = [(epoch, 0)]
        write_epochs(self._files, self.path, entries, sync=False)
        self.entries = entries

    def truncate_from_end(self, end_offset: int, *, may_wait: bool = False) -> None:
        """Drops the epochs that start at `end_offset` or above."""
        self._replace([entry for entry in self.entries if entry[1] < end_offset], may_wait)

    def truncate_from_start(self, start_offset: int, *, may_wait: bool = False) -> None:
        """Drops the epochs that ended before `start_offset`; the epoch that contains the offset now starts there."""
        older = [entry for entry in self.entries if entry[1] <= start_offset]
        if older:
            self._replace([(older[-1][0], start_offset), *self.entries[len(older) :]], may_wait)

    def clear(self, *, may_wait: bool = False) -> None:
        self._replace([], may_wait)

    def write(self) -> None:
        """Writes changes that wait for disk space. Raises OSError."""
        if not self.is_written:
            write_epochs(self._files, self.path, self.entries)
            self.is_written = True

    def _replace(self, entries: list[tuple[int, int]], may_wait: bool) -> None:
        if entries == self.entries:
            return
        try:
            write_epochs(self._files, self.path, entries)
            self.is_written = True
        except OSError as error:
            if not (may_wait and is_full(error)):
                raise
            _log.warning("leader epochs write deferred", path=self.path, reason=str(error))
            self.is_written = False
        self.entries = entries

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
