"""A recording is read up to where it was cut off, and nothing else is taken for one."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from odradek.clients.recording.recording_file import (
    ENTRY,
    MORE,
    PIECE_BYTES,
    REDACTED,
    Entry,
    Kind,
    Recording,
    RecordingError,
    RecordingWriter,
    pieces_of,
)
from odradek.storage.files import Buffer, OsFile, OsFiles

ENTRIES = [
    Entry(Kind.OPENED, 1, 5, b'{"client":"a"}'),
    Entry(Kind.REQUEST, 1, 7, b"request"),
    Entry(Kind.RESPONSE, 1, 9, b"", is_redacted=True),
    Entry(Kind.CLOSED, 1, 11, b"{}"),
]


def write(path: Path, entries: Sequence[Entry] = ENTRIES) -> bytes:
    writer = RecordingWriter(OsFiles(), str(path), {"startedMs": 42})
    for entry in entries:
        for piece, more in pieces_of(entry.data):
            flags = more | (REDACTED if entry.is_redacted else 0)
            writer.write(entry.kind, entry.connection, entry.time_us, piece, flags)
    writer.close()
    return path.read_bytes()


def read(data: bytes) -> tuple[list[Entry], str]:
    recording = Recording(BytesIO(data), "the file")
    return list(recording.entries()), recording.torn


def test_what_is_written_is_read(tmp_path: Path) -> None:
    data = write(tmp_path / "file")
    recording = Recording(BytesIO(data), "the file")
    assert recording.started_ms == 42
    assert (list(recording.entries()), recording.torn) == (ENTRIES, "")


def test_a_file_that_was_cut_off_anywhere_is_read_up_to_its_last_whole_entry(tmp_path: Path) -> None:
    data = write(tmp_path / "file")
    starts = [len(data) - sum(ENTRY.size + len(entry.data) for entry in ENTRIES[index:]) for index in range(5)]
    for end in range(starts[0], len(data)):
        whole = sum(start <= end for start in starts[1:])
        entries, torn = read(data[:end])
        assert entries == ENTRIES[:whole]
        last = starts[whole]
        wanted = "" if end == last else f"its last {end - last} bytes, from byte {last} on, are not a whole entry"
        assert wanted in torn
        assert bool(torn) == bool(wanted)


def test_zeros_at_the_end_are_cut_off(tmp_path: Path) -> None:
    entries, torn = read(write(tmp_path / "file") + bytes(ENTRY.size))
    assert entries == ENTRIES
    assert f"its last {ENTRY.size} bytes" in torn


def test_damage_before_the_end_is_an_error(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "file"))
    position = data.index(b"request")
    data[position] ^= 1
    with pytest.raises(
        RecordingError, match=f"the file is damaged at byte {position - ENTRY.size}: a checksum is wrong"
    ):
        read(bytes(data))


@pytest.mark.parametrize("data", [b"", b"ODRADREC", b'{"json": true}' * 10, bytes(100)])
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(RecordingError, match="the file is not a recording of `odradek record`"):
        read(data)


def test_another_version_is_refused(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "file"))
    data[9] = 2
    with pytest.raises(RecordingError, match="has version 2 of the format; this release reads version 1"):
        read(bytes(data))


def test_a_damaged_head_is_refused(tmp_path: Path) -> None:
    data = bytearray(write(tmp_path / "file"))
    data[data.index(b"42")] ^= 1
    with pytest.raises(RecordingError, match="its head has a wrong checksum"):
        read(bytes(data))


def test_the_pieces_of_long_frames_may_alternate(tmp_path: Path) -> None:
    one, other = (bytes([value]) * (2 * PIECE_BYTES + value) for value in (1, 0))
    writer = RecordingWriter(OsFiles(), str(tmp_path / "file"), {})
    for (piece, more), (second, more_of_second) in zip(pieces_of(one), [*pieces_of(other), (b"", 0)], strict=False):
        writer.write(Kind.REQUEST, 1, 1, piece, more)
        if second:
            writer.write(Kind.REQUEST, 2, 2, second, more_of_second)
    writer.close()
    entries, torn = read((tmp_path / "file").read_bytes())
    assert {entry.connection: entry.data for entry in entries} == {1: one, 2: other}
    assert not torn


def test_a_frame_whose_end_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    writer = RecordingWriter(OsFiles(), str(tmp_path / "file"), {})
    writer.write(Kind.REQUEST, 1, 1, b"begun", MORE)
    writer.write(Kind.CLOSED, 1, 2, b"{}")
    writer.write(Kind.REQUEST, 1, 3, b"other")
    writer.close()
    entries, _ = read((tmp_path / "file").read_bytes())
    assert [entry.data for entry in entries] == [b"{}", b"other"]


class FullDisk(OsFiles):
    """Writes only the first half of what exceeds `room` bytes."""

    room = 1 << 30

    def open(self, path: str, *, create: bool = False, exclusive: bool = False) -> Any:
        file = super().open(path, create=create, exclusive=exclusive)
        assert isinstance(file, OsFile)
        return _Full(self, file)


class _Full:
    def __init__(self, disk: FullDisk, file: OsFile) -> None:
        self._disk, self._file = disk, file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, parts: Sequence[Buffer], position: int) -> int:
        data = b"".join(parts)
        if position + len(data) > self._disk.room:
            self._file.write([data[: len(data) // 2]], position)
            raise OSError(errno.ENOSPC, "No space left on device", self._file.path)
        return self._file.write([data], position)


def test_an_entry_that_does_not_fit_on_the_disk_leaves_no_part_behind(tmp_path: Path) -> None:
    disk = FullDisk()
    writer = RecordingWriter(disk, str(tmp_path / "file"), {})
    writer.write(Kind.REQUEST, 1, 1, b"fits")
    disk.room = writer.size + 10
    with pytest.raises(OSError, match="No space"):
        writer.write(Kind.REQUEST, 1, 2, b"does not fit")
    writer.close()
    assert read((tmp_path / "file").read_bytes()) == ([Entry(Kind.REQUEST, 1, 1, b"fits")], "")


def test_a_recording_needs_a_new_file(tmp_path: Path) -> None:
    write(tmp_path / "file")
    with pytest.raises(FileExistsError):
        write(tmp_path / "file")
