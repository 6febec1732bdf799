"""A frame too large for the shared receive buffer. It is read into a buffer of its own and assembled piece by piece, so
that the last piece causes no copy of the whole frame.

Each piece is as large as what has already arrived, so that a length prefix alone costs next to nothing, but at most
PIECE_BYTES. uvloop reads up to 32 pieces in one turn of the event loop, so after TURN_BYTES the connection yields.
"""

from __future__ import annotations

from io import BytesIO

PIECE_BYTES = 64 * 1024
TURN_BYTES = 8 * PIECE_BYTES
"""Reading them into untouched memory takes up to 3 ms. A client with huge frames must not delay others by more."""
FIRST_PIECE_BYTES = 4096
RESERVED_FROM_BYTES = 32 * 1024 * 1024 + 1
"""For frames this large, all memory is reserved once an eighth has arrived. A buffer of up to 32 MB may be copied as it
grows. Larger blocks glibc takes from the system anyway, and untouched pages use no physical memory.
"""


class LargeFrame:
    """`beginning` is the part that has already arrived, `length` the size of the complete frame."""

    __slots__ = ("_filled", "_length", "_piece", "_received", "_reserves_at", "_turn_bytes", "_whole")

    def __init__(self, beginning: bytes, length: int) -> None:
        self._whole = BytesIO()  # getvalue() shares its memory
        self._whole.write(beginning)
        self._reserves_at = length // 8 if length >= RESERVED_FROM_BYTES else length
        self._length = length
        self._received = len(beginning)
        self._piece = memoryview(b"")
        self._filled = 0
        self._turn_bytes = 0
        self._begin_piece()

    def _begin_piece(self) -> None:
        size = min(self._length - self._received, PIECE_BYTES, max(self._received, FIRST_PIECE_BYTES))
        if size != len(self._piece):
            self._piece = memoryview(bytearray(size))
        self._filled = 0

    @property
    def size(self) -> int:
        """The size of the buffers in bytes."""
        return self._received + len(self._piece)

    def room(self) -> memoryview:
        """Where to put the next bytes; never empty."""
        return self._piece[self._filled :]

    def must_yield(self) -> bool:
        """Whether the connection has read enough for others to have a turn; then it counts anew."""
        if self._turn_bytes < TURN_BYTES:
            return False
        self._turn_bytes = 0
        return True

    @property
    def is_whole(self) -> bool:
        """Whether all bytes have arrived."""
        return self._received == self._length

    def whole(self) -> bytes:
        """Returns the frame, which is whole."""
        return self._whole.getvalue()

    def filled(self, count: int) -> None:
        """Takes `count` bytes that were written to `room`."""
        self._filled += count
        self._turn_bytes += count
        if self._filled < len(self._piece):
            return
        self._whole.write(self._piece)
        self._received += self._filled
        if self._received == self._length:
            return
        if self._received >= self._reserves_at:
            self._reserves_at = self._length
            begun = self._whole.getvalue()
            self._whole = BytesIO(bytes(self._length))
            self._whole.write(begun)
        self._begin_piece()
