"""An answer that has to wait for the metadata store: a task of the broker's background makes it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from broker.handlers.request_context import PendingResponse, RequestContext


def answered_later(making: Coroutine[Any, Any, Any], context: RequestContext) -> PendingResponse:
    """The request is parked until `making` ends: with its response, or with what it raises.

    It goes on whoever is still there, so that a half-done change always ends.
    """
    pending = PendingResponse()

    async def run() -> None:
        try:
            response = await making
        except Exception as error:
            pending.fail(error)
        else:
            pending.complete(response)

    context.broker.background.spawn(run(), f"{context.api_key} of {context.connection_id}")
    return pending
