"""Topics that newer versions of a request name by their ids: they are given their names before anything looks at them.

Source: Kafka's KafkaApis (handleOffsetCommitRequest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

from odradek.broker.handlers.handler_kinds import Handler, HandlerKind, kind_of
from odradek.broker.requests.request_context import RequestContext

NameOf = Callable[[UUID], str | None]
"""Returns the name of the topic with this id, or None."""


def name_topics(topics: Iterable[Any], name_of: NameOf) -> None:
    """Sets the name of each topic of a request; None if there is no topic with its id."""
    for topic in topics:
        topic.name = name_of(topic.topic_id)


def naming(handler: Handler, since: int, name_of: NameOf) -> Handler:
    """Returns a plain handler that names the topics of requests from the version `since` on."""
    assert kind_of(handler) is HandlerKind.PLAIN

    def handle(request: Any, context: RequestContext) -> Any:
        if context.api_version >= since:
            name_topics(request.topics, name_of)
        return handler(request, context)

    return handle
