"""A partition's snapshot files: which there are, writing one, loading the newest that can be read."""

import structlog

from odradek.storage.files import Files, is_full
from odradek.storage.log_names import SNAPSHOT_SUFFIX, offset_file_name, offset_of_file
from odradek.storage.producer_snapshot import CorruptSnapshot, read_snapshot, write_snapshot
from odradek.storage.producer_state import ProducerState

_log = structlog.get_logger(__name__)


class ProducerSnapshots:
    """`offsets` are those with a file, ascending; `last_offset` the one up to which a new snapshot would say
    nothing new.
    """

    __slots__ = ("_files", "directory", "last_offset", "offsets", "unsynced")

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.directory = directory
        self.offsets: list[int] = []
        self.last_offset = 0
        self.unsynced: list[str] = []

    def path(self, offset: int) -> str:
        return f"{self.directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"

    def relocate(self, directory: str) -> None:
        """The files are in another folder now."""
        self.unsynced = [f"{directory}/{path.rpartition('/')[2]}" for path in self.unsynced]
        self.directory = directory

    def take_unsynced(self) -> list[str]:
        """The paths of those that are to be synced; the caller does so."""
        unsynced, self.unsynced = self.unsynced, []
        return unsynced

    def scan(self) -> None:
        names = self._files.list_directory(self.directory)
        offsets = [offset_of_file(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self.offsets = sorted(offset for offset in offsets if offset is not None)

    def take(self, state: ProducerState, *, sync: bool) -> bool:
        """Writes the state at its end offset if it has moved since the last snapshot, and says whether it has. Raises
        OSError.
        """
        offset = state.map_end_offset
        if offset <= self.last_offset:
            return False
        path = self.path(offset)
        self._files.replace_file(path, write_snapshot(state.producers.values()), sync=sync)
        if not sync:
            self.unsynced.append(path)
        if offset not in self.offsets:
            self.offsets.append(offset)
            self.offsets.sort()
        self.last_offset = offset
        return True

    def take_if_there_is_room(self, state: ProducerState, *, sync: bool) -> None:
        """A snapshot spares a replay; without one the replay begins at the one before. Raises OSError."""
        try:
            self.take(state, sync=sync)
        except OSError as error:
            if not is_full(error):
                raise
            _log.warning("producer snapshot not written", reason=str(error))

    def load_latest(self, state: ProducerState, log_start_offset: int, now_ms: int) -> None:
        """Fills an empty state from the newest snapshot that can be read; a corrupt one is removed."""
        while self.offsets:
            offset = self.offsets[-1]
            try:
                entries = read_snapshot(self._files.read_file(self.path(offset)))
            except (CorruptSnapshot, FileNotFoundError) as error:
                _log.warning("producer snapshot unusable", path=self.path(offset), reason=str(error))
                self.remove(offset)
                continue
            state.load(entries, now_ms)
            self.last_offset = state.map_end_offset = offset
            return
        self.last_offset = state.map_end_offset = log_start_offset

    def remove_strays(self, segment_base_offsets: list[int]) -> None:
        """Only segments' base offsets, and the newest snapshot behind them all, are places for a snapshot."""
        bases = set(segment_base_offsets)
        last_base = max(segment_base_offsets, default=-1)
        strays = [offset for offset in self.offsets if offset not in bases]
        for offset in strays:
            if offset != strays[-1] or offset < last_base:
                self.remove(offset)

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            self._files.remove(self.path(offset))

    def remove_outside(self, log_start_offset: int, log_end_offset: int) -> None:
        for offset in list(self.offsets):
            if offset > log_end_offset or offset <= log_start_offset:
                self.remove(offset)

    def release(self, offset: int) -> str | None:
        """Gives up the snapshot of a segment that is deleted; returns its path, if there is one."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        return self.path(offset)
