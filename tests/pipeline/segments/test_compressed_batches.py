"""Batches whose records do not inflate are errors that name the place and the reason, and can be skipped."""

from __future__ import annotations

import random
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments import reading
from odradek.protocol.compression import compress
from tests.pipeline.segments.batch_builder import batch, record
from tests.pipeline.segments.log_files import rows_of, write_log

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
VALUES = [b"%d" % number * 10 for number in range(20)]
PLAIN = b"".join(record(delta, b"k", value) for delta, value in enumerate(VALUES))


def values(directory: Path, codec: int, stream: bytes, count: int = len(VALUES)) -> list[bytes]:
    """The values of a log whose only batch has this stream."""
    log = write_log(directory, batch(0, [], attributes=codec, payload=stream, count=count))
    return [row["value"] for row in rows_of(log, "t")]


def test_an_unknown_codec_is_named_with_file_position_and_offset(tmp_path: Path) -> None:
    log = write_log(tmp_path, batch(0, [b"a"]) + batch(1, [b"b"], attributes=5))
    with pytest.raises(PipelineError, match=r"/0+\.log has a batch at position 70, offset 1, .*: codec 5 is unknown"):
        rows_of(log, "t")


@pytest.mark.parametrize(
    ("codec", "reason"),
    [
        (GZIP, "the gzip stream cannot be decompressed: .*incorrect header check"),
        (SNAPPY, "the snappy stream cannot be decompressed: "),
        (LZ4, "the stream is not an lz4 frame"),
        (ZSTD, "the zstd stream cannot be decompressed: .*Unknown frame descriptor"),
    ],
)
def test_an_invalid_stream_is_an_error_with_the_reason(tmp_path: Path, codec: int, reason: str) -> None:
    with pytest.raises(PipelineError, match=f"batch at position 0, offset 0, that cannot be read: {reason}"):
        values(tmp_path, codec, b"\x01no stream at all")


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_stream_cut_at_any_byte_is_an_error(tmp_path: Path, codec: int) -> None:
    stream = compress(codec, PLAIN)
    assert values(tmp_path, codec, stream) == VALUES
    for cut in range(len(stream)):
        with pytest.raises(PipelineError, match="batch at position 0, offset 0, that cannot be read"):
            values(tmp_path, codec, stream[:cut])


def test_a_zstd_frame_cut_after_its_last_record_is_an_error(tmp_path: Path) -> None:
    """The checksum is cut off: all records are present, but cannot be verified."""
    stream = zstandard.ZstdCompressor(write_checksum=True).compress(PLAIN)
    assert values(tmp_path, ZSTD, stream) == VALUES
    for cut in range(1, 5):
        with pytest.raises(PipelineError, match="that cannot be read: the zstd stream is truncated"):
            values(tmp_path, ZSTD, stream[:-cut])


def test_linked_lz4_blocks_are_an_error(tmp_path: Path) -> None:
    """As in Kafka's consumers. The library links no blocks where there is only one."""
    value = random.Random(1).randbytes(60_000)
    plain = b"".join(record(delta, b"k", value) for delta in range(3))
    for linked, small in ((False, False), (True, True)):
        stream = linked_frame(PLAIN if small else plain, linked)
        expected = VALUES if small else [value] * 3
        assert values(tmp_path, LZ4, stream, len(expected)) == expected
    with pytest.raises(PipelineError, match="that cannot be read: the blocks of the lz4 frame depend on each other"):
        values(tmp_path, LZ4, linked_frame(plain, True), 3)


def linked_frame(plain: bytes, linked: bool) -> bytes:
    return bytes(lz4.frame.compress(plain, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=linked))


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_a_batch_that_inflates_beyond_the_limit_is_an_error(
    tmp_path: Path, codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = compress(codec, PLAIN)
    monkeypatch.setattr(reading, "INFLATED_LIMIT", len(PLAIN))
    assert values(tmp_path, codec, stream) == VALUES
    monkeypatch.setattr(reading, "INFLATED_LIMIT", len(PLAIN) - 1)
    with pytest.raises(PipelineError, match=f"the stream inflates to more than {len(PLAIN) - 1} bytes"):
        values(tmp_path, codec, stream)


def test_an_unreadable_batch_can_be_skipped_as_the_error_suggests(tmp_path: Path) -> None:
    bad = batch(2, [b"", b""], attributes=ZSTD, payload=b"no stream")
    log = write_log(tmp_path, batch(0, [b"a", b"b"]) + bad + batch(4, [b"c"]))
    with pytest.raises(PipelineError) as caught:
        rows_of(log, "t")
    assert caught.value.remedy == "skip it: read up to 2 (endingOffsets), then from 4 (startingOffsets)"
    before = rows_of(log, "t", endingOffsets='{"t": {"0": 2}}')
    behind = rows_of(log, "t", startingOffsets='{"t": {"0": 4}}')
    assert [row["value"] for row in before + behind] == [b"a", b"b", b"c"]
