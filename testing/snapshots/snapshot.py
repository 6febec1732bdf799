"""A snapshot: a directory with the data of a broker, or of all brokers of a cluster, as it was at one instant.

    odradek.snapshot    the list of the files (manifest.py)
    data/               a log directory, as a broker leaves it that stopped at the instant
    data/broker-1/ ...  of a cluster: that of each broker; and the metadata store in data/store/

(A) Its files never change. A broker that starts from it has them under second names, where the file system can do that;
    what it changes, it copies first (storage/linked_files.py). So does the broker that the snapshot was taken of.
(B) Without a path the directory is temporary: it goes with the object, at the latest when the process ends.
(C) It has one `data`, also of a broker with several log.dirs. A broker that starts from it has all of it in its first.
"""

from __future__ import annotations

import weakref
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from odradek.broker.background.stepwise import Pace, Steps, finished
from odradek.storage.files import Files
from odradek.storage.linked_files import LinkingFiles
from odradek.storage.log.frozen import copying
from odradek.testing.process_directories import PROCESS_DIRECTORIES
from odradek.testing.snapshots.manifest import (
    NAME,
    Manifest,
    SnapshotError,
    check_time,
    checked,
    parse_manifest,
)

DATA = "data"
FILES_PER_TURN = 30
"""A file takes some twenty microseconds."""

_FILES = LinkingFiles()


class Snapshot:
    """`path` is the directory; `taken_at` is when it was taken, by the broker's clock. `broker_ids` are those of the
    brokers whose data it has; `is_of_cluster`: whether they were a cluster. Use it as a context manager, or
    call `remove`, to remove a temporary one early (B).
    """

    def __init__(self, path: Path, manifest: Manifest, *, is_temporary: bool = False) -> None:
        """See `load`."""
        self.path = path
        self.broker_ids = tuple(manifest.broker_ids)
        self.is_of_cluster = manifest.is_of_cluster
        self.cluster_id = manifest.cluster_id
        self.taken_at = datetime.fromtimestamp(manifest.taken_ms / 1000, UTC)
        self._manifest = manifest
        self._remove = weakref.finalize(self, PROCESS_DIRECTORIES.remove, str(path))
        if not is_temporary:
            self._remove.detach()

    @property
    def broker_id(self) -> int:
        """The id of the broker, or of the first one of a cluster."""
        return self.broker_ids[0]

    def __repr__(self) -> str:
        return f"Snapshot({str(self.path)!r}, taken at {self.taken_at:%Y-%m-%d %H:%M:%S})"

    @classmethod
    def load(cls, path: str | Path) -> Snapshot:
        """Opens a snapshot that was kept. Raises SnapshotError if it is of another version, or was changed."""
        directory = Path(path)
        where = str(directory / NAME)
        try:
            manifest = parse_manifest(_FILES.read_file(where), where)
            data = str(directory / DATA)
            return cls(directory, manifest._replace(files=[checked(_FILES, data, file) for file in manifest.files]))
        except FileNotFoundError as error:
            raise SnapshotError(f"{directory} is not a complete snapshot: it has no {NAME}") from error
        except OSError as error:
            raise SnapshotError(f"the snapshot in {directory} cannot be read: {error}") from error

    @property
    def size(self) -> int:
        """How many bytes the files have. Forks share them."""
        return sum(file.size for file in self._manifest.files)

    def save(self, path: str | Path) -> Snapshot:
        """Keeps it in a directory, which must be empty or new, and returns that snapshot. Raises SnapshotError."""
        directory = new_directory(path)
        finished(self.put_into(str(directory / DATA), _FILES))
        _FILES.replace_file(str(directory / NAME), self._manifest.encoded(), sync=False)
        return Snapshot.load(directory)

    def remove(self) -> None:
        """Removes a temporary directory now. Brokers that were started from it go on."""
        self._remove()

    def put_into(self, directory: str, files: Files, part: str = "") -> Steps[None]:
        """Gives a directory all files, or those below one `part` of the data. Raises SnapshotError."""
        data, pace, made = str(self.path / DATA), Pace(), set[str]()
        try:
            files.make_directories(directory)
            for file in self._manifest.files:
                if not file.path.startswith(part):
                    continue
                check_time(_FILES, data, file)
                path = file.path.removeprefix(part)
                folder = path.rpartition("/")[0]
                if folder and folder not in made:
                    files.make_directories(f"{directory}/{folder}")
                    made.add(folder)
                source, target = f"{data}/{file.path}", f"{directory}/{path}"
                if not files.link(source, target) and not files.reflink(source, target):
                    copying(_FILES, source, files, target)()
                if pace.step_ends(FILES_PER_TURN):
                    yield
        except OSError as error:
            raise SnapshotError(f"the snapshot in {self.path} cannot be put into {directory}: {error}") from error

    def content(self, path: str) -> bytes:
        """Returns a file of the data. Raises SnapshotError."""
        data = str(self.path / DATA)
        file = next((each for each in self._manifest.files if each.path == path), None)
        if file is None:
            raise SnapshotError(f"the snapshot in {self.path} has no {path}")
        try:
            checked(_FILES, data, file)
            return _FILES.read_file(f"{data}/{path}")
        except OSError as error:
            raise SnapshotError(f"the snapshot in {self.path} cannot be read: {error}") from error

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


def as_snapshot(snapshot: Snapshot | str | Path, *, of_cluster: bool) -> Snapshot:
    """Returns the snapshot, or that of a path. Raises SnapshotError, also if it is of the other kind."""
    found = snapshot if isinstance(snapshot, Snapshot) else Snapshot.load(snapshot)
    if found.is_of_cluster and not of_cluster:
        raise SnapshotError(
            f"the snapshot in {found.path} is of a cluster of {len(found.broker_ids)} brokers: start a cluster from "
            "it, with in_process_cluster or ClusterThread"
        )
    if of_cluster and not found.is_of_cluster:
        raise SnapshotError(
            f"the snapshot in {found.path} is of a single broker: start one from it, with in_process_broker or "
            "BrokerThread"
        )
    return found


def new_directory(path: str | Path | None) -> Path:
    """Creates the directory of a snapshot; a temporary one without a path. Raises SnapshotError."""
    if path is None:
        return Path(PROCESS_DIRECTORIES.make("snapshot-"))
    directory = Path(path)
    try:
        _FILES.make_directories(str(directory))
        if _FILES.list_directory(str(directory)):
            raise SnapshotError(f"{directory} is not empty: a snapshot needs a directory of its own")
    except OSError as error:
        raise SnapshotError(f"the snapshot cannot be kept in {directory}: {error}") from error
    return directory


def remove_directory(directory: Path) -> None:
    """Removes the directory of a snapshot that was not completed. Raises OSError."""
    PROCESS_DIRECTORIES.remove(str(directory))
    if _FILES.exists(str(directory)):
        _FILES.remove_tree(str(directory))
