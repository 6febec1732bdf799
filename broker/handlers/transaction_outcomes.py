"""Turns the outcomes of the transaction coordinator into responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.broker.requests.request_context import PendingResponse
from odradek.protocol.errors import ErrorCode, ProtocolError

FIRST_WITH_FENCED = 2
"""The first version of most APIs that knows PRODUCER_FENCED."""

Start = Callable[[Callable[[Any], None]], object]


def answered(start: Start, respond: Callable[[Any], Any]) -> Any:
    """Calls `start` with a callback for the outcome, now or later. `respond` turns the outcome into the response."""
    pending = PendingResponse()

    def settle(outcome: Any) -> None:
        pending.complete(respond(outcome))

    start(settle)
    return pending.result() if pending.settled else pending


def code_for(error: ProtocolError | None, api_version: int, first_with_fenced: int = FIRST_WITH_FENCED) -> ErrorCode:
    """Clients of old versions, which do not know PRODUCER_FENCED, receive INVALID_PRODUCER_EPOCH (KIP-588)."""
    if error is None:
        return ErrorCode.NONE
    if error.code is ErrorCode.PRODUCER_FENCED and api_version < first_with_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code
