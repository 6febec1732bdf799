"""The compressed streams of a batch's records as lists of parts: headers, blocks, members, frames and ends.

``parts_of(codec, pieces, rng)`` compresses the pieces in one of the ways that producers and libraries have.
``SPECIAL_PARTS`` are parts that a codec's format has or nearly has, and that some readers take and others do not.
``sealed`` computes the checksums again that damage to a header or a body has made wrong.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Sequence

import cramjam
import lz4.frame
import zstandard

from odradek.protocol.records import Compression

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
LZ4_MAGIC = b"\x04\x22\x4d\x18"
SKIPPABLE_FRAME = b"\x50\x2a\x4d\x18" + struct.pack("<i", 3) + b"any"
FHCRC, FEXTRA, FNAME, FCOMMENT, RESERVED = 2, 4, 8, 16, 32

Parts = list[bytes]


def gzip_member(plain: bytes, flags: int = 0) -> bytes:
    return b"".join(_gzip([plain], flags))


def xerial_block(plain: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(plain))
    return struct.pack(">i", len(block)) + block


def lz4_frame(plain: bytes) -> bytes:
    return bytes(lz4.frame.compress(plain, block_linked=False))


def zstd_frame(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(plain)


def _gzip(pieces: Sequence[bytes], flags: int) -> Parts:
    header = struct.pack("<3sBIBB", b"\x1f\x8b\x08", flags, 0, 0, 3)
    header += struct.pack("<H", 5) + b"extra" if flags & FEXTRA else b""
    header += b"name\0" if flags & FNAME else b""
    header += b"comment\0" if flags & FCOMMENT else b""
    header += struct.pack("<H", zlib.crc32(header) & 0xFFFF) if flags & FHCRC else b""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    bodies = [deflate.compress(piece) + deflate.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return [header, *bodies, deflate.flush(), _gzip_trailer(b"".join(pieces))]


def _gzip_trailer(plain: bytes) -> bytes:
    return struct.pack("<II", zlib.crc32(plain), len(plain) & 0xFFFFFFFF)


def _gzip_parts(pieces: Sequence[bytes], rng: random.Random) -> Parts:
    if rng.random() < 0.2:
        return [gzip_member(piece) for piece in pieces]
    return _gzip(pieces, rng.choice([0, 0, FNAME, FEXTRA, FHCRC, FNAME | FEXTRA | FCOMMENT | FHCRC]))


def _snappy_parts(pieces: Sequence[bytes], rng: random.Random) -> Parts:
    if rng.random() < 0.2:
        return [bytes(cramjam.snappy.compress_raw(b"".join(pieces)))]
    return [XERIAL_HEADER, *map(xerial_block, pieces)]


def _lz4_parts(pieces: Sequence[bytes], rng: random.Random) -> Parts:
    sizes = (lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX256KB, lz4.frame.BLOCKSIZE_MAX4MB)
    compressor = lz4.frame.LZ4FrameCompressor(
        block_size=rng.choice(sizes),
        block_linked=rng.random() < 0.1,
        content_checksum=rng.random() < 0.3,
        block_checksum=rng.random() < 0.3,
        auto_flush=True,
    )
    size = sum(map(len, pieces)) if rng.random() < 0.3 else 0
    return [compressor.begin(size), *map(compressor.compress, pieces), compressor.flush()]


def _zstd_parts(pieces: Sequence[bytes], rng: random.Random) -> Parts:
    with_size, with_checksum = rng.random() < 0.5, rng.random() < 0.3
    compressor = zstandard.ZstdCompressor(write_content_size=with_size, write_checksum=with_checksum)
    if rng.random() < 0.3:
        return [part for piece in pieces for part in _zstd_frame_parts(compressor.compress(piece), with_checksum)]
    stream = compressor.compressobj(sum(map(len, pieces)) if with_size else -1)
    whole = b"".join(stream.compress(piece) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for piece in pieces)
    return _zstd_frame_parts(whole + stream.flush(), with_checksum)


def _zstd_frame_parts(frame: bytes, with_checksum: bool) -> Parts:
    at = zstandard.frame_header_size(frame)
    parts, end = [frame[:at]], len(frame) - (4 if with_checksum else 0)
    while at < end:
        header = int.from_bytes(frame[at : at + 3], "little")
        size = 3 + (1 if header >> 1 & 3 == 1 else header >> 3)
        parts.append(frame[at : at + size])
        at += size
    return [*parts, frame[end:]]


def _plain_parts(pieces: Sequence[bytes], rng: random.Random) -> Parts:
    return list(pieces)


_PARTS: dict[int, Callable[[Sequence[bytes], random.Random], Parts]] = {
    Compression.NONE: _plain_parts,
    Compression.GZIP: _gzip_parts,
    Compression.SNAPPY: _snappy_parts,
    Compression.LZ4: _lz4_parts,
    Compression.ZSTD: _zstd_parts,
}
_ANY_BYTES = [b"\x00", b"\x00\x00", b"\x00\x00\x00", b"\x00" * 4, b"\x00" * 40, b"\xff", b"junk", b"junk" * 9]
SPECIAL_PARTS: dict[int, Parts] = {
    Compression.NONE: _ANY_BYTES,
    Compression.GZIP: [*_ANY_BYTES, gzip_member(b""), gzip_member(b"x"), b"\x1f\x8b\x08", b"\x00\x00\x00\xff\xff"],
    Compression.SNAPPY: [*_ANY_BYTES, xerial_block(b""), XERIAL_HEADER, struct.pack(">i", -1), b"\x00\x00\x00\x01"],
    Compression.LZ4: [
        *_ANY_BYTES,
        b"\x00\x00\x00\x80",
        b"\x01\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\x0f",
        lz4_frame(b""),
        lz4_frame(b"x"),
        SKIPPABLE_FRAME,
    ],
    Compression.ZSTD: [
        *_ANY_BYTES,
        b"\x00\x00\x00",
        b"\x02\x00\x00\x2a",
        b"\x01\x00\x00",
        zstd_frame(b""),
        zstd_frame(b"x"),
        SKIPPABLE_FRAME,
    ],
}


def parts_of(codec: int, pieces: Sequence[bytes], rng: random.Random) -> Parts:
    return _PARTS[codec](pieces, rng)


def sealed(codec: int, body: bytes) -> bytes:
    """``body`` with the checksum of an lz4 frame's header, or with the trailer of its first gzip member."""
    if codec == Compression.LZ4:
        return with_lz4_header_checksum(body)
    return _with_gzip_trailer(body) if codec == Compression.GZIP else body


