"""From a frame to its response: header, version, body, handler, encoding. Only here exceptions become error codes.

(a) An unknown API, a version that is not served, or a header or body that cannot be decoded ends the connection, as in
    Kafka; the client could not read a response. The reason is logged in one line. A request between brokers counts as
    unknown everywhere but on the inter-broker listener.
(b) ApiVersions of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and its own range (KIP-511).
(c) `ProtocolError` from a handler: the API's own error response, see `error_responses`.
(d) Any other exception is logged with its traceback and answered with UNKNOWN_SERVER_ERROR in the same form. If the
    error response cannot be encoded, the connection ends. The client is never left waiting.
(e) A parked request that fails later is treated in the same way.
(f) Items that fail (a partition, a topic) are values in the response; one log line names the first of them.
(g) The size of a response is limited, see `answer_size`.
(h) A large frame is decoded in steps. Most need only one step and continue as usual; the others become long requests,
    see `long_requests`.

Source: Kafka's `KafkaApis`, `RequestContext.parseRequest` and each request's `getErrorResponse`.
"""

from __future__ import annotations

import struct
from typing import Any

import structlog

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import Steps, finished, let_go
from odradek.broker.handlers.access import AuthorizationDenied
from odradek.broker.handlers.answer_size import AnswerTooLarge
from odradek.broker.handlers.api_row import ApiRow, ApiTable
from odradek.broker.handlers.handler_kinds import HandlerKind
from odradek.broker.handlers.handlers import Handlers
from odradek.broker.handlers.item_faults import item_faults
from odradek.broker.handlers.long_requests import LongRequests
from odradek.broker.handlers.route import Route
from odradek.broker.logging.client_warnings import ClientWarnings
from odradek.broker.requests.answered_later import answered_in_steps, answered_later
from odradek.broker.requests.request_bound import LARGE_FRAME_BYTES, RequestBound
from odradek.broker.requests.request_context import (
    CloseConnection,
    ConnectionInfo,
    Holds,
    Part,
    PendingResponse,
    RequestContext,
    undecodable,
)
from odradek.broker.requests.request_metrics import BrokerMetrics
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import read
from odradek.protocol.errors import ErrorCode, MalformedMessage, ProtocolError
from odradek.protocol.headers import RequestHeader
from odradek.protocol.primitives import NO_LIMIT
from odradek.protocol.schema import NEVER
from odradek.timer import Clock

MOST_LOGGED_PEERS = 1000
_KEY_AND_VERSION = struct.Struct(">hh").unpack_from

log = structlog.get_logger("broker.handlers")


