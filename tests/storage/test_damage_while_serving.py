"""Files that change under a running broker: intact data is read, and damage is an error, never a silent gap."""

from typing import Any

import pytest

from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.records import iter_batches
from odradek.storage.log.log import Log
from odradek.storage.segment.segment import LogSegment
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import append, batch, bytes_of, open_small


@pytest.fixture
def files() -> ForgetfulFiles:
    return ForgetfulFiles()


def three_segments(files: ForgetfulFiles) -> tuple[Log, LogSegment]:
    """Returns a log of three segments, and the middle one."""
    log = open_small(files, segment_bytes=500, index_interval_bytes=100)
    while len(log.segments) < 3:
        append(log, batch(b"x" * 40))
    for segment in log.segments[:2]:
        segment.release()
    return log, log.segments[1]


def offsets_read(log: Log, offset: int) -> list[int]:
    return [header.base_offset for _, header in iter_batches(bytes_of(log.reader.read(offset, 1 << 20)))]


@pytest.mark.parametrize("damage", ["cut", "zeros"])
def test_reading_a_segment_that_lost_its_batches_is_an_error(
    files: ForgetfulFiles, logged: list[Any], damage: str
) -> None:
    log, middle = three_segments(files)
    first, last = middle.base_offset, log.segments[2].base_offset - 1
    content = files.content(middle.path(".log"))
    if damage == "cut":
        del content[100:]
    else:
        content[100:] = bytes(len(content) - 100)
    assert offsets_read(log, 0) == list(range(first))
    with pytest.raises(ProtocolError) as error:
        log.reader.read(last, 1 << 20)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "log not readable" in [entry["event"] for entry in logged]
    assert offsets_read(log, last + 1)[0] == last + 1
    assert append(log) == log.state.log_end_offset - 1


def test_files_not_named_by_an_offset_are_left_alone(files: ForgetfulFiles) -> None:
    log = open_small(files)
    append(log)
    log.close()
    for name in ("backup.log", "notes.index", "x.snapshot"):
        files.replace_file(f"/data/orders-0/{name}", b"mine")
    again = open_small(files)
    assert again.state.log_end_offset == 1
    for name in ("backup.log", "notes.index", "x.snapshot"):
        assert files.read_file(f"/data/orders-0/{name}") == b"mine"
