"""The list of a snapshot's files: one record per line, with checksums, in the format of the metadata journal.

    crc SP json LF      {"format": "odradek-broker-snapshot", "version": 1, "taken_ms": T, "broker_id": B,
                         "cluster_id": C, "files": K}
                        [path, size, modified_ns, crc]     K lines; paths are relative to the snapshot's data

That of a cluster has "format": "odradek-cluster-snapshot", and "broker_ids": [B, ...].

(A) The manifest is written last: a snapshot that was not completed has none.
(B) A file with its size and time of modification is the one that was listed. So is one with another time and the same
    content, because a copy of a snapshot need not keep the times. Small files are compared by their content anyway.
(C) Every difference is a SnapshotError, which names the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from odradek.broker.metadata_store.journal import encode_line, parse_line
from odradek.storage.files import Files

NAME = "odradek.snapshot"
FORMAT = "odradek-broker-snapshot"
FORMAT_OF_CLUSTERS = "odradek-cluster-snapshot"
VERSION = 1
SMALL_BYTES = 64 << 10
SLICE_BYTES = 1 << 20
TAKE_A_NEW_ONE = "take a new snapshot"


class SnapshotError(Exception):
    """A snapshot cannot be taken, kept, opened or used. The message says why, and what to do."""


class SnapshotFile(NamedTuple):
    """A file of the snapshot."""

    path: str
    size: int
    modified_ns: int
    crc: int


class Manifest(NamedTuple):
    """What the manifest says. `taken_ms` is the wall clock of the broker; `broker_ids` are those of a cluster, or the
    one of a broker.
    """

    taken_ms: int
    broker_ids: Sequence[int]
    cluster_id: str
    files: Sequence[SnapshotFile]
    is_of_cluster: bool = False

    def encoded(self) -> bytes:
        """Returns the content of the manifest."""
        header = {
            "format": FORMAT_OF_CLUSTERS if self.is_of_cluster else FORMAT,
            "version": VERSION,
            "taken_ms": self.taken_ms,
            **({"broker_ids": list(self.broker_ids)} if self.is_of_cluster else {"broker_id": self.broker_ids[0]}),
            "cluster_id": self.cluster_id,
            "files": len(self.files),
        }
        return b"".join([encode_line(header), *(encode_line(list(file)) for file in self.files)])


def parse_manifest(content: bytes, where: str) -> Manifest:
    """Raises SnapshotError if it is of another version, or was changed."""
    lines = content.splitlines(keepends=True)
    header = parse_line(lines[0]) if lines else None
    if not isinstance(header, dict) or header.get("format") not in (FORMAT, FORMAT_OF_CLUSTERS):
        raise SnapshotError(f"{where} is not the list of a snapshot's files: {TAKE_A_NEW_ONE}")
    if header.get("version") != VERSION:
        raise SnapshotError(
            f"{where} has version {header.get('version')}, but this Odradek reads version {VERSION}: {TAKE_A_NEW_ONE}"
        )
    try:
        files = [SnapshotFile(*_row(parse_line(line))) for line in lines[1:]]
        if len(files) != header["files"]:
            raise ValueError(f"{len(files)} files instead of {header['files']}")
        is_of_cluster = header["format"] == FORMAT_OF_CLUSTERS
        ids = [int(each) for each in (header["broker_ids"] if is_of_cluster else [header["broker_id"]])]
        return Manifest(int(header["taken_ms"]), ids, str(header["cluster_id"]), files, is_of_cluster)
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"{where} was changed or cut off ({error}): {TAKE_A_NEW_ONE}") from error


def _row(row: Any) -> Iterable[Any]:
    """Raises ValueError."""
    if row is None:
        raise ValueError("a checksum does not match")
    path, size, modified_ns, crc = row
    if any(part in ("", ".", "..") for part in str(path).split("/")):
        raise ValueError(f"{path!r} is not the path of a file in a snapshot")
    return str(path), int(size), int(modified_ns), int(crc)


def listed(files: Files, data: str, path: str) -> SnapshotFile:
    """Returns the entry of a file, after reading it. Raises OSError."""
    size, modified_ns = _size_and_time(files, f"{data}/{path}")
    return SnapshotFile(path, size, modified_ns, _crc(files, f"{data}/{path}"))


def check_time(files: Files, data: str, file: SnapshotFile) -> None:
    """Checks size and time, which needs no reading. Raises SnapshotError."""
    if _found(files, data, file) != (file.size, file.modified_ns):
        raise _changed(data, file)


def checked(files: Files, data: str, file: SnapshotFile) -> SnapshotFile:
    """Returns the entry with the time that the file has now (B). Raises SnapshotError, OSError."""
    size, modified_ns = _found(files, data, file)
    is_known = (size, modified_ns) == (file.size, file.modified_ns) and size > SMALL_BYTES
    if size != file.size or (not is_known and _crc(files, f"{data}/{file.path}") != file.crc):
        raise _changed(data, file)
    return file._replace(modified_ns=modified_ns)


def _found(files: Files, data: str, file: SnapshotFile) -> tuple[int, int]:
    try:
        return _size_and_time(files, f"{data}/{file.path}")
    except FileNotFoundError as error:
        raise SnapshotError(f"{data}/{file.path} of the snapshot is gone: {TAKE_A_NEW_ONE}") from error


def _changed(data: str, file: SnapshotFile) -> SnapshotError:
    return SnapshotError(f"{data}/{file.path} was changed since the snapshot was taken: {TAKE_A_NEW_ONE}")


def _size_and_time(files: Files, path: str) -> tuple[int, int]:
    _, size, modified_ns = files.version(path)
    return size, modified_ns


def _crc(files: Files, path: str) -> int:
    file = files.open(path)
    try:
        crc, position = 0, 0
        while data := file.read(position, SLICE_BYTES):
            crc = crc32c(data, crc)
            position += len(data)
        return crc
    finally:
        file.close()
