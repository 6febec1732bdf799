"""The end of a log that was cut, overwritten or padded; and damage that is not at the end."""

import struct
from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from tests.pipeline.segments.batch_builder import batch
from tests.pipeline.segments.log_files import Row, rows_of, write_log

GOOD = batch(0, [b"a", b"b"]) + batch(2, [b"c"])
LAST = batch(3, [b"d", b"e", b"f"])


def values(rows: list[Row]) -> list[bytes]:
    return [row["value"] for row in rows]


def read(path: Path) -> list[bytes]:
    return values(rows_of(path, "t"))


def test_a_log_cut_at_any_byte_ends_before_the_incomplete_batch(tmp_path: Path) -> None:
    for cut in range(len(LAST)):
        assert read(write_log(tmp_path, GOOD + LAST[:cut])) == [b"a", b"b", b"c"], cut
    assert read(write_log(tmp_path, GOOD + LAST)) == [b"a", b"b", b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_a_flipped_byte_in_the_last_batch_ends_the_log_there(tmp_path: Path, mask: int) -> None:
    unchecked = {*range(8), *range(12, 16)}  # base offset and leader epoch
    for at in set(range(len(LAST))) - unchecked:
        flipped = LAST[:at] + bytes([LAST[at] ^ mask]) + LAST[at + 1 :]
        assert read(write_log(tmp_path, GOOD + flipped)) == [b"a", b"b", b"c"], at


def test_a_base_offset_that_does_not_ascend_ends_the_log(tmp_path: Path) -> None:
    assert read(write_log(tmp_path, GOOD + batch(2, [b"x"]))) == [b"a", b"b", b"c"]
    assert read(write_log(tmp_path, GOOD + batch(2**31, [b"x"]))) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("tail", [bytes(500), b"\xff" * 100, bytes(11), b"\0" * 16 + b"\x02" + b"\0" * 60])
def test_bytes_after_the_log_that_are_no_batch_are_not_read(tmp_path: Path, tail: bytes) -> None:
    assert read(write_log(tmp_path, GOOD + tail)) == [b"a", b"b", b"c"]


def test_a_log_with_only_a_torn_batch_is_empty(tmp_path: Path) -> None:
    assert read(write_log(tmp_path, LAST[:-1])) == []
    assert read(write_log(tmp_path, b"")) == []


def test_several_torn_batches_are_ignored(tmp_path: Path) -> None:
    wrong = bytearray(batch(3, [b"x"]) + batch(4, [b"y"]))
    wrong[-1] ^= 1
    wrong[len(batch(3, [b"x"])) - 1] ^= 1
    assert read(write_log(tmp_path, GOOD + bytes(wrong))) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("cut", [1, 40, len(LAST) - 3])
def test_a_truncated_earlier_segment_is_an_error_with_file_and_position(tmp_path: Path, cut: int) -> None:
    log = write_log(tmp_path, GOOD + LAST[:-cut], (6, batch(6, [b"g"])))
    with pytest.raises(PipelineError, match=rf"/t-0/0{{20}}.log is damaged at position {len(GOOD)}: .*restore"):
        read(log)


def test_a_wrong_checksum_followed_by_good_batches_is_an_error(tmp_path: Path) -> None:
    wrong = bytearray(LAST)
    wrong[-2] ^= 1
    log = write_log(tmp_path, GOOD + bytes(wrong) + batch(6, [b"g"]))
    with pytest.raises(PipelineError, match=rf"position {len(GOOD)}: the checksum of the batch at offset 3 is wrong"):
        read(log)
    assert len(rows_of(log, "t", verifyCrc="false")) == 7


def test_garbage_followed_by_indexed_batches_is_an_error(tmp_path: Path) -> None:
    """The index's last entries are damaged as well, so that reading begins at the garbage."""
    far = batch(9, [b"j"])
    data = GOOD + bytes(70) + far
    log = write_log(tmp_path, data)
    entries = [(9, len(GOOD) + 70), *((10 + number, len(data) - 5 + number) for number in range(3))]
    (log / "t-0" / f"{0:020d}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    with pytest.raises(PipelineError, match=rf"position {len(GOOD)}: no batch starts there, but one does at"):
        read(log)


@pytest.mark.parametrize(
    "index", [b"", b"\xff" * 80, bytes(80), b"\0\0\0\1\0\0\0\x05" * 3, b"odd", struct.pack(">ii", 5, 9)]
)
def test_a_wrong_index_does_not_change_what_is_read(tmp_path: Path, index: bytes) -> None:
    log = write_log(tmp_path, GOOD + LAST)
    (log / "t-0" / f"{0:020d}.index").write_bytes(index)
    assert read(log) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    ranged = rows_of(log, "t", startingOffsets='{"t": {"0": 4}}')
    assert values(ranged) == [b"e", b"f"]
