"""The five codecs, by the libraries that have them: each stream is decompressed in pieces, and compressed as a whole.

compression.py says how they behave, and imports this module with the first compressed batch.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from io import BytesIO
from typing import Any

import cramjam
import lz4.frame
import zstandard

from odradek.protocol.batch_header import Compression
from odradek.protocol.compression_errors import CompressionFailed, too_large
from odradek.protocol.snappy_elements import SnappyElements

# The largest output of one step of decompression.
CHUNK = 1 << 18

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_HEADER_BYTES = len(_XERIAL_HEADER)
_XERIAL_CHUNK = 32 * 1024
# Half of CHUNK, so that a piece makes at most CHUNK: its last element may be a literal as long as the input.
_SNAPPY_FEED = CHUNK // 2
_SNAPPY_REACH = 1 << 16
_LITERAL_OF_UINT16 = b"\xf4"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_RESERVED = 32, 16, 8, 4, 3
_LZ4_HEADER_BYTES = 7
_LZ4_STORED = 1 << 31
_LZ4_ONE_LITERAL = 1 << 4
_LZ4_END = bytes(4)
_LZ4_CHECKSUM_OF_NOTHING = b"\x05\x5d\xcc\x02"
_GZIP_MAGIC = b"\x1f\x8b\x08"
_GZIP_FEED = 1 << 14
# A stream's blocks (or frames) after the first are also limited, as if each held this much: each takes time, even an
# empty one.
_BYTES_A_BLOCK = 128
_INT32 = struct.Struct(">i")
_UINT16_LE = struct.Struct("<H")
_UINT32_LE = struct.Struct("<I")
_OF_THREAD = threading.local()
# A decompressor keeps the largest window it has used, so streams with larger windows do not use the thread's.
_KEPT_WINDOW = 8 << 20
Decompressors = Mapping[int, Callable[[memoryview, int], Iterator[bytes]]]
"""By codec: yields a stream in pieces of at most CHUNK bytes, up to about the given limit."""
BlockChunks = Callable[[memoryview, int, int], Generator[bytes, None, int]]
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
        position += len(fed) - len(member.unused_data if member.eof else member.unconsumed_tail)
        if not fed and not chunk and not member.eof:
            raise CompressionFailed("the gzip stream is truncated")
        yield chunk
    return position


def _whole_snappy_block(block: memoryview, limit: int, before: int) -> Generator[bytes, None, int]:
    """Yields a block, `before` of the stream's bytes being before it, and returns its size."""
    size = _snappy_size(block, limit, before)
    yield _snappy_block(block, size)
    return size


def _snappy_block_in_pieces(block: memoryview, limit: int, before: int) -> Generator[bytes, None, int]:
    """Yields a block as `_whole_snappy_block`, in pieces: each is a block of its own, which begins with the bytes that
    its copies may reach as a literal. A block that is damaged, or one of whose copies reaches further, is decompressed
    as a whole.
    """
    size = _snappy_size(block, limit, before)
    position, made, history = _length_of_size(block), 0, b""
    while made < size and size > CHUNK:
        data = bytes(block[position : position + _SNAPPY_FEED])
        elements = SnappyElements(data, _SNAPPY_FEED)
        if not elements.size or elements.reach > len(history) or made + elements.made > size:
            break
        literal = _LITERAL_OF_UINT16 + _UINT16_LE.pack(len(history) - 1) + history if history else b""
        piece = b"".join((_snappy_varint(len(history) + elements.made), literal, data[: elements.size]))
        whole = bytes(cramjam.snappy.decompress_raw(piece))
        yield whole[len(history) :]
        position += elements.size
        made += elements.made
        history = whole[-_SNAPPY_REACH:]
    if made < size or position < len(block) or not size:
        whole = _snappy_block(block, size)
        for start in range(made, size, CHUNK):
            yield whole[start : start + CHUNK]
    return size


def _snappy_size(block: memoryview, limit: int, before: int) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    # Three bytes can copy 64: a block that declares a larger output is damaged, so no memory is reserved for it.
    if size > 22 * len(block):
        raise CompressionFailed(f"a snappy block of {len(block)} bytes cannot hold {size}")
    if before + size > limit:
        raise too_large(limit)
    return size


def _snappy_block(block: memoryview, size: int) -> bytes:
    if size <= CHUNK:
        return bytes(cramjam.snappy.decompress_raw(block))
    whole = BytesIO()
    whole.seek(size - 1)
    whole.write(b"\x00")
    with whole.getbuffer() as room:
        cramjam.snappy.decompress_raw_into(block, room)
    return whole.getvalue()


