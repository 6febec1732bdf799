"""A row of the API table, and the table itself.

There are three ranges of versions: (a) what the codec knows, from the message's schema; (b) `served`, the versions that
every listener answers and ApiVersions lists; (c) `between_brokers`, the versions that only the inter-broker listener
answers, and that ApiVersions lists there (docs/decisions/requests-between-brokers.md). A row has either (b) or (c).
With odradek.as.version it has both if clients find older versions than brokers use; ApiVersions lists (c) to brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.broker.background.background import Background
from odradek.broker.handlers.authorization import Authorization
from odradek.broker.handlers.error_responses import ErrorResponse
from odradek.broker.handlers.handler_kinds import Handler
from odradek.broker.handlers.handlers import Handlers
from odradek.broker.handlers.topic_ids import naming
from odradek.broker.metadata.administration import Administration
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST, check_partitions_asked
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.registry import request_class, response_class
from odradek.protocol.primitives import NO_LIMIT
from odradek.protocol.schema import NEVER, Message, Versions


class ApiRow(NamedTuple):
    """One API."""

    key: ApiKey
    served: Versions
    """NEVER if only the inter-broker listener serves the API."""
    handler: Callable[[Handlers], Handler]
    """Selects the API's handler from those of a broker."""
    error_response: ErrorResponse
    authorization: Authorization
    """What the client must be allowed. Unused without an authorizer."""
    between_brokers: Versions
    request_class: type[Message]
    response_class: type[Message]
    partitions_asked: Callable[[Any], Iterable[int]] | None
    """Returns the number of partitions per topic of a request, for APIs that can name many. A topic without partitions
    costs as much as a topic with one, and counts as one. JoinGroup's protocols count like partitions, since the group
    must compare each of them with its members'.
    """
    bound_from_bytes: int
    """Shorter requests need not be counted."""
    keeps_parked_requests: bool
    """Keep a parked request in memory, for its error response should it fail as a whole."""
    bounds_its_answer: bool
    """The handler limits the response by a setting of its own."""
    topic_ids_since: int | None
    """The first version whose topics are named by ids, if the authorizer is asked about topics before the handler."""
    not_controller: Callable[[], ProtocolError] | None
    """The refusal of a broker that is not the active controller, if the API is the controller's. It comes after (A) and
    (B) of `authorization.py`, and before what the handler asks the authorizer (C).
    """

    def handler_of(self, handlers: Handlers, background: Background) -> Handler:
        """Returns the handler of a broker. If there is an authorizer, the handler asks it."""
        handler = self.handler(handlers)
        if self.not_controller is not None:
            handler = _on_controller(handler, handlers.administration, self.not_controller)
        if not handlers.access.decides:
            return handler
        guarded = self.authorization.guard(handler, self.error_response, handlers.access, background)
        since = self.topic_ids_since
        return guarded if since is None else naming(guarded, since, handlers.topic_name)

    def check_bound(self, request: Any, most: int = MAX_PARTITIONS_PER_REQUEST) -> None:
        """Raises POLICY_VIOLATION if the request names more partitions than `most`."""
        if self.partitions_asked is not None:
            check_partitions_asked(self.partitions_asked(request), most)

    def within(self, versions: Versions, of_brokers: int | None) -> ApiRow:
        """Returns the row of a broker that serves clients these versions, and other brokers theirs, `of_brokers`."""
        served = Versions(max(self.served.lowest, versions.lowest), min(self.served.highest, versions.highest))
        between_brokers = self.between_brokers
        if of_brokers is not None and of_brokers not in served:
            between_brokers = Versions(of_brokers, of_brokers)
        return self._replace(served=served, between_brokers=between_brokers)

    def serves(self, api_version: int) -> bool:
        """Whether some listener answers this version."""
        return api_version in self.served or api_version in self.between_brokers


def _on_controller(
    handler: Handler, administration: Administration, not_controller: Callable[[], ProtocolError]
) -> Handler:
    async def task(request: Any, context: RequestContext) -> Any:
        if not administration.is_active:
            raise not_controller()
        return await handler(request, context)

    return task


def api_row(
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
    topic_ids_since: int | None = None,
    not_controller: Callable[[], ProtocolError] | None = None,
) -> ApiRow:
    """Returns a row; see its fields. `bytes_per_partition`: the least that a partition takes in a request."""
    counted_from = MAX_PARTITIONS_PER_REQUEST * bytes_per_partition
    return ApiRow(
        key=key,
        served=Versions(*(served or NEVER)),
        handler=handler,
        error_response=error_response,
        authorization=authorization,
        between_brokers=Versions(*(between_brokers or NEVER)),
        request_class=request_class(key),
        response_class=response_class(key),
        partitions_asked=partitions_asked,
        bound_from_bytes=NO_LIMIT if partitions_asked is None else counted_from,
        keeps_parked_requests=keeps_parked_requests,
        bounds_its_answer=bounds_its_answer,
        topic_ids_since=topic_ids_since,
        not_controller=not_controller,
    )


class ApiTable(NamedTuple):
    """The rows by API key, in ascending order. All brokers of a process share it, so nothing of it changes."""

    by_key: Mapping[int, ApiRow]

    @classmethod
    def of(cls, rows: Iterable[ApiRow]) -> ApiTable:
        return cls(MappingProxyType({int(row.key): row for row in sorted(rows, key=attrgetter("key"))}))

    def row(self, api_key: int) -> ApiRow | None:
        return self.by_key.get(api_key)

    def rows(self) -> list[ApiRow]:
        """Returns the rows in ascending order of their keys."""
        return list(self.by_key.values())

    def client_rows(self) -> list[ApiRow]:
        """Returns the rows of the APIs that every listener serves."""
        return [row for row in self.by_key.values() if row.served != NEVER]
