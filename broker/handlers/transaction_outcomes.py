"""What transaction coordinators decide, on its way to a response: the outcomes of this broker's, and what the one on
another broker says about a transaction.

Not compiled: mypyc's coroutines cost more than they save (docs/decisions/what-is-compiled.md).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from odradek.broker.replica.leader.verification import TransactionVerification, VerificationRequest
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


async def once_verified(
    verification: TransactionVerification, to_verify: VerificationRequest, proceed: Callable[[], Any]
) -> Any:
    """Asks the other broker, then calls `proceed` and returns its value; if that is awaitable, what it gives. The
    answers hold until then.
    """
    try:
        assert verification.ask is not None, "there is something to verify only if there is somebody to ask"
        verification.answered(to_verify, await verification.ask(to_verify))
        outcome = proceed()
        return await outcome if isawaitable(outcome) else outcome
    finally:
        verification.settle(to_verify)
