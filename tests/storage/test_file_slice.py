"""Slices of files: sending them to a socket, and how long their descriptors stay open."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import OsFiles
from tests.memory_files import ForgetfulFiles
from tests.patience import until
from tests.storage.small_logs import append, batch, open_small

CONTENT = bytes(range(256)) * 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def sliced(path: Path, position: int, length: int) -> FileSlice:
    """Returns a slice whose file is closed."""
    file = OsFiles().open(str(path))
    found = file.slice(position, length)
    file.close()
    assert found is not None
    assert len(found) == length
    return found


def received(ends: tuple[socket.socket, socket.socket], part: FileSlice) -> bytes:
    ours, theirs = ends
    data = b""
    while len(data) < len(part):
        sent = part.send(ours.fileno(), len(data), len(part) - len(data))
        while sent:
            data += (chunk := theirs.recv(sent))
            sent -= len(chunk)
    return data


def test_a_slice_is_sent(path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    assert received(ends, sliced(path, 1000, 700_000)) == CONTENT[1000:701_000]


@pytest.mark.parametrize("reason", [errno.EINVAL, errno.ENOSYS])
def test_a_slice_is_read_if_the_file_system_does_not_support_sendfile(
    path: Path, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    def refused(*_: int) -> int:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "sendfile", refused)
    assert received(ends, sliced(path, 1000, 700_000)) == CONTENT[1000:701_000]


def test_a_full_socket_raises_blocking_io_error(path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    part = sliced(path, 0, len(CONTENT))
    taken = part.send(ends[0].fileno(), 0, len(part))
    assert 0 < taken < len(part)
    with pytest.raises(BlockingIOError):
        part.send(ends[0].fileno(), taken, len(part) - taken)


def test_a_closed_socket_raises_connection_error(path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    with pytest.raises(ConnectionError):
        sliced(path, 0, 100).send(ends[0].fileno(), 0, 100)


def test_a_truncated_file_raises_eof_error(path: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    part = sliced(path, 1000, 500)
    os.truncate(path, 1200)
    assert part.send(ends[0].fileno(), 0, 500) == 200
    with pytest.raises(EOFError, match="ends before byte 1200"):
        part.send(ends[0].fileno(), 200, 300)


def test_the_descriptor_is_open_as_long_as_the_last_slice(path: Path) -> None:
    def is_open() -> bool:
        return any(Path(f"/proc/self/fd/{name}").resolve() == path for name in os.listdir("/proc/self/fd"))

    file = OsFiles().open(str(path))
    first, second = file.slice(0, 10), file.slice(10, 10)
    file.close()
    assert file.slice(0, 10) is None
    del first
    assert is_open()
    del second
    assert not is_open()


async def test_bytes_missing_from_the_page_cache_are_detected(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        try:
            os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
        except OSError:
            pytest.skip("this file system cannot tell what is cached")
        part = sliced(path, 1000, 700_000)
        assert part.is_cached(0, 1 << 20)

        def is_forgotten() -> bool:
            """Retried, because the kernel may keep pages that are on another processor's list."""
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return not part.is_cached(0, 1 << 20) and not part.is_cached(699_999, 1 << 20)

        await until(is_forgotten)


def test_a_large_read_returns_a_slice_and_a_small_one_bytes(
    tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    log = open_small(OsFiles(), str(tmp_path / "orders-0"))
    for number in range(100):
        append(log, batch(bytes([number]) * 5000))
    stored = (tmp_path / "orders-0" / "00000000000000000000.log").read_bytes()
    large = log.reader.read(3, 1 << 20, sendable=True).records
    assert isinstance(large, FileSlice)
    start = stored.index(bytes([3]) * 5000) - stored.index(bytes(5000))
    assert received(ends, large) == stored[start:]
    assert len(log.reader.read(3, SLICE_BYTES, sendable=True).records) == SLICE_BYTES
    assert log.reader.read(3, SLICE_BYTES - 1, sendable=True).records == stored[start : start + SLICE_BYTES - 1]
    assert log.reader.read(3, 1 << 20).records == stored[start:]
    log.close()


def test_a_read_returns_bytes_if_the_file_cannot_be_sent() -> None:
    log = open_small(ForgetfulFiles())
    for number in range(100):
        append(log, batch(bytes([number]) * 5000))
    assert log.reader.read(0, 1 << 20, sendable=True).records == log.reader.read(0, 1 << 20).records


def test_a_cold_sendable_read_caches_only_the_first_slice() -> None:
    files = ForgetfulFiles()
    log = open_small(files, segment_bytes=400_000)
    for number in range(100):
        append(log, batch(bytes([number]) * 5000))
    files.cold.add(log.segments[0].path(".log"))
    cold = log.reader.read(40, 10 << 20, may_block=False, sendable=True).cold
    assert cold is not None
    assert cold.length == SLICE_BYTES
