"""A frame that is too large for the buffer that all connections share: it is read into a buffer of its own, and put
together as its pieces come, so that nothing is left to copy with the last one.

A piece is as large as what has come before it, or as the largest frame that the connection has ever completed, so that
a length prefix alone costs next to nothing.
"""

from __future__ import annotations

from io import BytesIO

LARGE_FRAME_BYTES = 64 * 1024
"""A frame is large above this."""
PIECE_BYTES = 1024 * 1024
FIRST_PIECE_BYTES = 4096


class LargeFrame:
    """`beginning` is what has come of it, `length` what there will be; `largest_frame` the largest one before it."""

    __slots__ = ("_at_once", "_filled", "_length", "_piece", "_received", "_whole")

    def __init__(self, beginning: bytes, length: int, largest_frame: int) -> None:
        self._whole = BytesIO()  # grows in place, and hands its memory out
        self._whole.write(beginning)
        self._length = length
        self._received = len(beginning)
        self._at_once = max(FIRST_PIECE_BYTES, largest_frame)
        self._piece = memoryview(b"")
        self._filled = 0
        self._begin_piece()

    def _begin_piece(self) -> None:
        size = min(self._length - self._received, PIECE_BYTES, max(self._received, self._at_once))
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
        if self._received < self._length:
            self._begin_piece()
            return None
        return self._whole.getvalue()
