"""The responses that a connection has not written yet. Small parts are joined, large ones are passed by reference, and
slices of files bypass the transport (file_sending.py) unless it encrypts (file_reading.py).
"""

from __future__ import annotations

import asyncio

from odradek.broker.network.file_sending import Ended, NewSending, RunInThread, Sending
from odradek.broker.requests.request_context import JOIN_PART_BYTES, Part, in_memory, size_of

JOIN_BYTES = 64 * 1024
WRITE_HIGH_BYTES = 1024 * 1024
WRITE_LOW_BYTES = 256 * 1024


class Outbox:
    __slots__ = (
        "_descriptors",
        "_files",
        "_files_ended",
        "_new_sending",
        "_parts",
        "_run_in_thread",
        "_transport",
        "size",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        run_in_thread: RunInThread,
        files_ended: Ended,
        descriptors: int,
        new_sending: NewSending,
    ) -> None:
        """`descriptors`: sending files may only use descriptors below this number. `new_sending` makes what sends
        them.
        """
        self.size = 0
        """Bytes that are collected but not written."""
        self._parts: list[Part] = []
        self._transport = transport
        self._run_in_thread = run_in_thread
        self._files_ended = files_ended
        self._descriptors = descriptors
        self._new_sending = new_sending
        self._files: Sending | None = None
        """The file sending that is under way or about to begin."""
        self._limit_transport()

    @property
    def is_sending_files(self) -> bool:
        return self._files is not None

    def add(self, parts: list[Part]) -> None:
        self._parts += parts
        self.size += size_of(parts)

    def write(self) -> bool:
        """Writes everything collected, in one call. Returns False if files are being sent: nothing else may be written
        until `files_ended` has been called, with the error or None."""
        parts, size = self._parts, self.size
        self._parts = []
        self.size = 0
        buffers = in_memory(parts, size)
        if buffers is None:
            self._files = self._new_sending(parts, self._transport, self._run_in_thread, self._ended, self._descriptors)
            self._files.begin()
            return False
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif size <= JOIN_BYTES or size <= JOIN_PART_BYTES * len(buffers):
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)
        return True

    def transport_has_written(self) -> bool:
        """Returns whether everything is written. If file slices were waiting for the transport, starts to send them."""
        if self._files is None:
            return True
        self._limit_transport()
        self._files.begin()
        return False

    def clear(self) -> None:
        """Drops everything: the connection is lost."""
        self._parts.clear()
        if self._files is not None:
            self._files.abandon()
            self._files = None

    def unwritten_bytes(self) -> int:
        """Returns how many bytes were written that the client has not taken yet."""
        size = self._transport.get_write_buffer_size()
        return size if self._files is None else size + self._files.unsent

    def _ended(self, error: BaseException | None) -> None:
        self._files = None
        self._files_ended(error)

    def _limit_transport(self) -> None:
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
