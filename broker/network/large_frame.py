"""A frame that is too large for the buffer that all connections share: it is read into a buffer of its own, and put
together as its pieces come, so that nothing is left to copy with the last one.

A piece is as large as what has come before it, so that a length prefix alone costs next to nothing, but not larger than
PIECE_BYTES: uvloop reads up to 32 of them in one turn of the loop.
"""

from __future__ import annotations

from io import BytesIO

PIECE_BYTES = 64 * 1024
"""32 of them take 1 to 10 ms where they go into memory that nobody has touched yet."""
FIRST_PIECE_BYTES = 4096
RESERVED_FROM_BYTES = 32 * 1024 * 1024 + 1
"""So large a frame has memory reserved for all of it when an eighth has come: an allocator may copy what grows up to
32 MB. Beyond, glibc takes memory from the system in any case, and what nobody has written to is none.
"""


class LargeFrame:
    """`beginning` is what has come of it, `length` what there will be."""

    __slots__ = ("_filled", "_length", "_piece", "_received", "_reserves_at", "_whole")

    def __init__(self, beginning: bytes, length: int) -> None:
        self._whole = BytesIO()  # hands its memory out
        self._whole.write(beginning)
        self._reserves_at = length // 8 if length >= RESERVED_FROM_BYTES else length
        self._length = length
        self._received = len(beginning)
        self._piece = memoryview(b"")
        self._filled = 0
        self._begin_piece()

    def _begin_piece(self) -> None:
        size = min(self._length - self._received, PIECE_BYTES, max(self._received, FIRST_PIECE_BYTES))
        if size != len(self._piece):
            self._piece = memoryview(bytearray(size))
        self._filled = 0

    @property
    def size(self) -> int:
        """Bytes of its buffers."""
        return self._received + len(self._piece)

    def room(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        return self._piece[self._filled :]

    def filled(self, count: int) -> bytes | None:
        """So many bytes of `room` have come. The frame, once it is whole."""
        self._filled += count
        if self._filled < len(self._piece):
            return None
        self._whole.write(self._piece)
        self._received += self._filled
        if self._received == self._length:
            return self._whole.getvalue()
        if self._received >= self._reserves_at:
            self._reserves_at = self._length
            begun = self._whole.getvalue()
            self._whole = BytesIO(bytes(self._length))
            self._whole.write(begun)
        self._begin_piece()
        return None