def with_lz4_header_checksum(frame: bytes) -> bytes:
    if len(frame) < 7 or frame[:4] != LZ4_MAGIC:
        return frame
    end = 6 + (8 if frame[4] & 8 else 0) + (4 if frame[4] & 1 else 0)
    return frame[:end] + bytes([_xxh32(frame[4:end]) >> 8 & 0xFF]) + frame[end + 1 :]


def _with_gzip_trailer(stream: bytes) -> bytes:
    if stream[:4] != b"\x1f\x8b\x08\x00":
        return stream
    member = zlib.decompressobj(-15)
    try:
        plain = member.decompress(stream[10:])
    except zlib.error:
        return stream
    end = len(stream) - len(member.unused_data)
    return stream[:end] + _gzip_trailer(plain) + stream[end + 8 :] if member.eof else stream


def _xxh32(data: bytes) -> int:
    """xxHash's XXH32 of fewer than 16 bytes, with seed 0."""
    assert len(data) < 16
    value = 374761393 + len(data)
    words = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:words]):
        value = _rotated(value + word * 3266489917, 17) * 668265263
    for byte in data[words:]:
        value = _rotated(value + byte * 374761393, 11) * 2654435761
    for shift, factor in ((15, 2246822519), (13, 3266489917)):
        value &= 0xFFFFFFFF
        value = (value ^ value >> shift) * factor
    value &= 0xFFFFFFFF
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    value &= 0xFFFFFFFF
    return (value << bits | value >> 32 - bits) & 0xFFFFFFFF
