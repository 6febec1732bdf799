"""Fetch on a broker with an authorizer.

    (A) A consumer needs READ on each topic, a follower CLUSTER_ACTION. Denied partitions are not read, whether they
        exist or not: they return TOPIC_AUTHORIZATION_FAILED, and the fetch does not wait.
    (B) A session keeps the decisions about its topics (`Decisions`). An incremental fetch looks up those of the
        partitions that it would read; the others were decided before they went to sleep. If an ACL or the client has
        changed, all topics of the session are decided again, and the partitions of those that are denied are awakened.
    (C) A topic id that no topic has is not read either: UNKNOWN_TOPIC_ID. The reader might know it a moment later, and
        nobody would have asked for the topic.

Source: Kafka's `KafkaApis.handleFetchRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import Pace, Steps, items_of
from odradek.broker.handlers.access import ITEMS_PER_DECISION, DecidedAccess
from odradek.broker.handlers.authorization import FETCH_AS_CONSUMER, FETCH_AS_FOLLOWER
from odradek.broker.handlers.fetch import FIRST_VERSION_WITH_FORMAT_2, FetchHandler, unsupported
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.replica.fetch.fetch_session import UNRESOLVED, FetchSession, FetchTarget
from odradek.broker.replica.fetch.fetch_session_cache import FetchContext, RestrictedContext
from odradek.broker.requests.answered_later import answered_in_steps
from odradek.broker.requests.request_context import Holds, RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
Refused = dict[FetchTarget, ErrorCode]


class Decisions(NamedTuple):
    """Which topics a client may read. They hold for one principal and host, and until the ACLs change."""

    principal: str
    host: str
    changes: int
    may_read: dict[str, bool]


class AuthorizedFetchHandler:
    """Fetch (key 1)."""

    def __init__(
        self, handler: FetchHandler, metadata: MetadataCache, access: DecidedAccess, background: Background
    ) -> None:
        self._handler = handler
        self._metadata = metadata
        self._access = access
        self._background = background

    def fetch(self, request: FetchRequest, context: RequestContext) -> Any:
        """Returns what is available, or parks the request until there is enough."""
        steps = self._fetch(request, context)
        return answered_in_steps(steps, context, self._background.spawn, self._background.turns, Holds.SAME_API)

    def _fetch(self, request: FetchRequest, context: RequestContext) -> Steps[Any]:
        handler = self._handler
        if context.api_version < FIRST_VERSION_WITH_FORMAT_2:
            return unsupported(request, context.api_version, (yield from self._denied_topics(request, context)))
        params = handler.params_of(request, context)
        fetch = handler.context_of(request, params)
        if params.is_from_follower:
            refused = self._refused_to_follower(fetch, context)
        else:
            refused = yield from self._refused_to_consumer(fetch, context)
        if refused:
            params.max_wait_ms = 0
            fetch = RestrictedContext(fetch, refused, params.version)
        return handler.begin(params, fetch, context)

    def _denied_topics(self, request: FetchRequest, context: RequestContext) -> Steps[set[str]]:
        names = [topic.topic for topic in request.topics]
        readable = yield from self._access.allowed(context, FETCH_AS_CONSUMER, names)
        return {name for name in names if name not in readable}

    def _refused_to_follower(self, fetch: FetchContext, context: RequestContext) -> Refused:
        if self._access.allows(context, FETCH_AS_FOLLOWER):
            return {}
        if fetch.session is not None:
            for target in fetch.session.targets.values():
                fetch.session.awaken(target)
        return dict.fromkeys(fetch.wanted.values(), DENIED)

    def _refused_to_consumer(self, fetch: FetchContext, context: RequestContext) -> Steps[Refused]:
        """Returns the targets of the fetch that must not be read (A, B, C)."""
        session = fetch.session
        decisions = None if session is None else session.authorized
        if not (isinstance(decisions, Decisions) and self._hold(decisions, context)):
            decisions = Decisions(context.principal, context.client_host, self._access.changes, {})
            if session is not None:
                yield from self._decide_again(session, decisions, context)
        return (yield from self._refused_of(list(fetch.targets()), decisions, context))

    def _hold(self, decisions: Decisions, context: RequestContext) -> bool:
        return (
            decisions.changes == self._access.changes
            and decisions.principal == context.principal
            and decisions.host == context.client_host
        )

    def _decide_again(self, session: FetchSession, decisions: Decisions, context: RequestContext) -> Steps[None]:
        """Decides about all topics of the session (B)."""
        refused = yield from self._refused_of(list(session.targets.values()), decisions, context)
        for target in refused:
            if target.session is session:
                session.awaken(target)
        session.authorized = decisions

    def _refused_of(
        self, targets: Iterable[FetchTarget], decisions: Decisions, context: RequestContext
    ) -> Steps[Refused]:
        refused: Refused = {}
        may_read = decisions.may_read
        pace = Pace()
        for target in targets:
            name = self._topic_of(target)
            cost = 1
            if name is None:
                refused[target] = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                if name not in may_read:
                    may_read[name] = self._access.allows(context, FETCH_AS_CONSUMER, name)
                    cost = ITEMS_PER_DECISION + items_of(name)
                if not may_read[name]:
                    refused[target] = DENIED
            if pace.step_ends(cost):
                yield
        return refused

    def _topic_of(self, target: FetchTarget) -> str | None:
        """Returns the name of a target's topic, None if no topic has its id."""
        if target.topic_partition is not UNRESOLVED:
            return target.topic_partition.topic
        return self._metadata.topic_name(target.topic_id)