def _length_of_size(block: memoryview) -> int:
    length = 1
    while length < len(block) and block[length - 1] >= 0x80:
        length += 1
    return length


def _snappy_varint(size: int) -> bytes:
    made = bytearray()
    while size >= 0x80:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    made.append(size)
    return bytes(made)


def _snappy_chunks(data: memoryview, limit: int, block_chunks: BlockChunks = _whole_snappy_block) -> Iterator[bytes]:
    """Kafka's reader takes a repeated header, and up to three bytes after the last block."""
    if not _is_xerial(data):
        yield from block_chunks(data, limit, 0)
        return
    position, total = _XERIAL_HEADER_BYTES, 0
    while len(data) - position >= 4:
        if _is_xerial(data[position:]):
            position += _XERIAL_HEADER_BYTES
            continue
        block = _xerial_block(data, position)
        total += yield from block_chunks(block, limit, total)
        position += 4 + len(block)


def _sent_snappy_chunks(
    data: memoryview, limit: int, block_chunks: BlockChunks = _whole_snappy_block
) -> Iterator[bytes]:
    if not _is_xerial(data):
        yield from block_chunks(data, limit, 0)
        return
    position, total, blocks = _XERIAL_HEADER_BYTES, 0, 0
    while position < len(data):
        if blocks > limit:
            raise too_large(limit)
        blocks += _BYTES_A_BLOCK
        block = _xerial_block(data, position)
        total += yield from block_chunks(block, limit, total)
        position += 4 + len(block)


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


def _lz4_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    """The blocks of a frame must not refer to each other or to a dictionary, even if they could."""
    if data[:4] != _LZ4_MAGIC:
        raise CompressionFailed("the stream is not an lz4 frame")
    if len(data) > 4 and data[4] & (_LZ4_INDEPENDENT | _LZ4_RESERVED) != _LZ4_INDEPENDENT:
        raise CompressionFailed("the blocks of the lz4 frame depend on each other or on a dictionary")
    frame = lz4.frame.LZ4FrameDecompressor()
    chunk = frame.decompress(data, CHUNK)
    yield chunk
    rest = b""
    while not frame.eof:
        chunk = frame.decompress(rest, CHUNK)
        if not chunk and not frame.eof:
            if rest or not _ends_in_stored_nothing(data, limit):
                raise CompressionFailed("the lz4 frame has no end mark")
            rest = _lz4_end(data)
        yield chunk


def _lz4_end(data: memoryview) -> bytes:
    """Returns what the library misses behind a block 0x80000000 that stands for the end mark."""
    return (_LZ4_CHECKSUM_OF_NOTHING if data[4] & _LZ4_BLOCK_CHECKSUMS else b"") + _LZ4_END


def _ends_in_stored_nothing(data: memoryview, limit: int) -> bool:
    """Whether the last block is 0x80000000, which Kafka's reader takes for the end mark."""
    return any(size == _LZ4_STORED and position == len(data) for position, size in _lz4_blocks(data, limit))


def _lz4_blocks(data: memoryview, limit: int) -> Iterator[tuple[int, int]]:
    """Yields the size of each block, with the flag of stored ones, and the position behind the size; 0 is the end mark,
    and the last. Ends where the frame is truncated.
    """
    if len(data) < _LZ4_HEADER_BYTES:
        return
    flags = data[4]
    position, blocks = _LZ4_HEADER_BYTES + (8 if flags & _LZ4_CONTENT_SIZE else 0), 0
    while len(data) - position >= 4:
        size = _UINT32_LE.unpack_from(data, position)[0]
        position += 4
        yield position, size
        if not size:
            return
        position += size % _LZ4_STORED + (4 if flags & _LZ4_BLOCK_CHECKSUMS else 0)
        if blocks > limit:
            raise too_large(limit)
        blocks += _BYTES_A_BLOCK


def _sent_lz4_chunks(data: memoryview, limit: int) -> Iterator[bytes]:
    _check_lz4_blocks(data, limit)
    return _lz4_chunks(data, limit)


def _check_lz4_blocks(data: memoryview, limit: int) -> None:
    """Refuses what the library leaves open: Kafka's reader takes an empty block for the end, and librdkafka accepts
    nothing behind the frame. A damaged frame is left to the library.
    """
    has_ended = False
    for position, size in _lz4_blocks(data, limit):
        if not size:
            if len(data) - position > (4 if data[4] & _LZ4_CONTENT_CHECKSUM else 0):
                raise CompressionFailed("bytes follow the lz4 frame")
            return
        is_empty = size == 1 and position < len(data) and data[position] < _LZ4_ONE_LITERAL
        if is_empty or (has_ended and size != _LZ4_STORED):
            raise CompressionFailed("an lz4 block is empty")
        has_ended = size == _LZ4_STORED


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
    return b"".join(_gzip_of_pieces([data], len(data), level))


