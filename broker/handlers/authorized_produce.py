"""Produce on a broker with an authorizer. Source: Kafka's `KafkaApis.handleProduceRequest`."""

from __future__ import annotations

from typing import Any

from odradek.broker.background.background import Background
from odradek.broker.background.stepwise import Steps
from odradek.broker.handlers.access import Access, AuthorizationDenied
from odradek.broker.handlers.authorization import PRODUCE_IN_TRANSACTION, PRODUCE_TO_TOPIC
from odradek.broker.handlers.produce import FIRST_VERSION_WITH_IDS, ProduceHandler
from odradek.broker.requests.answered_later import answered_in_steps
from odradek.broker.requests.request_context import CloseConnection, Holds, RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.records import has_transactional_batch

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class AuthorizedProduceHandler:
    """Produce (key 0): asks for WRITE on each topic, and on the transactional id if a batch is transactional."""

    def __init__(self, handler: ProduceHandler, access: Access, background: Background) -> None:
        self._handler = handler
        self._access = access
        self._background = background

    def produce(self, request: ProduceRequest, context: RequestContext) -> Any:
        """Requests are handled in their order, also if a decision about very many topics takes steps."""
        steps = self._produce(request, context)
        return answered_in_steps(steps, context, self._background.spawn, self._background.turns, Holds.SAME_API)

    def _produce(self, request: ProduceRequest, context: RequestContext) -> Steps[Any]:
        self._check_transactional_id(request, context)
        topics = request.topic_data
        if context.api_version >= FIRST_VERSION_WITH_IDS:
            topics = self._handler.named_topics(request)
        names = [topic.name for topic in topics]
        writable = yield from self._access.allowed(context, PRODUCE_TO_TOPIC, names)
        permitted = [topic for topic in topics if topic.name in writable]
        denied = [topic for topic in topics if topic.name not in writable]
        return self._handler.produce_permitted(request, context, permitted, denied)

    def _check_transactional_id(self, request: ProduceRequest, context: RequestContext) -> None:
        """Raises AuthorizationDenied, or CloseConnection if the request has no response."""
        if not _is_transactional(request):
            return
        name = request.transactional_id
        if name is None or not self._access.allows(context, PRODUCE_IN_TRANSACTION, name):
            if request.acks == 0:
                raise CloseConnection("produce with acks=0 denied", transactional_id=name)
            raise AuthorizationDenied(DENIED, DENIED.message)


def _is_transactional(request: ProduceRequest) -> bool:
    return any(
        data.records is not None and has_transactional_batch(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )
