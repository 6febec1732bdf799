"""What fails a test of faults: replicas that differ, and files with damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.agreement import assert_dump_finds_nothing, assert_equal_below, stored

KEY = TopicPartition("t", 0)


def log(directory: Path, *batches: bytes) -> Path:
    """A file with the batches of a partition."""
    path = directory / str(KEY) / f"{0:020}.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(batches))
    return path


def batch(offset: int, value: bytes) -> bytes:
    return build_batch([Record(offset, 1_000, None, value)], base_offset=offset)


def test_replicas_may_differ_only_from_the_high_watermark_on(tmp_path: Path) -> None:
    log(tmp_path / "1", batch(0, b"a"), batch(1, b"b"))
    log(tmp_path / "2", batch(0, b"a"), batch(1, b"c"))
    one, other = stored(tmp_path / "1", KEY), stored(tmp_path / "2", KEY)
    assert_equal_below(1, one, other, "t-0")
    with pytest.raises(AssertionError, match="t-0, offset 1 of 2"):
        assert_equal_below(2, one, other, "t-0")


def test_a_replica_without_a_log_does_not_agree(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="no log of t-0"):
        stored(tmp_path, KEY)


def test_a_dump_finds_a_damaged_batch(tmp_path: Path) -> None:
    path = log(tmp_path, batch(0, b"a"), batch(1, b"b"))
    assert_dump_finds_nothing([tmp_path])
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(AssertionError, match="isvalid: false"):
        assert_dump_finds_nothing([tmp_path])
