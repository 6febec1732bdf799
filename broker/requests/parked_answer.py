"""Parked requests in a connection's queue of responses, and the parts of encoded responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from odradek.broker.requests.pending_response import Holds, PendingResponse
from odradek.broker.requests.request_context import CloseConnection
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import Buffer

Part = Buffer | FileSlice
"""A piece of an encoded response."""
JOIN_PART_BYTES = 1024
"""Parts with a smaller average size are joined, however many: the kernel accepts a million parts at most."""


def size_of(parts: list[Part]) -> int:
    """Returns the size of the parts in bytes."""
    size = 0
    for part in parts:
        size += len(part)
    return size


def in_memory(parts: list[Part], size: int) -> list[Buffer] | None:
    """Returns the same parts, of `size` bytes together, or None if some are slices of files."""
    if size >= SLICE_BYTES and any(isinstance(part, FileSlice) for part in parts):
        return None
    return cast("list[Buffer]", parts)


class ParkedAnswer:
    """A parked request in its connection's queue of responses."""

    __slots__ = ("_finish", "_on_ready", "_pending", "api_key", "closing", "parts", "ready", "size")

    def __init__(
        self, api_key: int, pending: PendingResponse, size: int, finish: Callable[[PendingResponse], list[Part] | None]
    ) -> None:
        """`finish` returns the encoded response for a settled `pending`."""
        self.api_key = api_key
        self.size = size
        """The size of the request in bytes; once `ready`, the size of the response."""
        self.ready = False
        self.parts: list[Part] = []
        """The encoded response once `ready`; empty if there is no response."""
        self.closing: CloseConnection | None = None
        """If set once `ready`, the connection ends instead."""
        self._pending = pending
        self._finish = finish
        self._on_ready: Callable[[int, int], None] | None = None

    def when_ready(self, callback: Callable[[int, int], None]) -> None:
        """Calls callback(request bytes, response bytes) when the response is ready, at once if it already is."""
        self._on_ready = callback
        self._pending.when_settled(self._settled)

    def holds(self, api_key: int) -> bool:
        """Whether a later request of this API must wait for this one."""
        holds = self._pending.holds
        if holds == Holds.NOTHING or self.ready:
            return False
        return holds == Holds.EVERYTHING or api_key == self.api_key

    def abandon(self) -> None:
        self._on_ready = None
        self._pending.abandon()

    def _settled(self) -> None:
        try:
            self.parts = self._finish(self._pending) or []
        except CloseConnection as closing:
            self.closing = closing
        request_bytes = self.size
        self.size = size_of(self.parts)
        self.ready = True
        if self._on_ready is not None:
            self._on_ready(request_bytes, self.size)
