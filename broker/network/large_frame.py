"""A frame that is too large for the buffer that all connections share: it is read into chunks of its own.

Each chunk is as large as what has come before it, or as the largest frame that the connection has ever completed, so
that a length prefix alone costs next to nothing.
"""

from __future__ import annotations

LARGE_FRAME_BYTES = 64 * 1024
"""A frame is large above this."""
CHUNK_BYTES = 1024 * 1024
FIRST_CHUNK_BYTES = 4096


class LargeFrame:
    """`beginning` is what has come of it, `length` what there will be; `largest_frame` the largest one before it."""

    __slots__ = ("_at_once", "_chunk", "_chunks", "_filled", "_left")

    def __init__(self, beginning: bytes, length: int, largest_frame: int) -> None:
        self._chunks: list[memoryview] = [memoryview(beginning)]
        self._at_once = max(FIRST_CHUNK_BYTES, largest_frame)
        self._left = length - len(beginning)
        self._chunk = memoryview(b"")
        self._filled = 0
        self._begin_chunk(len(beginning))

    def _begin_chunk(self, received: int) -> None:
        size = min(self._left, CHUNK_BYTES, max(received, self._at_once))
        self._chunk = memoryview(bytearray(size))
        self._filled = 0
        self._left -= size

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return self._chunk[self._filled :]

    def filled(self, count: int) -> bytes | None:
        """So many bytes of `room` have come. The frame, once it is whole."""
        self._filled += count
        if self._filled < len(self._chunk):
            return None
        self._chunks.append(self._chunk)
        if self._left:
            self._begin_chunk(sum(map(len, self._chunks)))
            return None
        return b"".join(self._chunks)
