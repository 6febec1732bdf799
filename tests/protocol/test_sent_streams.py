"""Which streams of producers a leader accepts, and how the same streams are read in a log.

Kafka 3.9.1, its Java client and librdkafka were asked about each. What a leader accepts, both clients read to the end.
"""

from __future__ import annotations

import struct
from typing import Any

import lz4.block
import lz4.frame
import pytest
import zstandard

from odradek.protocol.codecs import CHUNK
from odradek.protocol.compression import decompress, decompressed_pieces
from odradek.protocol.compression_errors import CompressionFailed, TooLarge
from odradek.protocol.record import record_bytes
from odradek.protocol.records import Compression, Record, read_batch_header, read_records
from odradek.storage.cleaner.batches import batch_body
from tests.clients.bodies.streams import (
    FCOMMENT,
    FEXTRA,
    FHCRC,
    FNAME,
    RESERVED,
    SKIPPABLE_FRAME,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    gzip_member,
    lz4_frame,
    with_lz4_header_checksum,
    xerial_block,
    zstd_frame,
)
from tests.scenarios.hostile_batches import batch_of

PLAIN = b"some records, some records, some records"
ONE, OTHER = PLAIN[:20], PLAIN[20:]
END = bytes(4)
STORED_NOTHING = b"\0\0\0\x80"
"""A stored block without bytes. Kafka's reader takes it for the end mark, librdkafka ends with its input."""


def frame(**options: Any) -> bytes:
    return bytes(lz4.frame.compress(PLAIN, **{"block_linked": False} | options))


def lz4_of(*blocks: bytes, flags: int = 0x60, descriptor: bytes = b"\x40", end: bytes = END) -> bytes:
    header = with_lz4_header_checksum(b"\x04\x22\x4d\x18" + bytes([flags]) + descriptor + b"\0")
    return header + b"".join(blocks) + end


def lz4_block(plain: bytes) -> bytes:
    block = bytes(lz4.block.compress(plain, store_size=False))
    return struct.pack("<I", len(block)) + block


def changed(stream: bytes, at: int) -> bytes:
    at %= len(stream)
    return stream[:at] + bytes([stream[at] ^ 1]) + stream[at + 1 :]


