"""Frames: an int32 length in network order, then as many bytes. What a connection sends is a row of them.

`FrameSplitter` takes a stream in pieces of any size and hands out whole frames, copied: nothing points into a buffer
that the next piece may overwrite. A length that is negative or above the limit ends the stream with `BadFrame`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LENGTH_BYTES = 4
LONGEST_FRAME = 100 * 1024 * 1024
"""The default of Kafka's socket.request.max.bytes."""


class BadFrame(ValueError):
    """A length that no frame may have; what follows in the stream cannot be told apart any more."""


def frame_length(data: bytes | bytearray | memoryview, position: int = 0, longest: int = LONGEST_FRAME) -> int:
    """The length in the four bytes at `position`; `BadFrame` if it is negative or above `longest`."""
    length = int.from_bytes(data[position : position + LENGTH_BYTES], "big", signed=True)
    if not 0 <= length <= longest:
        raise BadFrame(f"a frame of {length} bytes; 0 to {longest} are allowed")
    return length


def frame(*parts: Any) -> bytes:
    """One frame that holds these buffers."""
    return b"".join((sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big"), *parts))


class FrameSplitter:
    """Cuts a stream into frames. `pending` is the number of bytes that wait for the rest of their frame."""

    __slots__ = ("_buffer", "longest")

    def __init__(self, longest: int = LONGEST_FRAME) -> None:
        self.longest = longest
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """The frames, without their lengths, that `data` completes; to be exhausted before the next call."""
        buffer = self._buffer
        buffer += data
        position = 0
        try:
            while len(buffer) - position >= LENGTH_BYTES:
                end = position + LENGTH_BYTES + frame_length(buffer, position, self.longest)
                if end > len(buffer):
                    break
                yield bytes(buffer[position + LENGTH_BYTES : end])
                position = end
        finally:
            del buffer[:position]
