"""A partition's snapshot files: listing them, writing one, and loading the newest readable one."""

import structlog

from odradek.storage.file_names import SNAPSHOT_SUFFIX, offset_file_name, offset_of_file
from odradek.storage.files import Files, is_full
from odradek.storage.producers.producer_state import ProducerState
from odradek.storage.producers.snapshot_format import CorruptSnapshot, read_snapshot, write_snapshot

_log = structlog.get_logger(__name__)


class ProducerSnapshots:
    """`offsets`: the offsets that have a snapshot file, ascending. `last_offset`: the offset of the last snapshot taken
    or loaded; a new snapshot is needed only beyond it.
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
        """Updates the paths after the files were moved to another folder."""
        self.unsynced = [f"{directory}/{path.rpartition('/')[2]}" for path in self.unsynced]
        self.directory = directory

    def take_unsynced(self) -> list[str]:
        """Returns the paths of snapshots that are not synced yet. The caller must sync them."""
        unsynced, self.unsynced = self.unsynced, []
        return unsynced

    def scan(self) -> None:
        names = self._files.list_directory(self.directory)
        offsets = [offset_of_file(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self.offsets = sorted(offset for offset in offsets if offset is not None)

    def take(self, state: ProducerState, *, sync: bool) -> bool:
        """Writes the state at its end offset if it has advanced since the last snapshot, and returns whether it has.
        Raises OSError.
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
        """Takes a snapshot, but only logs a warning if the disk is full: without the snapshot, a replay starts at the
        previous one. Raises OSError.
        """
        try:
            self.take(state, sync=sync)
        except OSError as error:
            if not is_full(error):
                raise
            _log.warning("producer snapshot not written", reason=str(error))

    def load_latest(self, state: ProducerState, log_start_offset: int, now_ms: int) -> None:
        """Fills an empty state from the newest readable snapshot. Corrupt snapshots are removed."""
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
        """Removes snapshots that are neither at a segment's base offset nor the newest one after all base offsets."""
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
        """Stops tracking the snapshot of a deleted segment; returns its path, or None if it has no snapshot."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        return self.path(offset)
