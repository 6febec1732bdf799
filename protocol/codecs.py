"""The five codecs, by the libraries that have them: each stream is decompressed in pieces, and compressed as a whole.

compression.py says how they behave, and imports this module with the first compressed batch.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Generator, Iterator
from io import BytesIO

import cramjam
import lz4.frame
import zstandard

from odradek.protocol.batch_header import Compression
from odradek.protocol.compression_errors import CompressionFailed, too_large

# The largest output of one step of decompression.
CHUNK = 1 << 18

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_HEADER_BYTES = len(_XERIAL_HEADER)
_XERIAL_CHUNK = 32 * 1024
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_RESERVED = 32, 16, 8, 4, 3
_LZ4_HEADER_BYTES = 7
_LZ4_STORED = 1 << 31
_LZ4_ONE_LITERAL = 1 << 4
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_FEED = 1 << 14
# A stream's blocks (or frames) after the first are also limited, as if each held this much: each takes time, even an
# empty one.
_BYTES_A_BLOCK = 128
_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")
_OF_THREAD = threading.local()
# A decompressor keeps the largest window it has used, so streams with larger windows do not use the thread's.
_KEPT_WINDOW = 8 << 20
LIBRARY_ERRORS = (
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
    RuntimeError,
)


def _gzip_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    position = 0
    while True:
        position = yield from _gzip_member_chunks(data, position)
        if data[position : position + 3] != _GZIP_MAGIC:
            return


def _sent_gzip_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    end = yield from _gzip_member_chunks(data, 0)
    if data[end : end + 3] == _GZIP_MAGIC:
        raise CompressionFailed("the gzip stream has a second member, which librdkafka does not read")


def _gzip_member_chunks(data: memoryview, position: int) -> Generator[bytes, None, int]:
    """Returns the position behind the member. zlib copies its unused input: if all input were fed at once, many small
    members would take quadratic time.
    """
    member = zlib.decompressobj(wbits=31)
    while not member.eof:
        fed = data[position : position + _GZIP_FEED]
        chunk = member.decompress(fed, CHUNK)
        position += len(fed) - len(member.unconsumed_tail) - len(member.unused_data)
        if not fed and not chunk and not member.eof:
            raise CompressionFailed("the gzip stream is truncated")
        yield chunk
    return position


def _snappy_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    """Kafka's reader takes a repeated header, and up to three bytes after the last block."""
    if not _is_xerial(data):
        yield _snappy_block(data, limit, 0)
        return
    position, total = _XERIAL_HEADER_BYTES, 0
    while len(data) - position >= 4:
        if _is_xerial(data[position:]):
            position += _XERIAL_HEADER_BYTES
            continue
        block = _xerial_block(data, position)
        chunk = _snappy_block(block, limit, total)
        position += 4 + len(block)
        total += len(chunk)
        yield chunk


def _sent_snappy_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    if not _is_xerial(data):
        yield _snappy_block(data, limit, 0)
        return
    position, total, blocks = _XERIAL_HEADER_BYTES, 0, 0
    while position < len(data):
        if blocks > limit:
            raise too_large(limit)
        blocks += _BYTES_A_BLOCK
        block = _xerial_block(data, position)
        chunk = _snappy_block(block, limit, total)
        position += 4 + len(block)
        total += len(chunk)
        yield chunk


def _is_xerial(data: memoryview) -> bool:
    return data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC


def _xerial_block(data: memoryview, position: int) -> memoryview:
    """Returns the block whose length is at `position`."""
    start = position + 4
    if len(data) < start:
        raise CompressionFailed("the snappy stream is truncated")
    size = _INT32.unpack_from(data, position)[0]
    if not 0 < size <= len(data) - start:
        raise CompressionFailed(f"a snappy block of {size} bytes is empty, truncated or no block")
    return data[start : start + size]


def _snappy_block(block: memoryview, limit: int, before: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(block)
    # Three bytes can copy 64: a block that declares a larger output is damaged, so no memory is reserved for it.
    if size > 22 * len(block):
        raise CompressionFailed(f"a snappy block of {len(block)} bytes cannot hold {size}")
    if before + size > limit:
        raise too_large(limit)
    if size <= CHUNK:
        return bytes(cramjam.snappy.decompress_raw(block))
    whole = BytesIO()
    whole.seek(size - 1)
    whole.write(b"\x00")
    with whole.getbuffer() as room:
        cramjam.snappy.decompress_raw_into(block, room)
    return whole.getvalue()


def _lz4_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    """The blocks of a frame must not refer to each other or to a dictionary, even if they could."""
    if data[:4] != _LZ4_MAGIC:
        raise CompressionFailed("the stream is not an lz4 frame")
    if len(data) > 4 and data[4] & (_LZ4_INDEPENDENT | _LZ4_RESERVED) != _LZ4_INDEPENDENT:
        raise CompressionFailed("the blocks of the lz4 frame depend on each other or on a dictionary")
    frame = lz4.frame.LZ4FrameDecompressor()
    chunk = frame.decompress(data, CHUNK)
    yield chunk
    while not frame.eof:
        chunk = frame.decompress(b"", CHUNK)
        if not chunk and not frame.eof:
            raise CompressionFailed("the lz4 frame has no end mark")
        yield chunk


def _sent_lz4_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    _check_lz4_blocks(data, limit)
    return _lz4_chunks(data, limit)


def _check_lz4_blocks(data: memoryview, limit: int) -> None:
    """Refuses what the library leaves open: Kafka's reader takes an empty block for the end, and librdkafka accepts
    nothing behind the frame. A damaged frame is left to the library.
    """
    end = len(data)
    if end < _LZ4_HEADER_BYTES:
        return
    flags = data[4]
    position, blocks = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0), 0
    while end - position >= 4:
        size = _UINT32_LE.unpack_from(data, position)[0]
        position += 4
        if not size:
            if end - position > (4 if flags & _LZ4_CONTENT_CHECKSUM else 0):
                raise CompressionFailed("bytes follow the lz4 frame")
            return
        if size == _LZ4_STORED or (size == 1 and position < end and data[position] < _LZ4_ONE_LITERAL):
            raise CompressionFailed("an lz4 block is empty")
        position += size % _LZ4_STORED + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0)
        if blocks > limit:
            raise too_large(limit)
        blocks += _BYTES_A_BLOCK


