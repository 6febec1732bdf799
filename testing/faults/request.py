"""A request that a broker has received, and what it answered. The bodies are decoded when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any
from uuid import UUID

from odradek.broker.background.stepwise import finished
from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.requests.request_context import ConnectionInfo
from odradek.protocol.compiler import read
from odradek.protocol.documents import to_document
from odradek.protocol.headers import RequestHeader, request_header_version
from odradek.protocol.schema import Message
from odradek.testing.faults.answers import decoded_response
from odradek.testing.faults.fetches import Fetched
from odradek.testing.faults.names import api_name, error_of


class Request:
    """See the head of this file. `received_ms` and `answered_ms` are wall times of the broker."""

    def __init__(
        self,
        row: ApiRow,
        version: int,
        frame: bytes,
        *,
        broker: int,
        connection: ConnectionInfo,
        received_ms: int,
        topic_name: Callable[[UUID], str | None],
    ) -> None:
        """`frame` has the header and the body. Raises MalformedMessage if the header does not decode."""
        header, self.body_position = read(RequestHeader, request_header_version(row.key, version), frame)
        self.row = row
        self.api = api_name(row)
        self.version = version
        self.frame = frame
        self.client_id: str | None = header.client_id
        self.correlation_id: int = header.correlation_id
        self.broker = broker
        self.client = f"{connection.client_host}:{connection.client_port}"
        self.connection = connection.number
        self.user = connection.principal
        self.received_ms = received_ms
        self.answered_ms: int | None = None
        self.closed = False
        """Whether the connection ended instead of, or right behind, the response."""
        self.faults: list[int] = []
        """The numbers of the faults that hit it."""
        self.number = 0
        """In the journal, from 1."""
        self.answer: bytes | None = None
        """The encoded response with its length; None before it is made, and if there is none."""
        self.topic_name = topic_name
        self.fetched: list[Fetched] | None = None
        """What a Fetch fetches, those of its session included."""

    @cached_property
    def body(self) -> Any:
        """The decoded request. Raises MalformedMessage."""
        return self._decoded()

    def _decoded(self) -> Any:
        return read(self.row.request_class, self.version, self.frame, self.body_position)[0]

    @property
    def response(self) -> Any:
        """The decoded response; None if there is none (yet)."""
        return None if self.answer is None else decoded_response(self.row, self.version, self.answer)

    def answer_with(self, **fields: Any) -> Message:
        """Returns a response of this API, for functions that answer requests."""
        return self.row.response_class(**fields)

    def fail_with(self, error: str | int, message: str | None = None) -> Message:
        """Returns this API's response to a request that failed as a whole."""
        return finished(self.row.error_response(self.body, error_of(error), message))

    def document(self) -> dict[str, Any]:
        """Returns all of it as JSON values, without secrets; bodies have the names of Kafka's specification, bytes are
        base64."""
        from odradek.clients.recording.secrets import SECRET_REQUESTS, SECRET_RESPONSES, hide_secrets

        request, response = self.body, self.response
        if self.row.key in SECRET_REQUESTS:
            request = self._decoded()
            hide_secrets(request)
        if response is not None and self.row.key in SECRET_RESPONSES:
            hide_secrets(response)
        return {
            "number": self.number,
            "broker": self.broker,
            "api": self.api,
            "version": self.version,
            "client_id": self.client_id,
            "correlation_id": self.correlation_id,
            "client": self.client,
            "user": self.user,
            "received_ms": self.received_ms,
            "answered_ms": self.answered_ms,
            "closed": self.closed,
            "faults": self.faults,
            "request": to_document(request, self.version),
            "response": None if response is None else to_document(response, self.version),
        }

    def __repr__(self) -> str:
        return f"<{self.api} {self.version} of {self.client_id!r} at broker {self.broker}>"
