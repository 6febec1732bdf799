"""The paths of the control port.

GET    /faults               all faults, with their hits
POST   /faults               adds one: 201 and the fault
DELETE /faults               removes all, releases what they hold
GET    /faults/ID            one fault
DELETE /faults/ID            removes it, releases what it holds
POST   /faults/ID/release    releases what it holds
POST   /faults/ID/wait       the fault once it was hit: 200, or 504 if it was not in time
GET    /requests?api=...     the requests of the journal that are selected
POST   /requests/wait        the next one: 200, or 504 if none came in time
DELETE /requests             empties the journal
GET    /check                200, or 409 if a fault was never hit

Only /requests has arguments in its query. All others are JSON in the body.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

from odradek.broker.background.stepwise import ITEMS_PER_STEP, others_between
from odradek.broker.http.request import Refused
from odradek.testing.asking import WITHIN_S
from odradek.testing.control.arguments import (
    fault_arguments,
    hits_arguments,
    query_arguments,
    wait_arguments,
)
from odradek.testing.failures import NotReached
from odradek.testing.faults import Fault, Faults, NoSuchRequest, UnusedFaults
from odradek.testing.faults.arguments import Selected

Response = tuple[HTTPStatus, object]
WHAT_THERE_IS = (
    "the paths are /faults, /faults/ID, /faults/ID/release, /faults/ID/wait, /requests, /requests/wait and /check"
)


class Resources:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    async def response(self, method: str, path: str, query: Mapping[str, str], document: dict[str, Any]) -> Response:
        """Returns the status and the document. Raises Refused."""
        parts = path.strip("/").split("/")
        handlers = self._handlers(parts, query, document)
        if not handlers:
            raise Refused(HTTPStatus.NOT_FOUND, WHAT_THERE_IS)
        handler = handlers.get(method)
        if handler is None:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} knows {' and '.join(handlers)}")
        if query and parts != ["requests"]:
            raise Refused(HTTPStatus.BAD_REQUEST, f"{path} has its arguments in the body, as JSON")
        if document and method != "POST":
            raise Refused(HTTPStatus.BAD_REQUEST, f"{method} has no body; the arguments of /requests are a query")
        try:
            return await handler()
        except ValueError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None

    def _handlers(
        self, parts: list[str], query: Mapping[str, str], document: dict[str, Any]
    ) -> dict[str, Callable[[], Awaitable[Response]]]:
        """Returns what a path can do, by method."""
        match parts:
            case ["faults"]:
                return {"GET": self._all, "POST": lambda: self._add(document), "DELETE": self._clear}
            case ["faults", number]:
                fault = self._fault(number)
                return {"GET": lambda: _ok(fault.document()), "DELETE": lambda: self._remove(fault)}
            case ["faults", number, "release"]:
                fault = self._fault(number)
                return {"POST": lambda: self._release(fault)}
            case ["faults", number, "wait"]:
                fault = self._fault(number)
                return {"POST": lambda: self._hits(fault, document)}
            case ["requests"]:
                return {"GET": lambda: self._requests(query), "DELETE": self._forget}
            case ["requests", "wait"]:
                return {"POST": lambda: self._wait(document)}
            case ["check"]:
                return {"GET": self._check}
        return {}

    def _fault(self, number: str) -> Fault:
        for fault in self._faults.all():
            if str(fault.number) == number:
                return fault
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no fault {number}")

    async def _all(self) -> Response:
        return await _ok([fault.document() for fault in self._faults.all()])

    async def _add(self, document: dict[str, Any]) -> Response:
        return HTTPStatus.CREATED, self._faults.add(**fault_arguments(document)).document()

    async def _clear(self) -> Response:
        self._faults.clear()
        return await _ok([])

    async def _remove(self, fault: Fault) -> Response:
        fault.remove()
        return await _ok(fault.document())

    async def _release(self, fault: Fault) -> Response:
        fault.release()
        return await _ok(fault.document())

    async def _hits(self, fault: Fault, document: dict[str, Any]) -> Response:
        arguments = hits_arguments(document, WITHIN_S)
        try:
            await fault.wait(**arguments)
        except NotReached as error:
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": str(error)}
        return await _ok(fault.document())

    async def _requests(self, query: Mapping[str, str]) -> Response:
        """Other tasks run between the requests: all of them may be 64 MB."""
        found = self._faults.journal.find(self._faults.selector(query_arguments(query)))
        texts = [encoded(request.document()) async for request in others_between(found, ITEMS_PER_STEP)]
        return await _ok(b"[" + b", ".join(texts) + b"]")

    async def _forget(self) -> Response:
        self._faults.journal.clear()
        return await _ok([])

    async def _wait(self, document: dict[str, Any]) -> Response:
        arguments = wait_arguments(document, WITHIN_S)
        within, answered = arguments.pop("within"), arguments.pop("answered")
        try:
            found = await self._faults.wait_for_request(cast(Selected, arguments), within, answered=answered)
        except NoSuchRequest as error:
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": str(error)}
        return await _ok(found.document())

    async def _check(self) -> Response:
        try:
            self._faults.check()
        except UnusedFaults as error:
            return HTTPStatus.CONFLICT, {"error": str(error)}
        return await _ok({})


async def _ok(document: object) -> Response:
    return HTTPStatus.OK, document


def encoded(document: object) -> bytes:
    """Returns JSON."""
    return json.dumps(document, default=str).encode()
