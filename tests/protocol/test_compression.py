"""Streams that cost more than they hold."""

import gzip
import struct
import zlib
from typing import Any

import cramjam
import pytest

from odradek.protocol import compression
from odradek.protocol.compression import Compression, TooLarge, decompress


def test_many_small_gzip_members_are_handed_to_zlib_in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """zlib copies what it has not used: fed all at once, a megabyte of empty members took seconds."""
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

    monkeypatch.setattr(compression.zlib, "decompressobj", Counting)
    members = 5000
    assert decompress(Compression.GZIP, gzip.compress(b"a") * members, 1 << 20) == b"a" * members
    assert max(handed_over) <= 1 << 14
    assert len(handed_over) <= members + 1


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_too_much_is_told_with_the_limit_also_when_the_last_piece_passes_it(codec: Compression) -> None:
    piece = bytes(1000)
    if codec == Compression.GZIP:
        stream = gzip.compress(piece) * 4
    else:
        block = bytes(cramjam.snappy.compress_raw(piece))
        stream = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 4
    assert decompress(codec, stream, 4000) == bytes(4000)
    with pytest.raises(TooLarge, match="more than 3999 bytes"):
        decompress(codec, stream, 3999)