def _gzip_of_pieces(pieces: Iterable[bytes | memoryview], size: int, level: int | None) -> Iterator[bytes]:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    yield from map(stream.compress, pieces)
    yield stream.flush()


def _snappy(data: bytes | memoryview, level: int | None) -> bytes:
    return b"".join([_XERIAL_HEADER, *_xerial_blocks(data)])


def _snappy_of_pieces(pieces: Iterable[bytes], size: int, level: int | None) -> Iterator[bytes]:
    yield _XERIAL_HEADER
    rest = b""
    for piece in pieces:
        data = rest + piece
        end = len(data) - len(data) % _XERIAL_CHUNK
        yield from _xerial_blocks(memoryview(data)[:end])
        rest = data[end:]
    yield from _xerial_blocks(rest)


def _xerial_blocks(data: bytes | memoryview) -> Iterator[bytes]:
    for start in range(0, len(data), _XERIAL_CHUNK):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_CHUNK]))
        yield _INT32.pack(len(block))
        yield block


def _lz4(data: bytes | memoryview, level: int | None) -> bytes:
    return lz4.frame.compress(data, store_size=False, **_lz4_options(level))  # type: ignore[no-any-return]


def _lz4_of_pieces(pieces: Iterable[bytes], size: int, level: int | None) -> Iterator[bytes]:
    frame = lz4.frame.LZ4FrameCompressor(**_lz4_options(level))
    yield frame.begin()
    yield from map(frame.compress, pieces)
    yield frame.flush()


def _lz4_options(level: int | None) -> dict[str, Any]:
    return {
        "compression_level": 0 if level is None else level,
        "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,
    }


def _zstd(data: bytes | memoryview, level: int | None) -> bytes:
    return _zstd_compressor(level).compress(data)


def _zstd_of_pieces(pieces: Iterable[bytes], size: int, level: int | None) -> Iterator[bytes]:
    stream = _zstd_compressor(level).compressobj(size=size)
    yield from map(stream.compress, pieces)
    yield stream.flush()


def _zstd_compressor(level: int | None) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=3 if level is None else level, write_content_size=True)


def _none(data: bytes | memoryview, level: int | None) -> bytes:
    return bytes(data)


def _none_of_pieces(pieces: Iterable[bytes], size: int, level: int | None) -> Iterator[bytes]:
    yield from pieces


DECOMPRESSORS: Decompressors = {
    Compression.GZIP: _gzip_chunks,
    Compression.SNAPPY: _snappy_chunks,
    Compression.LZ4: _lz4_chunks,
    Compression.ZSTD: _zstd_chunks,
}
DECOMPRESSORS_OF_SENT: Decompressors = {
    Compression.GZIP: _sent_gzip_chunks,
    Compression.SNAPPY: _sent_snappy_chunks,
    Compression.LZ4: _sent_lz4_chunks,
    Compression.ZSTD: _zstd_chunks,
}
DECOMPRESSORS_IN_PIECES: Decompressors = {
    **DECOMPRESSORS,
    Compression.SNAPPY: partial(_snappy_chunks, block_chunks=_snappy_block_in_pieces),
    Compression.ZSTD: _zstd_chunks_in_pieces,
}
DECOMPRESSORS_OF_SENT_IN_PIECES: Decompressors = {
    **DECOMPRESSORS_OF_SENT,
    Compression.SNAPPY: partial(_sent_snappy_chunks, block_chunks=_snappy_block_in_pieces),
    Compression.ZSTD: _zstd_chunks_in_pieces,
}
COMPRESSORS: dict[int, Callable[[bytes | memoryview, int | None], bytes]] = {
    Compression.NONE: _none,
    Compression.GZIP: _gzip,
    Compression.SNAPPY: _snappy,
    Compression.LZ4: _lz4,
    Compression.ZSTD: _zstd,
}
COMPRESSORS_OF_PIECES: dict[int, Callable[[Iterable[bytes], int, int | None], Iterator[bytes]]] = {
    Compression.NONE: _none_of_pieces,
    Compression.GZIP: _gzip_of_pieces,
    Compression.SNAPPY: _snappy_of_pieces,
    Compression.LZ4: _lz4_of_pieces,
    Compression.ZSTD: _zstd_of_pieces,
}
