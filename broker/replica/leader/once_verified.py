"""Requests that wait until a transaction coordinator on another broker has verified their transaction.

Not compiled: mypyc's coroutines cost more than they save (docs/decisions/what-is-compiled.md).
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from typing import Any

from odradek.broker.replica.leader.verification import Question, TransactionVerification


async def once_verified(verification: TransactionVerification, question: Question, proceed: Callable[[], Any]) -> Any:
    """Asks the other broker, then calls `proceed` and returns its value; if that is awaitable, what it gives. The
    answers hold until then.
    """
    try:
        assert verification.ask is not None, "there is a question only if there is somebody to ask"
        verification.answered(question, await verification.ask(question))
        outcome = proceed()
        return await outcome if isawaitable(outcome) else outcome
    finally:
        verification.settle(question)
