"""Sends responses that contain slices of files straight to the socket while the transport has nothing to write.

Each time the socket accepts more, at most TURN_BYTES are sent, so that other connections get their turn. Slices that
are not in the page cache are sent by a thread. The sender duplicates the socket's descriptor, so the thread can still
use it if the connection is lost meanwhile.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol

from odradek.broker.requests.request_context import Part, size_of
from odradek.storage.file_slice import FileSlice

RunInThread = Callable[[Callable[[], bool]], Awaitable[bool]]
Ended = Callable[["BaseException | None"], None]
BUFFERS_AT_ONCE = 1000
"""The kernel accepts up to 1024."""
TURN_BYTES = 1024 * 1024
"""The most that is sent before other connections get their turn."""
_MORE = getattr(socket, "MSG_MORE", 0)


class Sending(Protocol):
    """Sends one response with slices of files: `FileSending`, or `FileReading` where the transport encrypts."""

    unsent: int

    def begin(self) -> None: ...

    def abandon(self) -> None: ...


NewSending = Callable[[list[Part], asyncio.Transport, RunInThread, Ended, int], Sending]
"""Makes one; the arguments are those of `FileSending`."""


class FileSending:
    __slots__ = (
        "_abandoned",
        "_descriptors",
        "_ended",
        "_loop",
        "_parts",
        "_run_in_thread",
        "_sent",
        "_socket",
        "_transport",
        "_working",
        "unsent",
    )

    def __init__(
        self,
        parts: list[Part],
        transport: asyncio.Transport,
        run_in_thread: RunInThread,
        ended: Ended,
        descriptors: int,
    ) -> None:
        """Until `ended` is called, with the error or None, nothing else may write to the socket. `ended` is not called
        after `abandon`.

        Fails with EMFILE if the duplicated descriptor would be `descriptors` or above."""
        self.unsent = size_of(parts)
        """Bytes."""
        self._parts = parts[::-1]
        self._transport = transport
        self._run_in_thread = run_in_thread
        self._ended = ended
        self._descriptors = descriptors
        self._loop = asyncio.get_running_loop()
        self._sent = 0
        """How many bytes of the last of `_parts` have been sent."""
        self._socket: socket.socket | None = None
        self._working = False
        """Whether a thread is sending."""
        self._abandoned = False

    def begin(self) -> None:
        """Starts sending. If the transport still has data to write, only asks it to call resume_writing when that is
        done; `begin` must then be called again."""
        if self._transport.get_write_buffer_size():
            self._transport.set_write_buffer_limits(high=0, low=0)
            return
        try:
            self._socket = self._own_socket()
        except OSError as error:
            self._loop.call_soon(self._end, error)
        else:
            self._loop.add_writer(self._socket, self._turn)

    def _own_socket(self) -> socket.socket:
        descriptor = os.dup(self._transport.get_extra_info("socket").fileno())
        if descriptor >= self._descriptors:
            os.close(descriptor)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return socket.socket(fileno=descriptor)

    def abandon(self) -> None:
        """Stops sending, without waiting for a thread that is sending."""
        self._abandoned = True
        if not self._working:
            self._close()

    def _turn(self) -> None:
        """Sends as much as the socket accepts now, up to TURN_BYTES."""
        enough = self.unsent - TURN_BYTES
        is_taken = True
        try:
            while is_taken and self._parts and self.unsent > enough:
                part = self._parts[-1]
                if isinstance(part, FileSlice) and not part.is_cached(self._sent, TURN_BYTES):
                    self._send_in_thread()
                    return
                is_taken = self._send()
        except BlockingIOError:
            return
        except (OSError, EOFError) as error:
            self._end(error)
            return
        if not self._parts:
            self._end(None)

    def _send_in_thread(self) -> None:
        self._loop.remove_writer(self._connected())
        self._working = True
        asyncio.ensure_future(self._run_in_thread(self._send)).add_done_callback(self._sent_in_thread)

    def _sent_in_thread(self, done: asyncio.Future[bool]) -> None:
        self._working = False
        error = None if done.cancelled() else done.exception()
        if self._abandoned or done.cancelled():
            self._close()
        elif error is not None and not isinstance(error, BlockingIOError):
            self._end(error)
        else:
            self._loop.add_writer(self._connected(), self._turn)

    def _end(self, error: BaseException | None) -> None:
        if not self._abandoned:
            self._close()
            self._ended(error)

    def _close(self) -> None:
        self._parts.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket)
            self._socket.close()

    def _connected(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    # --- on the loop or in a thread -----------------------------------------------------------------------------

    def _send(self) -> bool:
        """Returns whether all of the offered bytes were sent. Raises BlockingIOError, OSError, EOFError."""
        part = self._parts[-1]
        if isinstance(part, FileSlice):
            offered = min(TURN_BYTES, len(part) - self._sent)
            sent = part.send(self._connected().fileno(), self._sent, offered)
        else:
            offered, sent = self._send_buffers()
        self.unsent -= sent
        self._sent += sent
        while self._parts and self._sent >= len(self._parts[-1]):
            self._sent -= len(self._parts.pop())
        return sent == offered

    def _send_buffers(self) -> tuple[int, int]:
        """Sends the buffers before the next file slice, with MSG_MORE so that they share segments with its start."""
        buffers: list[memoryview] = []
        more = 0
        for part in reversed(self._parts):
            if isinstance(part, FileSlice) or len(buffers) == BUFFERS_AT_ONCE:
                more = _MORE
                break
            buffers.append(memoryview(part))
        buffers[0] = buffers[0][self._sent :]
        return sum(map(len, buffers)), self._connected().sendmsg(buffers, (), more)
