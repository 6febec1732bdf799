"""The dispatch of a broker with faults: it stands between the connections and the broker's own.

(A) Without faults and without a journal, a request goes straight on.
(B) The faults apply in the order in which they were added. One that answers a request keeps it from those behind
    it; one that changes the answer changes what those behind it have made of it.
(C) A request that waits holds back later requests of its connection, as a slow broker does, unless the fault says
    otherwise. If the client disconnects, a waiting request is dropped: the broker has never handled it.
(D) A client that has not logged in yet cannot be made to wait, since its login is a dialogue.
(E) Requests that do not decode, and those of APIs that are not served, are left to the broker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

import structlog

from odradek.broker.network.rounds import Dispatch
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo, Holds, Part, PendingResponse
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.schema import Message
from odradek.testing.faults import failures, fetches
from odradek.testing.faults.answers import (
    Answer,
    as_bytes,
    changed,
    decoded_response,
    encoded_response,
    parked,
    settle,
)
from odradek.testing.faults.fault import Fault
from odradek.testing.faults.journal import Journal
from odradek.testing.faults.request import Request
from odradek.testing.faults.selection import Split

if TYPE_CHECKING:
    from odradek.broker.server import Broker

log = structlog.get_logger("broker.testing.faults")

DESCRIPTIONS = (ApiKey.METADATA, ApiKey.DESCRIBE_TOPIC_PARTITIONS)
"""The APIs whose response shows which topics and partitions are selected."""
Onward = Callable[[Any], Answer]
"""What happens to a request (its body) behind a fault."""


class Faults(Protocol):
    """The part of `Faults` that a dispatch uses."""

    journal: Journal
    of_requests: tuple[Fault, ...]

    def function_failed(self, fault: Fault, error: Exception) -> None: ...


class FaultyDispatch:
    """The dispatch of one broker. `ordinary` is the broker's own."""

    def __init__(self, faults: Faults, broker: Broker, ordinary: Dispatch) -> None:
        self.faults = faults
        self.broker = broker
        self.ordinary = ordinary
        self.loop = asyncio.get_running_loop()

    def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> Answer:
        """See `Dispatch`. Raises CloseConnection."""
        journal = self.faults.journal
        if not self.faults.of_requests and not journal.is_on:
            return self.ordinary(frame, connection, now_ms)
        request = self._request(frame, connection)
        if request is None:
            return self.ordinary(frame, connection, now_ms)
        passage = _Passage(self, request, connection)
        if not journal.is_on:
            return passage.go(self.faults.of_requests, request.body)
        journal.add(request)
        return self._journaled(passage)

    def topic_name(self, topic_id: UUID) -> str | None:
        return self.broker.metadata.topic_name(topic_id)

    def _request(self, frame: bytes, connection: ConnectionInfo) -> Request | None:
        api_key, version = (int.from_bytes(frame[at : at + 2], "big", signed=True) for at in (0, 2))
        row = self.broker.api_table.row(api_key)
        if row is None or not row.serves(version):
            return None
        try:
            request = Request(
                row,
                version,
                frame,
                broker=self.broker.broker_id,
                connection=connection,
                received_ms=self.broker.clock.wall_ms(),
                topic_name=self.topic_name,
            )
            body = request.body
        except MalformedMessage:
            return None
        if row.key == ApiKey.FETCH:
            session = self.broker.fetch_sessions.get(body.session_id) if body.session_epoch > 0 else None
            request.fetched = fetches.fetched(body, session, self.topic_name)
        return request

    def _journaled(self, passage: _Passage) -> Answer:
        request, journal = passage.request, self.faults.journal

        def answered(parts: list[Part] | None) -> list[Part] | None:
            if parts is not None:
                request.answer = as_bytes(parts)
                parts = [request.answer]
            journal.answered(request, self.broker.clock.wall_ms())
            return parts

        def closing(end: CloseConnection) -> None:
            request.closed = True
            journal.answered(request, self.broker.clock.wall_ms())

        try:
            return changed(passage.go(self.faults.of_requests, request.body), answered, closing)
        except CloseConnection as end:
            closing(end)
            raise


