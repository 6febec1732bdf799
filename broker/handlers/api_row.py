"""A row of the API table, and the table as a look-up.

Three columns of versions. (a) What the codec knows: the message's own schema. (b) `served`: what a client listener
answers. (c) `advertised`: what ApiVersions lists, which is Apache Kafka 3.0's table, less what does not work yet; one
release's table, since clients infer the release from it. Served and advertised are the same today; they part when a
newer release's table becomes a profile.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from odradek.broker.handlers.answered_later import answered_in_steps, answered_later
from odradek.broker.handlers.error_responses import ErrorResponse
from odradek.broker.handlers.request_context import RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.registry import request_class, response_class
from odradek.protocol.schema import Message, Versions

MAX_PARTITIONS_PER_REQUEST = 10_000
NEVER = 1 << 62

Handler = Callable[[Any, RequestContext], Any]


class ApiRow:
    """One API. `partitions_asked` tells how many partitions a request names, topic by topic, where it can name many.

    A topic without partitions is as much work as one with a single one, and counts as such. JoinGroup's protocols, each
    of which the group must compare with its members', count like partitions.
    """

    __slots__ = (
        "advertised",
        "bound_from_bytes",
        "bounds_its_answer",
        "error_response",
        "handle",
        "handler",
        "keeps_parked_requests",
        "key",
        "partitions_asked",
        "request_class",
        "response_class",
        "served",
    )

    def __init__(
        self,
        key: ApiKey,
        served: tuple[int, int],
        handler: Handler,
        error_response: ErrorResponse,
        *,
        advertised: tuple[int, int] | None = None,
        partitions_asked: Callable[[Any], Iterable[int]] | None = None,
        bytes_per_partition: int = 4,
        keeps_parked_requests: bool = True,
        bounds_its_answer: bool = False,
    ) -> None:
        """`bytes_per_partition`: the least that naming one takes in a request; shorter requests need not be counted.
        `keeps_parked_requests`: whether a parked request stays in memory, to answer it should it fail as a whole.
        `bounds_its_answer`: its handler does, by a setting of its own.
        """
        self.key = key
        self.served = Versions(*served)
        self.advertised = Versions(*(advertised or served))
        self.handler = handler
        self.error_response = error_response
        self.partitions_asked = partitions_asked
        self.keeps_parked_requests = keeps_parked_requests
        self.bounds_its_answer = bounds_its_answer
        self.request_class: type[Message] = request_class(key)
        self.response_class: type[Message] = response_class(key)
        self.bound_from_bytes = NEVER if partitions_asked is None else MAX_PARTITIONS_PER_REQUEST * bytes_per_partition
        self.handle: Handler = handler
        if inspect.iscoroutinefunction(handler):
            self.handle = _as_task(handler)
        elif inspect.isgeneratorfunction(handler):
            self.handle = _in_steps(handler)

    def check_bound(self, request: Any) -> None:
        """Raises POLICY_VIOLATION for a request that names too many partitions. Does not count any further."""
        asked = 0
        for some in () if self.partitions_asked is None else self.partitions_asked(request):
            asked += max(some, 1)
            if asked > MAX_PARTITIONS_PER_REQUEST:
                raise ProtocolError(
                    ErrorCode.POLICY_VIOLATION, f"The request names more than {MAX_PARTITIONS_PER_REQUEST} items"
                )

    def serves(self, api_version: int) -> bool:
        return api_version in self.served


class ApiTable:
    """The rows by key."""

    def __init__(self, rows: Iterable[ApiRow]) -> None:
        self._rows = {int(row.key): row for row in rows}

    def row(self, api_key: int) -> ApiRow | None:
        return self._rows.get(api_key)

    def rows(self) -> list[ApiRow]:
        """Ascending by key."""
        return [self._rows[key] for key in sorted(self._rows)]


def _as_task(handler: Handler) -> Handler:
    """A handler that waits (for the metadata store) runs as a task and answers when it ends, whoever is still there."""

    return lambda request, context: answered_later(handler(request, context), context)


def _in_steps(handler: Handler) -> Handler:
    """A handler that yields between steps: what fits the first one is answered at once."""

    return lambda request, context: answered_in_steps(handler(request, context), context)
