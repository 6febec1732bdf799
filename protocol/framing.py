"""Frames: an int32 length in network byte order, then as many bytes. A connection sends a sequence of frames.

`FrameSplitter` takes a stream in pieces of any size and returns whole frames: none points into a buffer that the next
piece may overwrite. A length that is negative or above the limit ends the stream with `BadFrame`.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

LENGTH_BYTES = 4
SHORT_BYTES = 16 * 1024
PIECE_BYTES = 64 * 1024
"""The most that is read into a long frame at once: uvloop reads up to 32 pieces in one turn of the event loop."""
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
    """Splits a stream into frames: the reader of a socket fills `room` and calls `filled`, anything else calls `feed`.

    Short frames are copied out of one buffer that is used again. A frame that does not end in it gets memory of its
    own, into which the rest of it is read; that memory becomes the frame, without another copy. Only its last bytes
    are read into the short buffer first: a frame is not shared while the reader may still hold a view of its memory.
    """

    __slots__ = ("_begun", "_frame", "_missing", "_rest", "_short", "longest")

    def __init__(self, longest: int = LONGEST_FRAME) -> None:
        self.longest = longest
        self._short = memoryview(bytearray(SHORT_BYTES))
        self._begun = 0
        """How many bytes of a frame's length, or of the end of a long frame, are in `_short`."""
        self._frame: BytesIO | None = None
        """The memory of an incomplete frame; `_rest` is the part of it to be filled before its last bytes."""
        self._rest = memoryview(b"")
        self._missing = 0

    def room(self) -> memoryview:
        """Where to put the next bytes; never empty. Do not keep it beyond `filled`."""
        if self._rest:
            return self._rest[:PIECE_BYTES]
        if self._frame is not None:
            return self._short[self._begun : self._missing]
        return self._short[self._begun :]

    def filled(self, count: int) -> Iterator[bytes]:
        """Yields the frames that `count` bytes in `room` complete, without their lengths; exhaust it before `room`."""
        if self._rest:
            self._rest = self._rest[count:] or memoryview(b"")  # an empty view would be one, too
        elif self._frame is not None:
            self._begun += count
            if self._begun == self._missing:
                self._frame.write(self._short[: self._begun])
                self._begun = 0
                whole, self._frame = self._frame.getvalue(), None
                yield whole
        else:
            yield from self._short_frames(self._begun + count)

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[bytes]:
        """Yields the frames that `data` completes, as `filled`."""
        rest = memoryview(data)
        while rest:
            room = self.room()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            yield from self.filled(count)

    def _short_frames(self, end: int) -> Iterator[bytes]:
        data = self._short
        position = self._begun = 0
        while end - position >= LENGTH_BYTES:
            length = frame_length(data, position, self.longest)
            position += LENGTH_BYTES
            if position + length > end:
                self._begin(length, data[position:end])
                return
            yield data[position : position + length].tobytes()
            position += length
        self._begun = end - position
        data[: self._begun] = data[position:end]

    def _begin(self, length: int, beginning: memoryview) -> None:
        """Reserves the memory of a frame. No page of it is used before it is filled."""
        self._frame = BytesIO(bytes(length))
        self._frame.write(beginning)
        self._missing = min(length - len(beginning), SHORT_BYTES)
        self._rest = self._frame.getbuffer()[len(beginning) : length - self._missing] or memoryview(b"")
        self._frame.seek(length - self._missing)
