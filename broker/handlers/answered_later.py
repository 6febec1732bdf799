"""Answers that take a while to make: tasks of the broker's background make them.

They go on whoever is still there, so that a half-done change always ends.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.tasks import Spawn
from odradek.broker.background.turns import Turns
from odradek.broker.requests.request_context import Holds, PendingResponse, RequestContext


def answered_later(
    making: Coroutine[Any, Any, Any], context: RequestContext, spawn: Spawn, holds: Holds = Holds.NOTHING
) -> PendingResponse:
    """The request is parked until `making` ends: with its response, written in steps, or with what it raises.
    Meanwhile it `holds` back later ones of its connection.
    """
    return _park(making, context, spawn, PendingResponse(is_long=True, holds=holds))


def answered_in_steps(steps: Steps[Any], context: RequestContext, spawn: Spawn, turns: Turns) -> Any:
    """What the steps return, if one of them is enough; else the request is parked until they have had their turns.

    That may be a parked request in its turn: this one ends with it.
    """
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    return _park(turns.take(steps), context, spawn, PendingResponse(is_long=True))


def _park(
    making: Coroutine[Any, Any, Any], context: RequestContext, spawn: Spawn, pending: PendingResponse
) -> PendingResponse:
    async def run() -> None:
        try:
            response = await making
        except Exception as error:
            pending.fail(error)
        else:
            if isinstance(response, PendingResponse):
                pending.follow(response)
            else:
                pending.complete(response)

    spawn(run(), f"{context.api_key} of {context.connection_id}")
    return pending
