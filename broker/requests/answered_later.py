"""Responses that take a while: tasks of the broker's background produce them.

The tasks continue even if the client disconnects, so that no change is left half done.
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
    """Parks the request until `making` ends. The response is encoded in steps; an exception fails the request.
    Meanwhile the request `holds` back later requests of its connection.
    """
    return _park(making, context, spawn, PendingResponse(is_long=True, holds=holds))


def answered_in_steps(
    steps: Steps[Any], context: RequestContext, spawn: Spawn, turns: Turns, holds: Holds = Holds.NOTHING
) -> Any:
    """Returns the value of the steps if one step is enough; otherwise parks the request until they have run in turns.

    If the value is a parked request itself, the two are settled together. Meanwhile the request `holds` back later
    requests of its connection.
    """
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    return _park(turns.take(steps), context, spawn, PendingResponse(is_long=True, holds=holds))


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

    task = spawn(run(), f"{context.api_key} of {context.connection_id}")
    task.add_done_callback(lambda _: making.close())  # it has not begun if the task was canceled before its first step
    return pending
