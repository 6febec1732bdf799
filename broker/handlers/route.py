"""An API version's path through the dispatcher: its decoder, handler, encoder and counters."""

from __future__ import annotations

import struct
from typing import Any

from odradek.broker.background.stepwise import Steps, memory_of_request
from odradek.broker.handlers.answer_size import AnswerTooLarge
from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.handler_kinds import Handler, HandlerKind, kind_of
from odradek.broker.requests.request_context import JOIN_PART_BYTES, Part, in_memory
from odradek.broker.requests.request_metrics import RequestMetrics
from odradek.protocol.compiler import reader_in_steps, reader_of, writer_in_steps, writer_of
from odradek.protocol.element_sizes import answered_bytes
from odradek.protocol.headers import RequestHeader, request_header_version, response_header_version

_PREFIX = struct.Struct(">ii").pack
_FLEXIBLE_PREFIX = struct.Struct(">iib").pack


class Route:
    """Everything about one API version that a request needs, found with a single lookup."""

    __slots__ = (
        "_most_bytes",
        "_reader_in_steps",
        "_writer_in_steps",
        "api_key",
        "api_version",
        "flexible_header",
        "handler",
        "handler_kind",
        "is_plain",
        "is_served",
        "metrics",
        "read_body",
        "read_header",
        "row",
        "write",
    )

    def __init__(
        self, row: ApiRow, handler: Handler, api_version: int, metrics: RequestMetrics, most_bytes: int
    ) -> None:
        """`most_bytes`: the maximum size of a response."""
        self.row = row
        self.handler = handler
        self.handler_kind = kind_of(handler)
        self.is_plain = self.handler_kind is HandlerKind.PLAIN
        self._most_bytes = most_bytes
        self.metrics = metrics
        self.is_served = row.serves(api_version)
        self.api_key = int(row.key)
        self.api_version = api_version if self.is_served else 0
        self.read_header = reader_of(RequestHeader, request_header_version(row.key, api_version))
        self.read_body = reader_of(row.request_class, self.api_version)
        self.write = writer_of(row.response_class, self.api_version)
        self.flexible_header = response_header_version(row.key, self.api_version) > 0
        self._reader_in_steps: Any = None
        self._writer_in_steps: Any = None

    def reading(self, frame: bytes, position: int) -> Steps[tuple[Any, int]]:
        """`read_body` in steps, limited to the memory that a request of this size may use. A small request takes 1 us
        more (docs/decisions/twins.md).
        """
        if self._reader_in_steps is None:
            answered = answered_bytes(self.row.response_class)
            self._reader_in_steps = reader_in_steps(self.row.request_class, self.api_version, answered)
        steps: Steps[tuple[Any, int]] = self._reader_in_steps(frame, position, memory_of_request(len(frame)))
        return steps

    def encode_in_steps(self, response: Any, correlation_id: int) -> Steps[list[Part]]:
        """`encode` in steps; small parts are joined on the way. Raises AnswerTooLarge once the limit is exceeded."""
        if self._writer_in_steps is None:
            self._writer_in_steps = writer_in_steps(self.row.response_class, self.api_version)
        parts: list[Part] = []
        made: list[Part] = [b""]
        size = 0
        for _ in self._writer_in_steps(response, parts):
            size += _gather(parts, made)
            if size > self._most_bytes:
                raise AnswerTooLarge(self._most_bytes)
            yield
        size += _gather(parts, made)
        made[0] = self._beginning(size, correlation_id)
        return made

    def encode(self, response: Any, correlation_id: int) -> list[Part]:
        """Encodes the response with length and header. Large records remain references. Raises AnswerTooLarge.

        A small response takes 0.8 to 1.4 us more in steps (docs/decisions/twins.md).
        """
        parts: list[Part] = [b""]
        self.write(response, parts)
        parts[0] = self._beginning(sum(map(len, parts)), correlation_id)
        return parts

    def _beginning(self, size: int, correlation_id: int) -> bytes:
        if size > self._most_bytes:
            raise AnswerTooLarge(self._most_bytes)
        if self.flexible_header:
            return _FLEXIBLE_PREFIX(size + 5, correlation_id, 0)
        return _PREFIX(size + 4, correlation_id)


def _gather(parts: list[Part], made: list[Part]) -> int:
    """Moves the parts from `parts` to `made`, joined if they are small; returns their size."""
    size = sum(map(len, parts))
    buffers = in_memory(parts, size) if size <= JOIN_PART_BYTES * len(parts) else None
    if buffers is not None:
        made.append(b"".join(buffers))
    else:
        made += parts
    parts.clear()
    return size
