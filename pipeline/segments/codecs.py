"""Inflating the records of a batch, by the codec in its attributes.

gzip     members in a row are one stream; bytes that begin no member are passed over, as Java's reader does
snappy   xerial's framing (16 bytes of header, then chunks with an int32 length) or one raw block
lz4      one frame
zstd     frames in a row

What inflates beyond the limit is refused at the limit, so that a small batch cannot take all memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

LIMIT = 1 << 30
_STEP = 1 << 20
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16


class CannotInflate(Exception):
    """An unknown codec, or a stream that is not the codec's; `str` says which."""


def inflate(codec: int, data: bytes, limit: int = LIMIT) -> bytes:
    """The records as they were before compression. Raises CannotInflate."""
    name, chunks_of = _CODECS.get(codec, (f"codec {codec}", _unknown))
    try:
        chunks, size = [], 0
        for chunk in chunks_of(data):
            size += len(chunk)
            if size > limit:
                raise CannotInflate(f"its {name} stream inflates to more than {limit} bytes")
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    except ImportError as error:
        raise CannotInflate(f"it is compressed with {name}, and Python's {error.name} is not installed") from error
    except CannotInflate:
        raise
    except Exception as error:  # each library has errors of its own, some only RuntimeError
        raise CannotInflate(f"its {name} stream cannot be inflated: {error}") from error


def _unknown(data: bytes) -> Iterator[bytes]:
    raise CannotInflate("its codec is unknown: not none, gzip, snappy, lz4 or zstd")


def _gzip(data: bytes) -> Iterator[bytes]:
    rest = data
    while True:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            chunk = member.decompress(rest, _STEP)
            rest = member.unused_data if member.eof else member.unconsumed_tail
            if not chunk and not rest and not member.eof:
                raise CannotInflate("its gzip stream is cut")
            yield chunk
        if rest[:2] != b"\x1f\x8b":
            return


def _snappy(data: bytes) -> Iterator[bytes]:
    from cramjam import snappy

    if not data.startswith(_XERIAL):
        yield _snappy_block(snappy, data)
        return
    position = _XERIAL_HEADER
    while position < len(data):
        if data.startswith(_XERIAL, position):
            position += _XERIAL_HEADER
            continue
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > len(data) - position:
            raise CannotInflate("its snappy stream is cut")
        if size:
            yield _snappy_block(snappy, data[position : position + size])
        position += size


def _snappy_block(snappy: object, block: bytes) -> bytes:
    """A block tells its size first: one that cannot be (three bytes copy 64 at most) gets no memory."""
    if snappy.decompress_raw_len(block) > 22 * len(block):  # type: ignore[attr-defined]
        raise CannotInflate("its snappy stream is damaged")
    return bytes(snappy.decompress_raw(block))  # type: ignore[attr-defined]


def _lz4(data: bytes) -> Iterator[bytes]:
    from lz4.frame import LZ4FrameDecompressor

    frame = LZ4FrameDecompressor()
    yield frame.decompress(data, _STEP)
    while not frame.eof:
        chunk = frame.decompress(b"", _STEP)
        if not chunk and not frame.eof:
            raise CannotInflate("its lz4 stream is cut")
        yield chunk


def _zstd(data: bytes) -> Iterator[bytes]:
    """A frame that is cut ends without a word: then records are missing, which the decoding tells."""
    from zstandard import ZstdDecompressor

    reader = ZstdDecompressor().stream_reader(data, read_across_frames=True)
    while chunk := reader.read(_STEP):
        yield chunk


_CODECS: dict[int, tuple[str, Callable[[bytes], Iterator[bytes]]]] = {
    1: ("gzip", _gzip),
    2: ("snappy", _snappy),
    3: ("lz4", _lz4),
    4: ("zstd", _zstd),
}