class _Passage:
    """One request on its way through the faults."""

    def __init__(self, dispatch: FaultyDispatch, request: Request, connection: ConnectionInfo) -> None:
        self.request = request
        self._dispatch = dispatch
        self._connection = connection

    def go(self, faults: tuple[Fault, ...], body: Any) -> Answer:
        """Applies the faults, then lets the broker handle the request. Raises CloseConnection."""
        for place, fault in enumerate(faults):
            split = self._split(fault, body)
            if split is not None and (self._shows_later(fault, split) or self._is_hit(fault)):
                return self._apply(fault, split, body, partial(self.go, faults[place + 1 :]))
        frame = self.request.frame
        if body is not self.request.body:
            frame = frame[: self.request.body_position] + encode(body, self.request.version)
        return self._dispatch.ordinary(frame, self._connection, self._dispatch.broker.clock.now_ms())

    def _split(self, fault: Fault, body: Any) -> Split | None:
        if fault.action.waits and self._connection.authentication is not None:
            return None
        try:
            return fault.selector.split(self.request, body)
        except Exception as error:
            raise self._failed(fault, error) from error

    def _shows_later(self, fault: Fault, split: Split) -> bool:
        """Whether only the answer shows if the request is hit: it must have records, or the selected items."""
        action = fault.action
        return action.corrupt or (action.error is not None and not action.waits and self._is_shown(split))

    def _is_shown(self, split: Split) -> bool:
        """Whether the response shows the selected items."""
        return split.is_open or self.request.row.key in DESCRIPTIONS

    def _is_hit(self, fault: Fault) -> bool:
        if not fault.takes():
            return False
        fault.count_hit()
        self.request.faults.append(fault.number)
        log.info("request hit by a fault", fault=repr(fault), api=self.request.api, client_id=self.request.client_id)
        return True

    # --- actions ------------------------------------------------------------------------------------------------

    def _apply(self, fault: Fault, split: Split, body: Any, onward: Onward) -> Answer:
        if not fault.action.waits:
            return self._act(fault, split, body, onward)
        waiting = PendingResponse(holds=Holds.EVERYTHING if fault.action.in_order else Holds.NOTHING)

        def go_on() -> None:
            settle(waiting, lambda: self._act(fault, split, body, onward))

        if fault.action.hold:
            waiting.when_abandoned(lambda: fault.let_go(go_on))
            fault.hold(go_on, self._dispatch.loop)
        else:
            timer = self._dispatch.broker.timer.call_later(round(fault.action.delay * 1000), go_on)
            waiting.when_abandoned(timer.cancel)
        return parked(int(self.request.row.key), waiting, len(self.request.frame))

    def _act(self, fault: Fault, split: Split, body: Any, onward: Onward) -> Answer:
        action = fault.action
        if action.respond is not None:
            return self._respond(fault, body, onward)
        if action.close == "before":
            raise CloseConnection("")
        if action.drop == "before":
            return None
        answer = onward(body) if action.error is None else self._fail(fault, action.error, split, body, onward)
        if not action.changes_answers:
            return answer
        return changed(answer, lambda parts: self._change(fault, parts))

    def _respond(self, fault: Fault, body: Any, onward: Onward) -> Answer:
        """Asks the test's function."""
        assert fault.action.respond is not None
        try:
            response = fault.action.respond(self.request)
        except ConnectionError:
            raise CloseConnection("") from None
        except Exception as error:
            raise self._failed(fault, error) from error
        if not inspect.isawaitable(response):
            return onward(body) if response is None else self._made(fault, response)
        if self._connection.authentication is not None:
            raise self._failed(fault, TypeError("a client that has not logged in cannot wait for a coroutine"))
        waiting = PendingResponse(holds=Holds.EVERYTHING if fault.action.in_order else Holds.NOTHING)

        async def wait() -> None:
            try:
                made = await response
            except ConnectionError:
                waiting.fail(CloseConnection(""))
            except Exception as error:
                waiting.fail(self._failed(fault, error))
            else:
                settle(waiting, lambda: onward(body) if made is None else self._made(fault, made))

        task = self._dispatch.broker.background.spawn(wait(), f"{fault!r}")
        waiting.when_abandoned(task.cancel)
        return parked(int(self.request.row.key), waiting, len(self.request.frame))

    def _failed(self, fault: Fault, error: Exception) -> CloseConnection:
        """The test's own function failed: the test fails at its end."""
        self._dispatch.faults.function_failed(fault, error)
        return CloseConnection("function of a fault failed", fault=repr(fault), error=repr(error))

    def _fail(self, fault: Fault, code: ErrorCode, split: Split, body: Any, onward: Onward) -> Answer:
        request, message = self.request, fault.action.error_message or code.message
        row, version = request.row, request.version
        if row.key == ApiKey.API_VERSIONS and code is ErrorCode.UNSUPPORTED_VERSION:
            return [encoded_response(row, 0, request.correlation_id, failures.unsupported_version(row))]
        if row.key == ApiKey.FETCH:
            return self._fail_fetch(fault, code, body, onward)
        if row.key == ApiKey.DESCRIBE_LOG_DIRS and version < failures.FIRST_LOG_DIRS_WITH_ERROR:
            return changed(onward(body), lambda parts: self._fail_log_dirs(fault, split, code, parts))
        if self._is_shown(split):
            return changed(onward(body), lambda parts: self._fail_in_response(fault, split, code, body, parts))
        errors = None if split.rest is None else failures.items_error(row, version, split.chosen, code, message)
        if errors is None:
            whole = failures.whole_error(row, version, body, code, message)
            return self._once_handled(fault, body, onward, lambda: self._answered(whole, body))

        def put_together(parts: list[Part] | None) -> list[Part] | None:
            if parts is None:
                raise CloseConnection("")  # acks=0
            response = self._decoded(parts)
            failures.put_together(response, errors)
            return [self._encoded(response)]

        return self._once_handled(fault, split.chosen, onward, lambda: changed(onward(split.rest), put_together))

    def _once_handled(self, fault: Fault, body: Any, onward: Onward, make: Callable[[], Answer]) -> Answer:
        """Makes an answer, after the broker has handled the request if the fault says so."""
        return changed(onward(body), lambda _: make()) if fault.action.handled else make()

    def _answered(self, response: Any, body: Any) -> list[Part]:
        """Returns an answer. As in Kafka, a failed Produce with acks=0 ends the connection."""
        if self.request.row.key == ApiKey.PRODUCE and body.acks == 0:
            raise CloseConnection("")
        return [self._encoded(response)]

    def _fail_in_response(
        self, fault: Fault, split: Split, code: ErrorCode, body: Any, parts: list[Part] | None
    ) -> list[Part] | None:
        if parts is None:
            return None
        request, response = self.request, self._decoded(parts)
        if request.row.key in failures.WITHOUT_ITEM_ERRORS:
            response = failures.whole_error(request.row, request.version, body, code, fault.action.error_message)
        elif not failures.put_into_items(response, fault.selector.items, code, self._dispatch.topic_name):
            return parts
        return [self._encoded(response)] if self._was_hit(fault, split) else parts

    def _was_hit(self, fault: Fault, split: Split) -> bool:
        """Whether a fault is applied that the response fits."""
        return not self._shows_later(fault, split) or self._is_hit(fault)

    def _fail_log_dirs(
        self, fault: Fault, split: Split, code: ErrorCode, parts: list[Part] | None
    ) -> list[Part] | None:
        if parts is None or not self._was_hit(fault, split):
            return parts
        response = self._decoded(parts)
        failures.put_into_log_dirs(response, code)
        return [self._encoded(response)]

    def _fail_fetch(self, fault: Fault, code: ErrorCode, body: Any, onward: Onward) -> Answer:
        version = self.request.version
        if code in fetches.SESSION_ERRORS and version >= fetches.FIRST_VERSION_WITH_SESSIONS:
            response = self.request.answer_with(error_code=int(code), session_id=body.session_id)
            return [self._encoded(response)]
        chosen = fetches.chosen_of(fault.selector.items, self.request.fetched or [])

        def put_error(parts: list[Part] | None) -> list[Part] | None:
            if parts is None:
                return None
            response = self._decoded(parts)
            fetches.put_error(response, chosen, code)
            return [self._encoded(response)]

        return changed(onward(fetches.without_waiting(body)), put_error)

    def _change(self, fault: Fault, parts: list[Part] | None) -> list[Part] | None:
        """Changes the answer, or ends the connection in its place."""
        action = fault.action
        if action.throttle_ms:
            self._connection.throttle_ms = max(self._connection.throttle_ms, action.throttle_ms)
        if parts is not None and (action.change is not None or action.corrupt or action.throttle_ms):
            parts = self._made(fault, self._changed_response(fault, self._decoded(parts)))
        if action.close == "after":
            raise CloseConnection("")
        if action.cut is not None:
            cut = CloseConnection("")
            cut.answer = [as_bytes(parts or [])[: action.cut]]
            raise cut
        return None if action.drop == "after" else parts

    def _changed_response(self, fault: Fault, response: Any) -> Any:
        action = fault.action
        if action.throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, action.throttle_ms)
        if action.corrupt:
            self._corrupt(fault, response)
        if action.change is not None:
            try:
                response = action.change(self.request, response) or response
            except Exception as error:
                raise self._failed(fault, error) from error
        return response

    def _corrupt(self, fault: Fault, response: Any) -> None:
        """Only a response with records is hit."""
        partitions = fetches.corruptible(response, fault.selector.items, self._dispatch.topic_name)
        if partitions and self._is_hit(fault):
            for partition in partitions:
                fetches.corrupt(partition)

    def _made(self, fault: Fault, response: Any) -> list[Part]:
        """Encodes the response of a function, which may not be one of this API."""
        expected = self.request.row.response_class
        try:
            if not isinstance(response, expected):
                raise TypeError(f"{response!r} is no {expected.__name__}")
            return [self._encoded(response)]
        except Exception as error:
            raise self._failed(fault, error) from error

    # --- encoding -----------------------------------------------------------------------------------------------

    def _decoded(self, parts: list[Part]) -> Any:
        return decoded_response(self.request.row, self.request.version, as_bytes(parts))

    def _encoded(self, response: Message) -> bytes:
        request = self.request
        return encoded_response(request.row, request.version, request.correlation_id, response)
