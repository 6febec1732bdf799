"""Sends responses that contain slices of files through a transport that encrypts, which sendfile would bypass.

The slices are read in pieces while the transport holds at most HIGH_BYTES. Each turn of the event loop passes on at
most TURN_BYTES, so that other connections get their turn. What is not in the page cache is read by a thread.
"""

from __future__ import annotations

import asyncio

from odradek.broker.network.file_sending import TURN_BYTES, Ended, RunInThread
from odradek.broker.network.outbox import WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from odradek.broker.requests.request_context import Part, size_of
from odradek.storage.file_slice import FileSlice
from odradek.storage.files import Buffer

PIECE_BYTES = 128 * 1024
HIGH_BYTES, LOW_BYTES = WRITE_LOW_BYTES, WRITE_LOW_BYTES // 2
"""Files wait on the disk, not in the transport. Below HIGH_BYTES the transport is open for other responses, too."""


class FileReading:
    __slots__ = (
        "_abandoned",
        "_ended",
        "_is_due",
        "_is_reading",
        "_loop",
        "_parts",
        "_piece",
        "_run_in_thread",
        "_taken",
        "_transport",
        "unsent",
    )

    def __init__(
        self, parts: list[Part], transport: asyncio.Transport, run_in_thread: RunInThread, ended: Ended, _: int
    ) -> None:
        """See `FileSending`; the last argument has no use here, as no second descriptor is needed."""
        self.unsent = size_of(parts)
        """The bytes that the transport does not have yet."""
        self._parts = parts[::-1]
        self._transport = transport
        self._run_in_thread = run_in_thread
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._taken = 0
        """How many bytes of the last of `_parts` the transport has."""
        self._piece: bytes = b""
        self._is_due = False
        self._is_reading = False
        """Whether a thread reads."""
        self._abandoned = False

    def begin(self) -> None:
        """Sends on, in the next turn. Call it again whenever the transport resumes writing."""
        if not self._is_due and not self._is_reading:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def abandon(self) -> None:
        """Stops, without waiting for a thread that reads."""
        self._abandoned = True
        self._parts.clear()

    def _turn(self) -> None:
        self._is_due = False
        if self._abandoned:
            return
        self._transport.set_write_buffer_limits(high=HIGH_BYTES, low=LOW_BYTES)
        enough = self.unsent - TURN_BYTES
        try:
            while self._parts and self.unsent > enough and not self._must_wait():
                part = self._parts[-1]
                if not isinstance(part, FileSlice):
                    self._pass_on(part)
                elif part.is_cached(self._taken, PIECE_BYTES):
                    self._pass_on(part.read(self._taken, PIECE_BYTES))
                else:
                    self._read_in_thread(part)
                    return
        except (OSError, EOFError) as error:
            self._end(error)
            return
        if self._must_wait():
            return
        if self._parts:
            self.begin()
        else:
            self._end(None)

    def _must_wait(self) -> bool:
        """Whether the transport has paused its connection, and will resume it."""
        return self._transport.get_write_buffer_size() > HIGH_BYTES

    def _pass_on(self, data: Buffer) -> None:
        self.unsent -= len(data)
        self._taken += len(data)
        if self._taken == len(self._parts[-1]):
            self._parts.pop()
            self._taken = 0
        self._transport.write(data)

    def _read_in_thread(self, part: FileSlice) -> None:
        start = self._taken

        def read() -> bool:
            self._piece = part.read(start, PIECE_BYTES)
            return True

        self._is_reading = True
        asyncio.ensure_future(self._run_in_thread(read)).add_done_callback(self._was_read)

    def _was_read(self, done: asyncio.Future[bool]) -> None:
        self._is_reading = False
        if self._abandoned or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._end(error)
            return
        piece, self._piece = self._piece, b""
        self._pass_on(piece)
        self.begin()

    def _end(self, error: BaseException | None) -> None:
        if not self._abandoned:
            self.abandon()
            self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
            self._ended(error)