BOTH_BLOCKS = lz4_block(ONE), lz4_block(OTHER)
OF_ALL_CLIENTS = {
    "gzip with every optional field": (Compression.GZIP, gzip_member(PLAIN, FHCRC | FEXTRA | FNAME | FCOMMENT)),
    "gzip and zeros": (Compression.GZIP, gzip_member(PLAIN) + bytes(3)),
    "gzip and junk": (Compression.GZIP, gzip_member(PLAIN) + b"junk" * 9),
    "xerial of two blocks": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(ONE) + xerial_block(OTHER)),
    "xerial with blocks of nothing": (
        Compression.SNAPPY,
        XERIAL_HEADER + b"\0\0\0\x01\0" + xerial_block(PLAIN) + b"\0\0\0\x01\0",
    ),
    "xerial of odd versions": (Compression.SNAPPY, XERIAL_MAGIC + b"\xff" * 8 + xerial_block(PLAIN)),
    "lz4 of two blocks": (Compression.LZ4, lz4_of(*BOTH_BLOCKS)),
    "lz4 with everything": (
        Compression.LZ4,
        frame(content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4 stored": (Compression.LZ4, lz4_of(struct.pack("<I", len(PLAIN) | 1 << 31) + PLAIN)),
    "lz4 of one stored byte": (Compression.LZ4, lz4_of(b"\x01\0\0\x80s", lz4_block(PLAIN[1:]))),
    "lz4 with another end mark": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, end=STORED_NOTHING)),
    "lz4 with two other end marks": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, end=STORED_NOTHING * 2)),
    "lz4 with both end marks": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, end=STORED_NOTHING + END)),
    "lz4 with its size and another end mark": (Compression.LZ4, frame(store_size=True)[:-4] + STORED_NOTHING),
    "lz4 with checksums of blocks and another end mark": (
        Compression.LZ4,
        frame(block_checksum=True)[:-4] + STORED_NOTHING,
    ),
    "zstd of two frames": (Compression.ZSTD, zstd_frame(ONE) + zstd_frame(OTHER)),
    "zstd between skippable frames": (Compression.ZSTD, SKIPPABLE_FRAME + zstd_frame(PLAIN) + SKIPPABLE_FRAME),
    "zstd with an empty frame": (Compression.ZSTD, zstd_frame(ONE) + zstd_frame(b"") + zstd_frame(OTHER)),
}
ONLY_IN_A_LOG = {
    "gzip of two members": (Compression.GZIP, gzip_member(ONE) + gzip_member(OTHER)),
    "gzip and an empty member": (Compression.GZIP, gzip_member(PLAIN) + gzip_member(b"")),
    "gzip behind an empty member": (Compression.GZIP, gzip_member(b"") + gzip_member(PLAIN)),
    "xerial with a second header": (
        Compression.SNAPPY,
        XERIAL_HEADER + xerial_block(ONE) + XERIAL_HEADER + xerial_block(OTHER),
    ),
    "xerial with a header at its end": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(PLAIN) + XERIAL_HEADER),
    "xerial and a byte": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(PLAIN) + bytes(1)),
    "xerial and three bytes": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(PLAIN) + b"\xff" * 3),
    "lz4 and a byte": (Compression.LZ4, frame() + b"\0"),
    "lz4 of two frames": (Compression.LZ4, frame() + lz4_frame(b"")),
    "lz4 and a skippable frame": (Compression.LZ4, frame() + SKIPPABLE_FRAME),
    "lz4 and a byte behind its checksum": (Compression.LZ4, frame(content_checksum=True) + b"\0"),
    "lz4 with an empty block at its end": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, b"\x01\0\0\0\0")),
    "lz4 with an empty block": (Compression.LZ4, lz4_of(BOTH_BLOCKS[0], b"\x01\0\0\0\0", BOTH_BLOCKS[1])),
    "lz4 with another empty block": (Compression.LZ4, lz4_of(BOTH_BLOCKS[0], b"\x01\0\0\0\x0f", BOTH_BLOCKS[1])),
    "lz4 with an empty stored block": (Compression.LZ4, lz4_of(BOTH_BLOCKS[0], STORED_NOTHING, BOTH_BLOCKS[1])),
}
DAMAGED = {
    "gzip with a reserved flag": (Compression.GZIP, gzip_member(PLAIN, RESERVED)),
    "gzip and a damaged member": (Compression.GZIP, gzip_member(PLAIN) + gzip_member(b"x")[:-1]),
    "xerial with a block of length 0": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(PLAIN) + END),
    "xerial with a block of length 0 first": (Compression.SNAPPY, XERIAL_HEADER + END + xerial_block(PLAIN)),
    "xerial with a block of length -1": (Compression.SNAPPY, XERIAL_HEADER + xerial_block(PLAIN) + b"\xff" * 4),
    "snappy and a byte": (Compression.SNAPPY, xerial_block(PLAIN)[4:] + b"\0"),
    "lz4 flagged as linked": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, flags=0x40)),
    "lz4 with a dictionary": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, flags=0x61, descriptor=b"\x40\x01\0\0\0")),
    "lz4 with a wrong content checksum": (Compression.LZ4, changed(frame(content_checksum=True), -1)),
    "lz4 with a wrong content size": (Compression.LZ4, with_lz4_header_checksum(changed(frame(store_size=True), 6))),
    "lz4 with a damaged block at its end": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, b"\x01\0\0\0\xff")),
    "lz4 without an end": (Compression.LZ4, lz4_of(*BOTH_BLOCKS, end=b"")),
    "lz4 with another end mark within a block": (
        Compression.LZ4,
        lz4_of(struct.pack("<I", 4 | 1 << 31) + STORED_NOTHING, end=b""),
    ),
    "lz4 with another end mark and its checksum": (
        Compression.LZ4,
        frame(content_checksum=True)[:-8] + STORED_NOTHING + frame(content_checksum=True)[-4:],
    ),
    "lz4 with another end mark and a wrong size": (
        Compression.LZ4,
        with_lz4_header_checksum(changed(frame(store_size=True), 6))[:-4] + STORED_NOTHING,
    ),
    "lz4 with a block behind another end mark": (
        Compression.LZ4,
        lz4_of(BOTH_BLOCKS[0], STORED_NOTHING, BOTH_BLOCKS[1], end=b""),
    ),
    "zstd and zeros": (Compression.ZSTD, zstd_frame(PLAIN) + bytes(3)),
    "zstd and the start of a frame": (Compression.ZSTD, zstd_frame(PLAIN) + zstd_frame(PLAIN)[:4]),
    "zstd with a wrong checksum": (
        Compression.ZSTD,
        changed(zstandard.ZstdCompressor(write_checksum=True).compress(PLAIN), -1),
    ),
}


