"""The five codecs of a record batch, as Apache Kafka reads and writes them, with limited output.

A leader refuses the streams of producers that Kafka's Java client or librdkafka cannot read to the end. A stored stream
is read as Kafka reads it.

gzip     zlib's; bytes that do not begin a member may follow; a wrong trailer or a reserved flag fails.
         Stored: several consecutive members are one stream.
snappy   xerial's framing (16 bytes of header, then blocks with an int32 length) or one raw block; not the framing
         format. A block of length 0 fails, but a block may hold 0 bytes.
         Stored: the header may be repeated before a block, and up to three bytes may follow the last block.
lz4      one frame, whose checksums and content size are right, and whose blocks depend neither on each other nor on a
         dictionary; a skippable frame or a missing end mark fails. An end mark with the flag of stored blocks,
         0x80000000, ends a frame without a content checksum, also before the end mark proper. No other block is empty,
         and nothing follows the frame.
         Stored: bytes after the frame are ignored, and empty blocks are skipped.
zstd     everything the library reads: several frames, skippable frames, windows up to 128 MiB.

Decompression never holds more than the limit plus one chunk: a stream that inflates beyond the limit raises TooLarge
there.

The libraries (codecs.py) are imported with the first compressed batch, since many brokers never see one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from odradek.protocol.batch_header import Compression
from odradek.protocol.compression_errors import CompressionFailed, too_large

if TYPE_CHECKING:
    from odradek.protocol.codecs import Decompressors

NO_LIMIT = 1 << 62
"""Not that of primitives.py: a worker of Spark, which reads segments, imports as little as it can."""


def decompress(codec: int, data: memoryview, limit: int, *, is_sent: bool = False) -> bytes:
    """Returns the decompressed `data`.

    `is_sent`: the stream comes from a producer, so it must be one that all clients read.
    Raises TooLarge beyond `limit` bytes, CompressionFailed for a stream that is truncated, damaged or of another codec.
    """
    from odradek.protocol import codecs

    chunks_of = _decompressor(codecs.DECOMPRESSORS_OF_SENT if is_sent else codecs.DECOMPRESSORS, codec)
    try:
        return _collect(chunks_of(data, limit), limit)
    except codecs.LIBRARY_ERRORS as error:
        raise _failed(codec, error) from error


def decompressed_pieces(
    codec: int, data: memoryview, limit: int = NO_LIMIT, *, is_sent: bool = False
) -> Iterator[bytes]:
    """Yields the decompressed `data` in pieces of at most `codecs.CHUNK` bytes; a raw snappy block is one piece. Other
    streams may be decompressed between two pieces, and each piece in another thread.

    Raises as `decompress` does, while iterating.
    """
    from odradek.protocol import codecs

    chunks_of = _decompressor(
        codecs.DECOMPRESSORS_OF_SENT_IN_PIECES if is_sent else codecs.DECOMPRESSORS_IN_PIECES, codec
    )
    total = 0
    try:
        for chunk in chunks_of(data, limit):
            total += len(chunk)
            if total > limit:
                raise too_large(limit)
            yield chunk
    except codecs.LIBRARY_ERRORS as error:
        raise _failed(codec, error) from error


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Returns `data` as one stream of the codec; `level` None is the codec's default (Kafka's compression.*.level)."""
    from odradek.protocol import codecs

    try:
        return codecs.COMPRESSORS[codec](data, level)
    except KeyError:
        raise CompressionFailed(f"codec {codec} is unknown") from None


def compress_pieces(
    codec: int, pieces: Iterable[bytes], size: int, level: int | None, most_bytes: int
) -> tuple[bytes, int]:
    """Compresses pieces of `size` bytes in total as `compress` does their whole, and holds one at a time. Returns the
    stream and its length; beyond `most_bytes`, only its beginning and its length.
    """
    from odradek.protocol import codecs

    stream, total = BytesIO(), 0
    for chunk in codecs.COMPRESSORS_OF_PIECES[codec](pieces, size, level):
        total += len(chunk)
        if total <= most_bytes:
            stream.write(chunk)
    return stream.getvalue(), total


def _decompressor(table: Decompressors, codec: int) -> Callable[[memoryview, int], Iterator[bytes]]:
    chunks_of = table.get(codec)
    if chunks_of is None:
        raise CompressionFailed(f"codec {codec} is unknown")
    return chunks_of


def _failed(codec: int, error: Exception) -> CompressionFailed:
    return CompressionFailed(f"the {Compression(codec).name.lower()} stream cannot be decompressed: {error}")


def _collect(chunks: Iterator[bytes], limit: int) -> bytes:
    """Joins the chunks. BytesIO grows in place and returns its memory, so that no byte is held twice."""
    first = next(chunks, b"")
    total = len(first)
    whole: BytesIO | None = None
    for chunk in chunks:
        total += len(chunk)
        if total > limit:
            break
        if whole is None:  # most streams have one chunk
            whole = BytesIO()
            whole.write(first)
        whole.write(chunk)
    if total > limit:
        raise too_large(limit)
    return first if whole is None else whole.getvalue()
