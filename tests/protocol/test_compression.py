"""Compressed streams that are expensive to read."""

import gzip
import random
import struct
import zlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from odradek.protocol.codecs import CHUNK
from odradek.protocol.compression import compress, compress_pieces, decompress, decompressed_pieces
from odradek.protocol.compression_errors import CompressionFailed, TooLarge
from odradek.protocol.records import Compression
from tests.soak import rounds

CODECS = [codec for codec in Compression if codec is not Compression.NONE]


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


def records_like(chance: random.Random, size: int) -> bytes:
    """Bytes that repeat words, some of them far apart."""
    words = [chance.randbytes(chance.randrange(2, 40)) for _ in range(500)]
    return b"".join(chance.choices(words, k=size // 10))[:size]


@pytest.mark.parametrize("is_sent", [True, False])
@pytest.mark.parametrize("codec", CODECS)
def test_pieces_are_the_whole_stream_and_none_is_longer_than_a_chunk(codec: Compression, is_sent: bool) -> None:
    chance = random.Random(codec)
    for size in (0, 10, CHUNK, CHUNK + 1, 5 * CHUNK):
        for plain in (bytes(size), chance.randbytes(size), records_like(chance, size)):
            stream = memoryview(compress(codec, plain))
            pieces = list(decompressed_pieces(codec, stream, size, is_sent=is_sent))
            assert b"".join(pieces) == plain
            assert max(map(len, pieces), default=0) <= CHUNK
            if size:
                with pytest.raises(TooLarge):
                    list(decompressed_pieces(codec, stream, size - 1, is_sent=is_sent))


@pytest.mark.parametrize("codec", CODECS)
def test_streams_whose_pieces_alternate_do_not_mix(codec: Compression) -> None:
    """Between two pieces of a large batch, other batches are decompressed in the same thread."""
    streams = [memoryview(compress(codec, bytes([byte]) * (3 * CHUNK))) for byte in (1, 2)]
    made = [b"", b""]
    for pieces in zip(*(decompressed_pieces(codec, stream) for stream in streams), strict=True):
        assert decompress(codec, streams[0], 3 * CHUNK) == b"\1" * (3 * CHUNK)
        made = [whole + piece for whole, piece in zip(made, pieces, strict=True)]
    assert made == [b"\1" * (3 * CHUNK), b"\2" * (3 * CHUNK)]


@pytest.mark.soak("5,000 damaged blocks of snappy", minutes=0.5)
def test_a_snappy_block_in_pieces_is_read_and_refused_as_the_whole() -> None:
    """Also if it is damaged, with the same error."""
    chance = random.Random(30)
    outcomes: Counter[bool] = Counter()
    for _ in range(rounds(60, in_soak=5_000)):
        size = chance.choice([1000, CHUNK + 1, 2 * CHUNK, 4 * CHUNK + 5])
        plain = chance.choice([bytes(size), chance.randbytes(size), records_like(chance, size)])
        block = bytearray(cramjam.snappy.compress_raw(plain))
        for _ in range(chance.randrange(3)):
            block[chance.randrange(len(block))] = chance.choice([0, 1, 0xFF, chance.randrange(256)])
        end = chance.choice([len(block), len(block), len(block), chance.randrange(len(block))])
        data = memoryview(bytes(block[:end]) + chance.choice([b"", b"", b"", b"more"]))
        whole, in_pieces = (result_of(read, data) for read in (decompress, joined))
        assert whole == in_pieces
        outcomes[isinstance(whole, bytes)] += 1
    assert min(outcomes[True], outcomes[False]) > 10


def joined(codec: int, data: memoryview, limit: int) -> bytes:
    return b"".join(decompressed_pieces(codec, data, limit))


def result_of(read: Callable[[int, memoryview, int], bytes], data: memoryview) -> bytes | str:
    try:
        return read(Compression.SNAPPY, data, 1 << 30)
    except CompressionFailed as error:
        return str(error)


def snappy_with_a_copy(reach: int) -> tuple[bytes, bytes]:
    """A block of several pieces whose last bytes are copied from this far before them, and its bytes."""
    start = random.Random(reach).randbytes(1 << 16)
    zeros = bytes(cramjam.snappy.compress_raw(bytes(4 * CHUNK)))[len(varint(4 * CHUNK)) :]
    size = len(start) + 4 * CHUNK + 4
    elements = b"\xf4\xff\xff" + start + zeros + b"\x0f" + reach.to_bytes(4, "little")
    plain = start + bytes(4 * CHUNK)
    return varint(size) + elements, plain + plain[-reach:][:4]


def varint(number: int) -> bytes:
    """An unsigned varint, as snappy's, of a number of 14 to 21 bits."""
    return bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14])


@pytest.mark.parametrize("reach", [4, 1 << 16, (1 << 16) + 1, 4 * CHUNK, 4 * CHUNK + (1 << 16)])
def test_a_snappy_block_whose_copies_reach_far_back_is_read(reach: int) -> None:
    """No encoder writes copies that reach beyond 64 KB, but both clients read them."""
    block, plain = snappy_with_a_copy(reach)
    assert joined(Compression.SNAPPY, memoryview(block), len(plain)) == plain


@pytest.mark.parametrize("codec", Compression)
def test_pieces_are_compressed_as_their_whole(codec: Compression) -> None:
    chance = random.Random(codec)
    for size in (0, 5, CHUNK + 1, 3 * CHUNK):
        plain = records_like(chance, size)
        pieces = [plain[start : start + 50_001] for start in range(0, size, 50_001)]
        stream, length = compress_pieces(codec, pieces, size, None, 1 << 30)
        assert length == len(stream)
        if codec is not Compression.ZSTD:  # whose blocks may begin elsewhere
            assert stream == compress(codec, plain)
        if codec is not Compression.NONE:
            assert decompress(codec, memoryview(stream), size) == plain


@pytest.mark.parametrize("codec", Compression)
def test_of_a_stream_that_is_too_long_only_the_beginning_is_kept(codec: Compression) -> None:
    pieces = [random.Random(number).randbytes(CHUNK) for number in range(8)]
    stream, length = compress_pieces(codec, pieces, 8 * CHUNK, None, 2 * CHUNK)
    assert len(stream) <= 2 * CHUNK
    assert length == pytest.approx(len(compress(codec, b"".join(pieces))), abs=100)
