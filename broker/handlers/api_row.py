"""A row of the API table, and the table itself.

There are three ranges of versions: (a) what the codec knows, from the message's schema; (b) `served`, the versions that
every listener answers and ApiVersions lists; (c) `between_brokers`, the versions that only the inter-broker listener
answers, and that ApiVersions lists there (docs/decisions/requests-between-brokers.md). A row has either (b) or (c).
With odradek.as.version it has both if clients find older versions than brokers use; ApiVersions lists (c) to brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from typing import Any

from odradek.broker.background.background import Background
from odradek.broker.handlers.authorization import Authorization
from odradek.broker.handlers.error_responses import ErrorResponse
from odradek.broker.handlers.handler_kinds import Handler
from odradek.broker.handlers.handlers import Handlers
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST, check_partitions_asked
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.registry import request_class, response_class
from odradek.protocol.primitives import NO_LIMIT
from odradek.protocol.schema import NEVER, Message, Versions


class ApiRow:
    """One API. `partitions_asked` returns the number of partitions per topic of a request, for APIs that can name many.

    A topic without partitions costs as much as a topic with one, and counts as one. JoinGroup's protocols count like
    partitions, since the group must compare each of them with its members'.
    """

    __slots__ = (
        "authorization",
        "between_brokers",
        "bound_from_bytes",
        "bounds_its_answer",
        "error_response",
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
        served: tuple[int, int] | None,
        handler: Callable[[Handlers], Handler],
        error_response: ErrorResponse,
        *,
        authorization: Authorization,
        between_brokers: tuple[int, int] | None = None,
        partitions_asked: Callable[[Any], Iterable[int]] | None = None,
        bytes_per_partition: int = 4,
        keeps_parked_requests: bool = True,
        bounds_its_answer: bool = False,
    ) -> None:
        """`served`: None if only the inter-broker listener serves the API.
        `handler` selects the API's handler from those of a broker.
        `bytes_per_partition`: the least that a partition takes in a request; shorter requests need not be counted.
        `keeps_parked_requests`: keep a parked request in memory, for its error response should it fail as a whole.
        `bounds_its_answer`: the handler limits the response by a setting of its own.
        `authorization`: what the client must be allowed. Unused without an authorizer.
        """
        self.key = key
        self.served = Versions(*(served or NEVER))
        self.between_brokers = Versions(*(between_brokers or NEVER))
        self.handler = handler
        self.error_response = error_response
        self.partitions_asked = partitions_asked
        self.keeps_parked_requests = keeps_parked_requests
        self.bounds_its_answer = bounds_its_answer
        self.authorization = authorization
        self.request_class: type[Message] = request_class(key)
        self.response_class: type[Message] = response_class(key)
        counted_from = MAX_PARTITIONS_PER_REQUEST * bytes_per_partition
        self.bound_from_bytes = NO_LIMIT if partitions_asked is None else counted_from

    def handler_of(self, handlers: Handlers, background: Background) -> Handler:
        """Returns the handler of a broker. If there is an authorizer, the handler asks it."""
        handler = self.handler(handlers)
        if not handlers.access.decides:
            return handler
        return self.authorization.guard(handler, self.error_response, handlers.access, background)

    def check_bound(self, request: Any, most: int = MAX_PARTITIONS_PER_REQUEST) -> None:
        """Raises POLICY_VIOLATION if the request names more partitions than `most`."""
        if self.partitions_asked is not None:
            check_partitions_asked(self.partitions_asked(request), most)

    def up_to(self, highest: int, of_brokers: int | None) -> ApiRow:
        """Returns the row of a broker that serves clients no version above `highest`, but other brokers theirs,
        `of_brokers`.
        """
        row = copy(self)
        row.served = Versions(self.served.lowest, min(self.served.highest, highest))
        if of_brokers is not None and of_brokers not in row.served:
            row.between_brokers = Versions(of_brokers, of_brokers)
        return row

    def serves(self, api_version: int) -> bool:
        """Whether some listener answers this version."""
        return api_version in self.served or api_version in self.between_brokers


class ApiTable:
    """The rows by API key."""

    def __init__(self, rows: Iterable[ApiRow]) -> None:
        self._rows = {int(row.key): row for row in rows}

    def row(self, api_key: int) -> ApiRow | None:
        return self._rows.get(api_key)

    def rows(self) -> list[ApiRow]:
        """Returns the rows in ascending order of their keys."""
        return [self._rows[key] for key in sorted(self._rows)]

    def client_rows(self) -> list[ApiRow]:
        """Returns the rows of the APIs that every listener serves."""
        return [row for row in self.rows() if row.served != NEVER]
