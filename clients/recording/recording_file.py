"""A file of recorded frames. docs/recordings.md has the format.

(A) A frame is one entry, or several if it is long: its pieces, each of at most PIECE_BYTES. The pieces of different
    connections may alternate. An entry has its own checksum.
(B) `RecordingWriter.write` returns when the operating system has the entry: it survives a kill -9 of the process, not
    the loss of power. A write that fails leaves no part of the entry behind, if the file can still be truncated.
(C) A file that was cut off, by a kill or a full disk, is read up to its last whole entry; `Recording.torn` says what
    was left out. Damage before the end of the file is an error, and so is a file of another kind or version.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import IntEnum
from os import SEEK_END
from typing import Any, BinaryIO, NamedTuple

from crc32c import crc32c

from odradek.storage.files import Files

MAGIC = b"ODRADREC"
VERSION = 1
PIECE_BYTES = 64 * 1024
LONGEST_HEAD = 64 * 1024
HEAD = struct.Struct(">8sHI")
"""The magic, the version, and the length of the JSON object that follows, with its CRC-32C."""
ENTRY = struct.Struct(">IIqIBB")
"""CRC-32C of the rest of the entry, length of the data, time in microseconds, connection, kind, flags."""
CHECKSUM = struct.Struct(">I")
MORE, REDACTED = 1, 2


class RecordingError(Exception):
    """The file cannot be used. The text is written for users."""


class Kind(IntEnum):
    OPENED = 1
    REQUEST = 2
    RESPONSE = 3
    CLOSED = 4


KINDS = frozenset(Kind)


class Entry(NamedTuple):
    """A whole frame without its length, or the beginning or end of a connection, whose data is a JSON object.

    `time_us` counts from the start of the recording."""

    kind: Kind
    connection: int
    time_us: int
    data: bytes
    is_redacted: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        """The object of a connection's beginning or end."""
        found: dict[str, Any] = json.loads(self.data)
        return found


class RecordingWriter:
    """Writes a new file. `about` is written into its head. Raises OSError."""

    def __init__(self, files: Files, path: str, about: dict[str, Any]) -> None:
        self._file = files.open(path, create=True, exclusive=True)
        text = json.dumps(about, separators=(",", ":")).encode()
        head = HEAD.pack(MAGIC, VERSION, len(text)) + text
        try:
            self._end = self._file.write([head, CHECKSUM.pack(crc32c(head))], 0)
        except OSError:
            self._file.close()
            files.remove(path)
            raise

    @property
    def size(self) -> int:
        return self._end

    def write(self, kind: Kind, connection: int, time_us: int, data: bytes, flags: int = 0) -> None:
        """Writes one entry (B). Raises OSError."""
        rest = ENTRY.pack(0, len(data), time_us, connection, kind, flags)[CHECKSUM.size :]
        checksum = CHECKSUM.pack(crc32c(data, crc32c(rest)))
        try:
            self._end += self._file.write([checksum, rest, data], self._end)
        except OSError:
            self._file.truncate(self._end)
            raise

    def close(self) -> None:
        self._file.close()


def pieces_of(data: bytes) -> Iterator[tuple[bytes, int]]:
    """Yields the pieces of a frame (A), each with MORE or 0."""
    for start in range(0, max(len(data), 1), PIECE_BYTES):
        yield data[start : start + PIECE_BYTES], MORE if start + PIECE_BYTES < len(data) else 0


class Recording:
    """Reads a file that is open for reading. Raises RecordingError for what is not a recording, and OSError."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self.path = path
        self.torn = ""
        """After the last entry: what the end of the file lacks, or an empty text."""
        self._stream = stream
        self._size = stream.seek(0, SEEK_END)
        stream.seek(0)
        self.about = _read_head(stream, path)
        self._start = stream.tell()

    @property
    def started_ms(self) -> int:
        """When the recording began, in milliseconds since 1970."""
        return int(self.about.get("startedMs", 0))

    def entries(self) -> Iterator[Entry]:
        """Yields what was recorded, in its order, from the start (C). Raises RecordingError where it is damaged."""
        begun: dict[tuple[int, Kind], list[bytes]] = {}
        for entry, flags in self._pieces():
            whose = (entry.connection, entry.kind)
            if flags & MORE:
                begun.setdefault(whose, []).append(entry.data)
                continue
            parts = begun.pop(whose, None)
            data = entry.data if parts is None else b"".join([*parts, entry.data])
            yield entry._replace(data=data, is_redacted=bool(flags & REDACTED))
            if entry.kind is Kind.CLOSED:
                for kind in (Kind.REQUEST, Kind.RESPONSE):
                    begun.pop((entry.connection, kind), None)

    def _pieces(self) -> Iterator[tuple[Entry, int]]:
        self.torn = ""
        position = self._start
        self._stream.seek(position)
        while position < self._size:
            left = self._size - position
            head = self._stream.read(ENTRY.size)
            if left < ENTRY.size:
                self._tear(position)
                return
            checksum, length, time_us, connection, kind, flags = ENTRY.unpack(head)
            data = self._stream.read(min(length, PIECE_BYTES))
            if len(data) < length or crc32c(data, crc32c(head[CHECKSUM.size :])) != checksum:
                if ENTRY.size + length < left:
                    raise RecordingError(f"{self.path} is damaged at byte {position}: a checksum is wrong")
                self._tear(position)
                return
            if kind not in KINDS:
                raise RecordingError(f"{self.path} has an entry of an unknown kind, {kind}, at byte {position}")
            yield Entry(Kind(kind), connection, time_us, data), flags
            position += ENTRY.size + length

    def _tear(self, position: int) -> None:
        self.torn = (
            f"{self.path} was cut off: its last {self._size - position} bytes, from byte {position} on, are not a "
            "whole entry and are left out"
        )


def _read_head(stream: BinaryIO, path: str) -> dict[str, Any]:
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise RecordingError(f"{path} is not a recording of `odradek record`")
    _, version, length = HEAD.unpack(head)
    if version != VERSION:
        raise RecordingError(f"{path} has version {version} of the format; this release reads version {VERSION}")
    text = stream.read(min(length, LONGEST_HEAD))
    if stream.read(CHECKSUM.size) != CHECKSUM.pack(crc32c(head + text)):
        raise RecordingError(f"{path} is damaged: its head has a wrong checksum")
    about: dict[str, Any] = json.loads(text)
    return about
