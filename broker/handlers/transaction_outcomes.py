"""What transaction coordinators decide, on its way to a response: the outcomes of this broker's, and what a coordinator
says about the transaction of a batch.

Not compiled: mypyc's coroutines cost more than they save (docs/decisions/what-is-compiled.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, NamedTuple

from odradek.broker.replica.leader.verification import BUSY, TransactionVerification, VerificationRequest
from odradek.broker.requests.request_context import PendingResponse
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer import Clock

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


class Retries(NamedTuple):
    """How a coordinator that is BUSY is asked again: every `delay_ms` until `longest_ms` after the first time."""

    clock: Clock
    later: Callable[[int, Callable[[], None]], object]
    delay_ms: int
    longest_ms: int

    async def pause(self) -> None:
        """Waits in the timing wheel."""
        passed = asyncio.get_running_loop().create_future()
        self.later(self.delay_ms, partial(_wake, passed))
        await passed


async def once_verified(
    verification: TransactionVerification,
    to_verify: VerificationRequest,
    proceed: Callable[[], Any],
    retries: Retries | None = None,
) -> Any:
    """Asks the coordinator, unless it has answered, then calls `proceed` and returns its value; if that is awaitable,
    what it gives. The answers hold until then. With `retries` a coordinator is asked again that could not add the
    partitions, because the end of the last transaction is pending.
    """
    try:
        if not to_verify.answers:
            answers = await _answers(verification, to_verify)
            if retries is not None and to_verify.adds:
                began_ms = retries.clock.now_ms()
                while BUSY in answers.values() and retries.clock.now_ms() - began_ms < retries.longest_ms:
                    await retries.pause()
                    verification.expect(to_verify)
                    verification.ask_here(to_verify)
                    answers = await _answers(verification, to_verify)
            verification.answered(to_verify, answers)
        outcome = proceed()
        return await outcome if isawaitable(outcome) else outcome
    finally:
        verification.settle(to_verify)


async def _answers(
    verification: TransactionVerification, to_verify: VerificationRequest
) -> Mapping[TopicPartition, ErrorCode]:
    here = to_verify.asked_here
    if here is None:
        assert verification.ask is not None, "there is something to verify only if there is somebody to ask"
        return await verification.ask(to_verify)
    if here.code is None:
        answered = asyncio.get_running_loop().create_future()
        here.then = partial(_wake, answered)
        await answered
    assert here.code is not None
    return dict.fromkeys(to_verify.led, here.code)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
