"""Long requests and responses: decoded, handled and encoded in steps (background/stepwise.py).

A long request holds back all later requests of its connection, like Kafka's muted channel. Other connections are
served between its steps. If the client disconnects before the request is decoded, the request is dropped; if it is
already being handled, it is completed.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any, Protocol

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import Steps, is_short, let_go, memory_of_request
from odradek.broker.handlers.handler_kinds import HandlerKind
from odradek.broker.handlers.route import Route
from odradek.broker.requests.request_context import (
    CloseConnection,
    Holds,
    Part,
    PendingResponse,
    RequestContext,
    undecodable,
)
from odradek.protocol.errors import MalformedMessage


class Answering(Protocol):
    """Checks requests, encodes and counts responses: the dispatcher."""

    def check_bound(self, route: Route, request: Any, context: RequestContext) -> None: ...

    def answer(self, route: Route, context: RequestContext, response: Any) -> list[Part] | None: ...

    def answer_in_steps(self, route: Route, context: RequestContext, response: Any) -> Steps[list[Part] | None]: ...

    def failure_in_steps(
        self, route: Route, request: Any, context: RequestContext, error: Exception
    ) -> Steps[list[Part] | None]: ...


class LongRequests:
    """Processes long requests and responses; see the head of this file."""

    def __init__(self, background: Background, answering: Answering) -> None:
        self._background = background
        self._turns = background.turns
        self._answering = answering

    def go_on(
        self, route: Route, reading: Steps[tuple[Any, int]], context: RequestContext, size: int
    ) -> PendingResponse:
        """Continues a request of `size` bytes after the first step of decoding."""
        parked = PendingResponse(holds=Holds.EVERYTHING)
        parked.park(route.api_key, size)

        async def serve() -> None:
            async with self._turns.room_for(memory_of_request(size)):
                try:
                    request, _ = await self._turns.take(reading)
                except MalformedMessage as error:
                    parked.encoded(None, undecodable(context.api_key, context.api_version, error))
                    return
                handled = await self._handled(route, request, context)
            self._pass_on(route, request, context, handled, parked)

        task = self._spawn(serve(), context)
        parked.when_abandoned(lambda: task.cancel() if inspect.getgeneratorstate(reading) != inspect.GEN_CLOSED else 0)
        return parked

    def park(
        self, route: Route, request: Any, context: RequestContext, pending: PendingResponse, size: int
    ) -> PendingResponse:
        """Parks a request whose response may be long. `request` is None if it is not kept."""
        pending.park(route.api_key, size)

        def settled() -> None:
            try:
                response = pending.result()
                short = is_short(response)
                parts = self._answering.answer(route, context, response) if short else None
            except Exception:  # `_answer` raises it again and responds to it
                short = False
            if short:
                pending.encoded(parts)
            else:
                self._spawn(self._answer(route, request, context, pending, pending), context)

        pending.when_settled(settled)
        return pending

    async def _handled(self, route: Route, request: Any, context: RequestContext) -> PendingResponse:
        handled = PendingResponse()
        try:
            self._answering.check_bound(route, request, context)
            response = route.handler(request, context)
            if route.handler_kind is HandlerKind.STEPS:
                response = await self._turns.take(response)
            elif route.handler_kind is HandlerKind.TASK:
                response = await response
        except Exception as error:
            handled.fail(error)
            return handled
        if isinstance(response, PendingResponse):
            return response
        handled.complete(response)
        return handled

    def _pass_on(
        self, route: Route, request: Any, context: RequestContext, handled: PendingResponse, parked: PendingResponse
    ) -> None:
        parked.when_abandoned(handled.abandon)
        handled.when_settled(lambda: self._spawn(self._answer(route, request, context, handled, parked), context))

    async def _answer(
        self, route: Route, request: Any, context: RequestContext, handled: PendingResponse, parked: PendingResponse
    ) -> None:
        """Encodes the response or the failure, then empties the request and the response in steps."""
        response: Any = None
        try:
            response = handled.result()
            parts = await self._turns.take(self._answering.answer_in_steps(route, context, response))
        except CloseConnection as closing:
            parked.encoded(None, closing)
        except Exception as error:
            await self._answer_failure(route, request, context, error, parked)
        else:
            parked.encoded(parts)
        for message in (request, response):
            if message is not None:
                await self._turns.take(let_go(message))

    async def _answer_failure(
        self, route: Route, request: Any, context: RequestContext, error: Exception, parked: PendingResponse
    ) -> None:
        answering = self._answering.failure_in_steps(route, request, context, error)
        try:
            parts = await self._turns.take(answering)
        except CloseConnection as closing:
            parked.encoded(None, closing)
        else:
            parked.encoded(parts)

    def _spawn(self, coroutine: Coroutine[Any, Any, None], context: RequestContext) -> Any:
        return self._background.spawn(coroutine, f"{context.api_key} of {context.connection_id}")
