"""Frames: an int32 length in network byte order, then as many bytes. A connection sends a sequence of frames.

`FrameSplitter` takes a stream in pieces of any size and returns whole frames as copies: none points into a buffer that
the next piece may overwrite. A length that is negative or above the limit ends the stream with `BadFrame`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

LENGTH_BYTES = 4
LONGEST_FRAME = 100 * 1024 * 1024
"""The default of Kafka's socket.request.max.bytes."""


class BadFrame(ValueError):
    """A frame has an invalid length; the rest of the stream cannot be split into frames."""


def frame_length(data: bytes | bytearray | memoryview, position: int = 0, longest: int = LONGEST_FRAME) -> int:
    """Returns the length in the four bytes at `position`; raises `BadFrame` if it is negative or above `longest`."""
    length = int.from_bytes(data[position : position + LENGTH_BYTES], "big", signed=True)
    if not 0 <= length <= longest:
        raise BadFrame(f"a frame of {length} bytes is outside the allowed range of 0 to {longest}")
    return length


def frame(*parts: Any) -> bytes:
    """Returns one frame that holds these buffers."""
    return b"".join((sum(map(len, parts)).to_bytes(LENGTH_BYTES, "big"), *parts))


class FrameSplitter:
    """Splits a stream into frames. `pending` is the number of buffered bytes of an incomplete frame."""

    __slots__ = ("_buffer", "longest")

    def __init__(self, longest: int = LONGEST_FRAME) -> None:
        self.longest = longest
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yields the frames that `data` completes, without their lengths; exhaust it before the next call."""
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