def _zstd_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    window = _largest_window(data, limit)
    return _zstd_stream(_zstd_decompressor() if window <= _KEPT_WINDOW else zstandard.ZstdDecompressor(), data)


def _zstd_chunks_in_pieces(data: memoryview, limit: int) -> Iterator[bytes]:
    _largest_window(data, limit)
    return _zstd_stream(zstandard.ZstdDecompressor(), data)


def _zstd_stream(decompressor: zstandard.ZstdDecompressor, data: memoryview) -> Iterator[bytes]:
    reader = decompressor.stream_reader(data, read_across_frames=True)
    while chunk := reader.read(CHUNK):
        yield chunk


def _zstd_decompressor() -> zstandard.ZstdDecompressor:
    """Returns this thread's decompressor, as creating one takes a fifth of a batch's time. Each stream resets it."""
    if not hasattr(_OF_THREAD, "zstd"):
        _OF_THREAD.zstd = zstandard.ZstdDecompressor()
    return _OF_THREAD.zstd  # type: ignore[no-any-return]


def _largest_window(data: memoryview, limit: int) -> int:
    """Returns the largest window of the zstd frames, in bytes (RFC 8878). Raises CompressionFailed if one is truncated.

    The library's reader ends silently with its input, so the blocks' lengths are checked here.
    """
    position, end, window, frames = 0, len(data), 0, 0
    while position < end:
        if frames > limit:
            raise too_large(limit)
        frames += _BYTES_A_BLOCK
        if (
            end - position >= 8
            and data[position] >> 4 == 5
            and bytes(data[position + 1 : position + 4]) == b"\x2a\x4d\x18"
        ):
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
        else:
            frame = zstandard.get_frame_parameters(data[position : position + 18])
            window = max(window, frame.window_size)
            position = _end_of_zstd_frame(data, position, frame.has_checksum, limit)
    if position > end:
        raise CompressionFailed("the zstd stream is truncated")
    return window


def _end_of_zstd_frame(data: memoryview, position: int, has_checksum: bool, limit: int) -> int:
    position += zstandard.frame_header_size(data[position : position + 18])
    last, blocks = False, 0
    while not last:
        if blocks > limit:
            raise too_large(limit)
        blocks += _BYTES_A_BLOCK
        header = data[position : position + 3]
        if len(header) < 3:
            raise CompressionFailed("the zstd stream is truncated")
        value = int.from_bytes(header, "little")
        last = bool(value & 1)
        position += 3 + (1 if value >> 1 & 3 == 1 else value >> 3)
    return position + (4 if has_checksum else 0)


def _gzip(data: bytes | memoryview, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    return stream.compress(data) + stream.flush()


def _snappy(data: bytes | memoryview, level: int | None) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_CHUNK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    return lz4.frame.compress(  # type: ignore[no-any-return]
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )


def _zstd(data: bytes | memoryview, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=True).compress(data)


def _none(data: bytes | memoryview, level: int | None) -> bytes:
    return bytes(data)


DECOMPRESSORS: dict[int, Callable[[memoryview, int], Iterator[bytes]]] = {
    Compression.GZIP: _gzip_chunks,
    Compression.SNAPPY: _snappy_chunks,
    Compression.LZ4: _lz4_chunks,
    Compression.ZSTD: _zstd_chunks,
}
DECOMPRESSORS_IN_PIECES = DECOMPRESSORS | {Compression.ZSTD: _zstd_chunks_in_pieces}
DECOMPRESSORS_OF_SENT = DECOMPRESSORS | {
    Compression.GZIP: _sent_gzip_chunks,
    Compression.SNAPPY: _sent_snappy_chunks,
    Compression.LZ4: _sent_lz4_chunks,
}
COMPRESSORS: dict[int, Callable[[bytes | memoryview, int | None], bytes]] = {
    Compression.NONE: _none,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
