"""Compressed streams that are expensive to read."""

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest

from odradek.protocol.codecs import CHUNK
from odradek.protocol.compression import Scratch, compress, decompress
from odradek.protocol.compression_errors import TooLarge
from odradek.protocol.records import Compression


def test_many_small_gzip_members_are_passed_to_zlib_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies its unused input: passed at once, a megabyte of empty members took seconds."""
    handed_over = []
    decompressor_of_zlib = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._member = decompressor_of_zlib(wbits)

        def decompress(self, data: bytes, most: int) -> bytes:
            handed_over.append(len(data))
            return self._member.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._member, name)

    monkeypatch.setattr(zlib, "decompressobj", Counting)
    members = 5000
    stream = memoryview(gzip.compress(b"a") * members)
    assert decompress(Compression.GZIP, stream, 1 << 20) == b"a" * members
    assert max(handed_over) <= 1 << 14
    assert len(handed_over) <= members + 1


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_output_beyond_the_limit_is_an_error_even_in_the_last_piece(codec: Compression) -> None:
    piece = bytes(1000)
    if codec == Compression.GZIP:
        stream = gzip.compress(piece) * 4
    else:
        block = bytes(cramjam.snappy.compress_raw(piece))
        stream = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 4
    assert decompress(codec, memoryview(stream), 4000) == bytes(4000)
    with pytest.raises(TooLarge, match="more than 3999 bytes"):
        decompress(codec, memoryview(stream), 3999)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec != Compression.NONE])
def test_consecutive_streams_inflate_into_the_same_memory(codec: Compression) -> None:
    scratch = Scratch()
    for size in (3 * CHUNK, 2 * CHUNK + 1, 10, 0, 4 * CHUNK):
        plain = random.Random(size).randbytes(size)
        stream = memoryview(compress(codec, plain))
        assert decompress(codec, stream, size, scratch)[: scratch.filled] == plain


def test_a_stream_does_not_overwrite_output_that_is_still_referenced() -> None:
    scratch = Scratch()
    streams = [memoryview(compress(Compression.ZSTD, bytes([byte]) * (2 * CHUNK))) for byte in (1, 2)]
    held = decompress(Compression.ZSTD, streams[0], 2 * CHUNK, scratch)
    other = decompress(Compression.ZSTD, streams[1], 2 * CHUNK, scratch)
    assert (set(held), set(other)) == ({1}, {2})


def test_a_stream_that_is_too_large_for_its_scratch_leaves_it_usable() -> None:
    scratch = Scratch()
    stream = memoryview(compress(Compression.ZSTD, bytes(3 * CHUNK)))
    with pytest.raises(TooLarge):
        decompress(Compression.ZSTD, stream, 2 * CHUNK, scratch)
    assert decompress(Compression.ZSTD, stream, 3 * CHUNK, scratch)[: scratch.filled] == bytes(3 * CHUNK)


def test_a_cleared_scratch_frees_its_memory() -> None:
    scratch = Scratch()
    stream = memoryview(compress(Compression.ZSTD, bytes(64 * CHUNK)))
    tracemalloc.start()
    try:
        decompress(Compression.ZSTD, stream, 64 * CHUNK, scratch)
        kept, _ = tracemalloc.get_traced_memory()
        scratch.clear()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept >= 64 * CHUNK
    assert left < CHUNK