class Dispatcher:
    def __init__(
        self,
        table: ApiTable,
        handlers: Handlers,
        *,
        clock: Clock,
        background: Background,
        metrics: BrokerMetrics,
        client_warnings: ClientWarnings,
        max_response_bytes: int,
        broker_listeners: frozenset[str],
        bound: RequestBound,
    ) -> None:
        """`broker_listeners`: the listeners that serve the requests between brokers, none if there is no other
        broker.
        """
        self._table = table
        self._handlers = handlers
        self._clock = clock
        self._background = background
        self._metrics = metrics
        self._client_warnings = client_warnings
        self._max_response_bytes = max_response_bytes
        self._broker_listeners = broker_listeners
        self._bound = bound
        self._routes: dict[tuple[int, int], Route] = {}
        """The routes that every listener has."""
        self._routes_between_brokers: dict[tuple[int, int], Route] = {}
        self._logged_peers: dict[tuple[str, str | None, int, int], None] = {}
        """The brokers of which this one has logged that it does not serve their version of an API."""
        self._long_requests = LongRequests(background, self)

    def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> list[Part] | PendingResponse | None:
        """Handles one request. `frame` has at least 8 bytes, without its length prefix. Raises CloseConnection."""
        key_and_version = _KEY_AND_VERSION(frame)
        route = self._routes.get(key_and_version)
        if route is None:
            route = self._other_route(frame, key_and_version[0], key_and_version[1], connection)
        request: Any = None
        reading: Steps[tuple[Any, int]] | None = None
        try:
            header, position = route.read_header(frame, 0)
            if route.is_served and len(frame) <= LARGE_FRAME_BYTES:
                request, _ = route.read_body(frame, position)
            elif route.is_served:
                reading = route.reading(frame, position)
                try:
                    next(reading)
                except StopIteration as end:
                    (request, _), reading = end.value, None
        except MalformedMessage as error:
            raise undecodable(key_and_version[0], key_and_version[1], error) from None
        context = RequestContext(
            connection,
            route.api_key,
            key_and_version[1],
            header.correlation_id,
            header.client_id,
            now_ms,
        )
        if reading is not None:
            return self._long_requests.go_on(route, reading, context, len(frame))
        try:
            if len(frame) > route.row.bound_from_bytes:
                refused = self._refused(route, request, context)
                if refused is not None:
                    return self._long_requests.park(route, request, context, refused, len(frame))
            response = self._call(route, request, context)
            if type(response) is PendingResponse:
                return self._park(route, request, context, response, len(frame))
            return self.answer(route, context, response)
        except CloseConnection as closing:
            self._encode_last(route, context, closing)
            raise
        except Exception as error:
            return self._answer_failure(route, request, context, error)

    def _call(self, route: Route, request: Any, context: RequestContext) -> Any:
        """Calls the handler. If it is a coroutine, or needs more than one step, returns a parked request."""
        response = route.handler(request, context)
        if route.is_plain:
            return response
        if route.handler_kind is HandlerKind.TASK:
            return answered_later(response, context, self._background.spawn)
        return answered_in_steps(response, context, self._background.spawn, self._background.turns)

    def check_bound(self, route: Route, request: Any, context: RequestContext) -> None:
        """Raises POLICY_VIOLATION if the request names too many partitions."""
        route.row.check_bound(request, self._bound.of(request, context.connection))

    def _refused(self, route: Route, request: Any, context: RequestContext) -> PendingResponse | None:
        """Fails a request that names too many partitions. Parked, since it takes time to encode all of them."""
        try:
            self.check_bound(route, request, context)
        except ProtocolError as error:
            refused = PendingResponse(holds=Holds.EVERYTHING)
            refused.fail(error)
            return refused
        return None

    def answer(self, route: Route, context: RequestContext, response: Any) -> list[Part] | None:
        """Encodes the response, counts the request and logs the items that failed (f)."""
        parts = None if response is None else route.encode(response, context.correlation_id)
        if self._count(route, context, response) and route.is_served:
            self._log_refused_items(route, context, response)
        return parts

    def _encode_last(self, route: Route, context: RequestContext, closing: CloseConnection) -> None:
        """Encodes the response that is sent before the end of the connection, if there is one."""
        if closing.response is not None:
            closing.answer = self.answer(route, context, closing.response) or []

    def answer_in_steps(self, route: Route, context: RequestContext, response: Any) -> Steps[list[Part] | None]:
        """Like `answer`, in steps, for a long response: docs/decisions/twins.md has what a short one would take."""
        if response is None:
            return self.answer(route, context, response)
        parts = yield from route.encode_in_steps(response, context.correlation_id)
        if (yield from route.metrics.answered_at_length(response, self._elapsed_ms(context))):
            self._log_refused_items(route, context, response)
        return parts

    def _count(self, route: Route, context: RequestContext, response: Any) -> bool:
        """Counts the request. Returns whether the response contains an error."""
        return route.metrics.answered(response, self._elapsed_ms(context))

    def _elapsed_ms(self, context: RequestContext) -> int:
        return self._clock.now_ms() - context.received_ms

    def _log_refused_items(self, route: Route, context: RequestContext, response: Any) -> None:
        faults = item_faults(response)
        if faults:
            self._client_warnings.warn(
                "request items refused",
                api=route.row.key.name,
                api_version=context.api_version,
                items=faults,
                client=context.client_host,
                client_id=context.client_id,
                connection=context.connection_id,
            )

    def _park(
        self, route: Route, request: Any, context: RequestContext, pending: PendingResponse, size: int
    ) -> PendingResponse:
        kept = request if route.row.keeps_parked_requests else None
        if pending.is_long:
            return self._long_requests.park(route, kept, context, pending, size)

        def finish(pending: PendingResponse) -> list[Part] | None:
            try:
                return self.answer(route, context, pending.result())
            except CloseConnection:
                raise
            except Exception as error:
                return self._answer_failure(route, kept, context, error)

        pending.park(route.api_key, size, finish)
        return pending

    def _answer_failure(
        self, route: Route, request: Any, context: RequestContext, error: Exception
    ) -> list[Part] | None:
        return finished(self.failure_in_steps(route, request, context, error))

    def failure_in_steps(
        self, route: Route, request: Any, context: RequestContext, error: Exception
    ) -> Steps[list[Part] | None]:
        """Logs a failure and encodes the error response: cases (c) and (d). Raises CloseConnection."""
        row = route.row
        code, message = self._log_failure(row, context, error)
        if request is not None:
            try:
                response = yield from row.error_response(request, code, message)
                if response is not None:
                    parts: list[Part] = yield from route.encode_in_steps(response, context.correlation_id)
                    has_error = yield from route.metrics.answered_at_length(response, self._elapsed_ms(context))
                    yield from let_go(response)
                    if has_error or not isinstance(error, AnswerTooLarge):
                        return parts
            except AnswerTooLarge as second:
                reason = "error response too large"
                raise CloseConnection(reason, api=row.key.name, error=code.name) from second
            except Exception as second:
                log.error("error response failed", api=row.key.name, error=code.name, exc_info=second)
        raise CloseConnection("request failed and cannot be answered", api=row.key.name, error=code.name)

    def _log_failure(self, row: ApiRow, context: RequestContext, error: Exception) -> tuple[ErrorCode, str | None]:
        """Logs a failure. Returns the error code and message for the client."""
        if isinstance(error, AuthorizationDenied):
            return error.code, error.error_message  # the audit log has it
        if isinstance(error, ProtocolError):
            self._client_warnings.warn(
                "request refused",
                api=row.key.name,
                api_version=context.api_version,
                error=error.code.name,
                reason=error.error_message,
                client=context.client_host,
                client_id=context.client_id,
                connection=context.connection_id,
            )
            return error.code, error.error_message
        log.error(
            "request failed",
            api=row.key.name,
            api_version=context.api_version,
            client=context.client_host,
            client_id=context.client_id,
            connection=context.connection_id,
            exc_info=error,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR, None

    def _other_route(self, frame: bytes, api_key: int, api_version: int, connection: ConnectionInfo) -> Route:
        """Returns a route that is new, or that only the inter-broker listener has. Raises CloseConnection, which names
        the client: a broker of another protocol version has its id in its client id.
        """
        row = self._table.row(api_key)
        if row is None:
            raise CloseConnection("API not served", api_key=api_key, api_version=api_version)
        routes = self._routes
        if api_version in row.between_brokers:
            if connection.listener.name not in self._broker_listeners:
                raise CloseConnection("API between brokers only", api=row.key.name, api_version=api_version)
            routes = self._routes_between_brokers
        elif not row.serves(api_version) and row.key != ApiKey.API_VERSIONS:
            raise self._not_served(row, api_version, _client_id(frame), connection)
        route = routes.get((api_key, api_version))
        if route is None:
            route = self._new_route(row, api_version)
            if route.is_served:
                routes[(api_key, api_version)] = route
        return route

    def _not_served(
        self, row: ApiRow, api_version: int, client_id: str | None, connection: ConnectionInfo
    ) -> CloseConnection:
        """Returns what ends the connection. A broker of another protocol version connects again ten times a second, so
        each of its API versions is logged once.
        """
        details = {"api": row.key.name, "api_version": api_version, "client_id": client_id}
        if row.between_brokers == NEVER or connection.listener.name not in self._broker_listeners:
            return CloseConnection("API version not served", **details)
        peer = (connection.client_host, client_id, int(row.key), api_version)
        if peer in self._logged_peers:
            return CloseConnection("")
        if len(self._logged_peers) < MOST_LOGGED_PEERS:
            self._logged_peers[peer] = None
        return CloseConnection("broker of another protocol version", **details, served=row.between_brokers.highest)

    def _new_route(self, row: ApiRow, api_version: int) -> Route:
        counted_version = api_version if row.serves(api_version) else 0
        most_bytes = NO_LIMIT if row.bounds_its_answer else self._max_response_bytes
        metrics = self._metrics.of(int(row.key), counted_version)
        handler = row.handler_of(self._handlers, self._background)
        return Route(row, handler, api_version, metrics, most_bytes)


def _client_id(frame: bytes) -> str | None:
    """Returns the client id of a request of any API and version: headers begin in the same way from version 1 on."""
    try:
        header, _ = read(RequestHeader, 1, frame)
    except MalformedMessage:
        return None
    client_id: str | None = header.client_id
    return client_id
