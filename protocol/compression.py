"""The five codecs of a record batch, as Apache Kafka reads and writes them, with limited output.

A leader refuses the streams of producers that Kafka's Java client or librdkafka cannot read to the end. A stored stream
is read as Kafka reads it.

gzip     zlib's; bytes that do not begin a member may follow; a wrong trailer or a reserved flag fails.
         Stored: several consecutive members are one stream.
snappy   xerial's framing (16 bytes of header, then blocks with an int32 length) or one raw block; not the framing
         format. A block of length 0 fails, but a block may hold 0 bytes.
         Stored: the header may be repeated before a block, and up to three bytes may follow the last block.
lz4      one frame, whose checksums and content size are right, and whose blocks depend neither on each other nor on a
         dictionary; a skippable frame or a missing end mark fails. No block is empty, and nothing follows the frame.
         Stored: bytes after the frame are ignored.
zstd     everything the library reads: several frames, skippable frames, windows up to 128 MiB.

Decompression never holds more than the limit plus one chunk: a stream that inflates beyond the limit raises TooLarge
there.

The libraries (codecs.py) are imported with the first compressed batch, since many brokers never see one.
"""

from collections.abc import Iterator
from io import BytesIO

from odradek.protocol.batch_header import Compression
from odradek.protocol.compression_errors import CompressionFailed, too_large

_ANY_SIZE = 1 << 62


class Scratch:
    """Memory that several streams reuse, since touching fresh memory takes longer than decompressing.

    While a reference to the last stream's output exists, the next stream gets new memory.
    """

    def __init__(self) -> None:
        self._whole = BytesIO()
        self.filled = 0
        """The length of the last stream's output within the bytes that `decompress` returned."""

    def begin(self) -> BytesIO:
        """Returns the buffer for the next stream's bytes, at position 0."""
        self._whole.seek(0)
        return self._whole

    @property
    def size_in_bytes(self) -> int:
        """The length of the largest output since `clear`."""
        return len(self._whole.getvalue())

    def clear(self) -> None:
        """Releases the memory."""
        self._whole = BytesIO()


def decompress(
    codec: int, data: memoryview, limit: int, scratch: Scratch | None = None, *, is_sent: bool = False
) -> bytes:
    """Returns the decompressed `data`. With `scratch`, only the first `scratch.filled` bytes are valid.

    `is_sent`: the stream comes from a producer, so it must be one that all clients read.
    Raises TooLarge beyond `limit` bytes, CompressionFailed for a stream that is truncated, damaged or of another codec.
    """
    from odradek.protocol import codecs

    chunks_of = (codecs.DECOMPRESSORS_OF_SENT if is_sent else codecs.DECOMPRESSORS).get(codec)
    if chunks_of is None:
        raise CompressionFailed(f"codec {codec} is unknown")
    try:
        return _collect(chunks_of(data, limit), limit, scratch)
    except codecs.LIBRARY_ERRORS as error:
        raise _failed(codec, error) from error


def decompressed_pieces(codec: int, data: memoryview) -> Iterator[bytes]:
    """Yields the decompressed `data`, of any size, in pieces of at most `codecs.CHUNK` bytes; a raw snappy block is one
    piece. Other streams may be decompressed between two pieces.

    Raises CompressionFailed as `decompress` does, while iterating.
    """
    from odradek.protocol import codecs

    chunks_of = codecs.DECOMPRESSORS_IN_PIECES.get(codec)
    if chunks_of is None:
        raise CompressionFailed(f"codec {codec} is unknown")
    try:
        yield from chunks_of(data, _ANY_SIZE)
    except codecs.LIBRARY_ERRORS as error:
        raise _failed(codec, error) from error


def compress(codec: int, data: bytes | memoryview, level: int | None = None) -> bytes:
    """Returns `data` as one stream of the codec; `level` None is the codec's default (Kafka's compression.*.level)."""
    from odradek.protocol import codecs

    try:
        return codecs.COMPRESSORS[codec](data, level)
    except KeyError:
        raise CompressionFailed(f"codec {codec} is unknown") from None


def _failed(codec: int, error: Exception) -> CompressionFailed:
    return CompressionFailed(f"the {Compression(codec).name.lower()} stream cannot be decompressed: {error}")


def _collect(chunks: Iterator[bytes], limit: int, scratch: Scratch | None) -> bytes:
    """Joins the chunks. BytesIO grows in place and returns its memory, so that no byte is held twice."""
    first = next(chunks, b"")
    if len(first) > limit:
        raise too_large(limit)
    whole: BytesIO | None = None
    total = len(first)
    for chunk in chunks:
        total += len(chunk)
        if total > limit:
            raise too_large(limit)
        if whole is None:  # most streams have one chunk, as does a snappy block of any size
            whole = BytesIO() if scratch is None else scratch.begin()
            whole.write(first)
        whole.write(chunk)
    if scratch is not None:
        scratch.filled = total
    return first if whole is None else whole.getvalue()