def read(stream: tuple[Compression, bytes], *, is_sent: bool) -> bytes:
    codec, data = stream
    return decompress(codec, memoryview(data), 1 << 20, is_sent=is_sent)


@pytest.mark.parametrize("stream", OF_ALL_CLIENTS.values(), ids=OF_ALL_CLIENTS)
def test_a_stream_that_all_clients_read_is_accepted(stream: tuple[Compression, bytes]) -> None:
    for is_sent in (True, False):
        assert read(stream, is_sent=is_sent) == PLAIN
        assert b"".join(decompressed_pieces(stream[0], memoryview(stream[1]), is_sent=is_sent)) == PLAIN


@pytest.mark.parametrize("stream", ONLY_IN_A_LOG.values(), ids=ONLY_IN_A_LOG)
def test_a_stream_that_some_clients_do_not_read_is_refused_but_read_in_a_log(
    stream: tuple[Compression, bytes],
) -> None:
    with pytest.raises(CompressionFailed):
        read(stream, is_sent=True)
    assert read(stream, is_sent=False) == PLAIN
    assert b"".join(decompressed_pieces(stream[0], memoryview(stream[1]))) == PLAIN


def test_a_second_gzip_member_behind_a_long_one_is_found() -> None:
    """At the end of a member that takes several steps, zlib has its unused input under two names."""
    long = bytes(3 * CHUNK)
    stream = memoryview(gzip_member(long) + gzip_member(PLAIN))
    assert decompress(Compression.GZIP, stream, 1 << 20) == long + PLAIN
    with pytest.raises(CompressionFailed, match="a second member"):
        decompress(Compression.GZIP, stream, 1 << 20, is_sent=True)


def test_a_log_that_holds_such_a_batch_is_read_and_cleaned() -> None:
    """Kafka has acknowledged it."""
    records = b"".join(record_bytes(Record(key=b"k", value=b"v"), delta, 0) for delta in range(2))
    batch = batch_of(gzip_member(records[:10]) + gzip_member(records[10:]), 2, Compression.GZIP)
    header = read_batch_header(batch)
    assert [record.key for record in read_records(batch, 0, header)] == [b"k", b"k"]
    assert batch_body(batch, 0, header, 1 << 20) == records


MANY_BLOCKS = {
    "xerial": (Compression.SNAPPY, XERIAL_HEADER + b"\0\0\0\x01\0" * 2000),
    "lz4": (Compression.LZ4, lz4_of(b"\x01\0\0\x80s" * 2000)),
    "zstd of frames": (Compression.ZSTD, zstd_frame(b"") * 2000),
    "zstd of blocks": (Compression.ZSTD, b"\x28\xb5\x2f\xfd\0\x58" + bytes(3) * 2000 + b"\x01\0\0"),
}


@pytest.mark.parametrize("stream", MANY_BLOCKS.values(), ids=MANY_BLOCKS)
def test_blocks_that_hold_nothing_are_too_large_for_a_turn_at_some_time(stream: tuple[Compression, bytes]) -> None:
    """Each takes time. A batch that is too large for a turn of the event loop is decompressed in a thread."""
    codec, data = stream
    assert len(decompress(codec, memoryview(data), 1 << 18, is_sent=True)) <= 2000
    with pytest.raises(TooLarge):
        decompress(codec, memoryview(data), 1 << 17, is_sent=True)


@pytest.mark.parametrize("stream", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.parametrize("is_sent", [True, False])
def test_a_stream_that_is_damaged_or_of_another_form_is_refused(
    stream: tuple[Compression, bytes], is_sent: bool
) -> None:
    with pytest.raises(CompressionFailed):
        read(stream, is_sent=is_sent)
