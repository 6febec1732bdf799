"""The response to a parked request, and which later requests it holds back: case (b) of request_context.py."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any


class Holds(IntEnum):
    """Which later requests of the same connection wait until a parked request has been answered."""

    NOTHING = 0
    SAME_API = 1
    """Later requests of the same API: a parked fetch of a session holds the session's next fetch back (KIP-227)."""
    EVERYTHING = 2


class PendingResponse:
    """The response to a parked request. Settled once: by its owner (complete, fail) or by the connection (abandon)."""

    __slots__ = ("_abandoned", "_failure", "_on_abandoned", "_on_settled", "_response", "_settled", "holds", "is_long")

    def __init__(self, *, holds: Holds = Holds.NOTHING, is_long: bool = False) -> None:
        """`is_long`: the response is large and must be encoded in steps."""
        self.holds = holds
        self.is_long = is_long
        self._settled = False
        self._abandoned = False
        self._response: Any = None
        self._failure: BaseException | None = None
        self._on_settled: Callable[[], None] | None = None
        self._on_abandoned: Callable[[], object] | None = None

    @property
    def settled(self) -> bool:
        return self._settled

    def complete(self, response: Any) -> bool:
        """Sets the response; None sends none. Returns False, without any effect, if already settled."""
        return self._settle(response, None)

    def fail(self, failure: BaseException) -> bool:
        """Fails as if the handler had raised: cases (d) and (e); any other exception becomes UNKNOWN_SERVER_ERROR."""
        return self._settle(None, failure)

    def when_abandoned(self, callback: Callable[[], object]) -> None:
        """Calls `callback`, which must leave the purgatory, if the connection ends first (at once if it has)."""
        if self._abandoned:
            callback()
        elif not self._settled:
            self._on_abandoned = callback

    def follow(self, other: PendingResponse) -> None:
        """Settles with the response or failure of `other`."""

        def settled() -> None:
            self._settle(other._response, other._failure)

        self.when_abandoned(other.abandon)
        other.when_settled(settled)

    # --- for the dispatcher and the connection ------------------------------------------------------------------

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when a response or failure is set (at once if it is), never after abandon()."""
        if not self._settled:
            self._on_settled = callback
        elif not self._abandoned:
            callback()

    def result(self) -> Any:
        """Returns the response, or raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._response

    def abandon(self) -> None:
        """Settles without a response: the connection has ended."""
        if self._settled:
            return
        self._settled = self._abandoned = True
        self._on_settled = None
        callback, self._on_abandoned = self._on_abandoned, None
        if callback is not None:
            callback()

    def _settle(self, response: Any, failure: BaseException | None) -> bool:
        if self._settled:
            return False
        self._settled = True
        self._response = response
        self._failure = failure
        self._on_abandoned = None
        callback, self._on_settled = self._on_settled, None
        if callback is not None:
            callback()
        return True
