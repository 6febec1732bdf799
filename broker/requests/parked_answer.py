"""A parked request's place in its connection's row of answers, and what answers are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from odradek.broker.requests.pending_response import Holds, PendingResponse
from odradek.broker.requests.request_context import CloseConnection
from odradek.storage.file_slice import SLICE_BYTES, FileSlice
from odradek.storage.files import Buffer

Part = Buffer | FileSlice
"""A piece of an encoded answer."""
JOIN_PART_BYTES = 1024
"""Parts that are smaller than this on average are joined, however many: the kernel is given a million at most."""


def size_of(parts: list[Part]) -> int:
    """Their bytes."""
    size = 0
    for part in parts:
        size += len(part)
    return size


def in_memory(parts: list[Part], size: int) -> list[Buffer] | None:
    """The same parts, of `size` bytes together; None if some lie in files."""
    if size >= SLICE_BYTES and any(isinstance(part, FileSlice) for part in parts):
        return None
    return cast("list[Buffer]", parts)


class ParkedAnswer:
    """A parked request's place in its connection's row of answers."""

    __slots__ = ("_finish", "_on_ready", "_pending", "api_key", "closing", "parts", "ready", "size")

    def __init__(
        self, api_key: int, pending: PendingResponse, size: int, finish: Callable[[PendingResponse], list[Part] | None]
    ) -> None:
        """`finish` makes the encoded answer of what the settled response holds."""
        self.api_key = api_key
        self.size = size
        """Bytes of the request, then of the answer."""
        self.ready = False
        self.parts: list[Part] = []
        """The encoded answer once `ready`; nothing where there is none."""
        self.closing: CloseConnection | None = None
        """Once `ready`: the connection ends here instead."""
        self._pending = pending
        self._finish = finish
        self._on_ready: Callable[[int, int], None] | None = None

    def when_ready(self, callback: Callable[[int, int], None]) -> None:
        """Calls callback(bytes of the request, bytes of the answer), at once if it is ready."""
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
