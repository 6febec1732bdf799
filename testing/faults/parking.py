"""Requests that wait, and answers that are changed once they are ready, as a dispatch returns them."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.requests.request_context import CloseConnection, Part, PendingResponse

Answer = PendingResponse | list[Part] | None
"""As a dispatch returns it."""
Changed = Callable[[list[Part] | None], Answer]
"""Makes another answer of an encoded one; None: there is none. Raises CloseConnection."""


def parked(api_key: int, pending: PendingResponse, size: int) -> PendingResponse:
    """Returns what a dispatch returns for a request of `size` bytes that `settle` will settle."""
    pending.park(api_key, size, PendingResponse.result)
    return pending


def settle(pending: PendingResponse, make: Callable[[], Answer]) -> None:
    """Settles a parked request with what `make` returns or raises, at once or when it is ready."""
    if pending.settled:
        return
    try:
        answer = make()
    except CloseConnection as closing:
        pending.fail(closing)
        return
    if not isinstance(answer, PendingResponse):
        pending.complete(answer)
        return
    waiting = answer
    pending.when_abandoned(waiting.abandon)

    def ready(_request_bytes: int, _answer_bytes: int) -> None:
        if waiting.closing is not None:
            pending.fail(waiting.closing)
        else:
            pending.complete(waiting.parts or None)

    waiting.when_ready(ready)


def changed(answer: Answer, change: Changed, closing: Callable[[CloseConnection], None] | None = None) -> Answer:
    """Changes an answer when it is ready. `closing` is called if the connection ends instead, later. Raises
    CloseConnection.
    """
    if not isinstance(answer, PendingResponse):
        return change(answer)
    waiting = answer
    pending = PendingResponse(holds=waiting.holds)
    pending.when_abandoned(waiting.abandon)
    outer = parked(waiting.api_key, pending, waiting.size)

    def ready(_request_bytes: int, _answer_bytes: int) -> None:
        if waiting.closing is None:
            settle(pending, lambda: change(waiting.parts or None))
            return
        if closing is not None:
            closing(waiting.closing)
        pending.fail(waiting.closing)

    waiting.when_ready(ready)
    return outer
