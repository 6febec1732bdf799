"""The answer to a parked request, and what it holds back meanwhile: case (b) of request_context.py."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any


class Holds(IntEnum):
    """Which later requests of the same connection wait until a parked one has been answered."""

    NOTHING = 0
    SAME_API = 1
    """Later requests of the same API: a parked fetch of a session holds the session's next fetch back (KIP-227)."""
    EVERYTHING = 2


class PendingResponse:
    """The answer to a parked request: settled once, by its owner (complete, fail) or the connection's end (abandon)."""

    __slots__ = ("_abandoned", "_failure", "_on_abandoned", "_on_settled", "_response", "_settled", "holds", "is_long")

    def __init__(self, *, holds: Holds = Holds.NOTHING, is_long: bool = False) -> None:
        """`is_long`: there is much to write in the answer."""
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
        """Answers with this response; None answers nothing. False, and no effect, when it was settled before."""
        return self._settle(response, None)

    def fail(self, failure: BaseException) -> bool:
        """As if the handler had raised it: cases (d) and (e); anything else is answered with UNKNOWN_SERVER_ERROR."""
        return self._settle(None, failure)

    def when_abandoned(self, callback: Callable[[], object]) -> None:
        """Called if the connection ends first (at once if it has): take the operation out of its purgatory here."""
        if self._abandoned:
            callback()
        elif not self._settled:
            self._on_abandoned = callback

    def follow(self, other: PendingResponse) -> None:
        """Ends as the other one does."""

        def settled() -> None:
            self._settle(other._response, other._failure)

        self.when_abandoned(other.abandon)
        other.when_settled(settled)

    # --- the dispatcher's and the connection's side -------------------------------------------------------------

    def when_settled(self, callback: Callable[[], None]) -> None:
        """Called when an answer or a failure is there (at once if it is), never after abandon()."""
        if not self._settled:
            self._on_settled = callback
        elif not self._abandoned:
            callback()

    def result(self) -> Any:
        """The response; raises the failure."""
        if self._failure is not None:
            raise self._failure
        return self._response

    def abandon(self) -> None:
        """Nobody waits for the answer any more."""
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
