"""Asks the controller for a change, and says what is known of it.

(A) What has had no effect for certain is asked for again: the request did not leave.
(B) NOT_CONTROLLER is asked for again, too, but a controller that loses its office may have begun the change. Only its
    success is certain from then on.
(C) A request without an answer is not repeated: its outcome is UNKNOWN. So no change takes effect twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import Message
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import Outcome

PATIENCE_S = 6.0
REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
)
"""Codes that say that nothing was changed."""


class Answer(NamedTuple):
    """What came of one item of a request."""

    outcome: Outcome
    error: str = ""


async def ask_controller(
    cluster: Cluster, request: Message, codes_of: Callable[[Any], Sequence[int]], items: int
) -> list[Answer]:
    """Returns what came of each of the request's `items`. `codes_of` reads their error codes in a response, in order;
    none, if the whole request was refused."""
    give_up_at = asyncio.get_running_loop().time() + PATIENCE_S
    may_have_begun = False
    while True:
        try:
            codes = [ErrorCode.of(code) for code in codes_of(await cluster.ask_broker(cluster.controller_id, request))]
        except NotSent as error:
            reason = str(error)
        except Unanswered as error:
            return [Answer(Outcome.UNKNOWN, str(error))] * items
        else:
            if codes and ErrorCode.NOT_CONTROLLER not in codes:
                return [_answer(code, may_have_begun) for code in codes]
            may_have_begun, reason = True, ErrorCode.NOT_CONTROLLER.name
        if asyncio.get_running_loop().time() > give_up_at:
            return [Answer(Outcome.UNKNOWN if may_have_begun else Outcome.FAILED, reason)] * items
        await cluster.refresh()
        await cluster.back_off()


def _answer(code: ErrorCode, may_have_begun: bool) -> Answer:
    if code is ErrorCode.NONE:
        return Answer(Outcome.OK)
    is_refused = code in REFUSALS and not may_have_begun
    return Answer(Outcome.FAILED if is_refused else Outcome.UNKNOWN, code.name)
