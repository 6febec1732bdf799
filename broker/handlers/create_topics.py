"""CreateTopics (key 19), of clients and of brokers: the controller answers it (controller/creation_requests.py).

    (A) A broker that is not the controller returns NOT_CONTROLLER before this handler is called (`ApiRow`). Then come
        INVALID_REQUEST for a topic that is named twice or reserved, and authorization; the controller sees the others.
    (B) The client needs CREATE on the cluster, or else on each topic. Without DESCRIBE_CONFIGS on a topic, the result
        has nothing but a `topic_config_error_code`, unless the creation fails for a reason of its own.

Source: Kafka's `KafkaApis.handleCreateTopicsRequest`.
"""

from __future__ import annotations

from collections.abc import Container
from copy import copy
from typing import NamedTuple

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.background.turns import Turns
from odradek.broker.handlers.access import ASKS_ON, EVERYTHING, Access, Check
from odradek.broker.metadata.administration import Administration
from odradek.broker.metadata.new_topic import RESERVED_TOPIC, UNSET, repeated_in
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.wire_codes import AclOperation, AclResourceType

NONE = 0
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CREATE_ALL = Check(AclOperation.CREATE, AclResourceType.CLUSTER, "all topics", ASKS_ON, is_audited=False)
CREATE_EACH = Check(AclOperation.CREATE, AclResourceType.TOPIC, "or else topics.name", "each topic")
SEE_SETTINGS = Check(
    AclOperation.DESCRIBE_CONFIGS,
    AclResourceType.TOPIC,
    "topics.name, to see its settings",
    "topic_config_error_code",
    is_audited=False,
)

Topic = CreateTopicsRequest.CreatableTopic
Result = CreateTopicsResponse.CreatableTopicResult


class CreateTopicsHandler:
    """CreateTopics (key 19)."""

    def __init__(
        self, administration: Administration, access: Access, turns: Turns, *, has_default_counts: bool
    ) -> None:
        """`has_default_counts`: topics may be created with the broker's default counts (KIP-464)."""
        self._has_default_counts = has_default_counts
        self._administration = administration
        self._access = access
        self._turns = turns

    async def create_topics(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        """Responds as the controller does, about the topics that the client may create."""
        if not self._has_default_counts:
            _refuse_defaults(request)
        if not self._access.decides:
            return await self._answer(request)
        decisions = await self._turns.take(self._decisions(request, context))
        response = await self._answer(decisions.permitted)
        response.topics = await self._turns.take(_results(request.topics, response.topics, decisions))
        return response

    async def _answer(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        response: CreateTopicsResponse = await self._administration.answer(request)
        return response

    def _decisions(self, request: CreateTopicsRequest, context: RequestContext) -> Steps[_Decisions]:
        access = self._access
        names = [topic.name for topic in request.topics if topic.name != RESERVED_TOPIC]
        creatable: Container[str] = EVERYTHING
        if not access.allows(context, CREATE_ALL):
            creatable = yield from access.allowed(context, CREATE_EACH, names)
        visible = yield from access.allowed(context, SEE_SETTINGS, names)
        repeated = repeated_in(names)
        refused = {name for name in names if name not in creatable and name not in repeated}
        permitted = copy(request)
        permitted.topics = [topic for topic in request.topics if topic.name not in refused]
        return _Decisions(permitted, refused, repeated, visible)


class _Decisions(NamedTuple):
    """`permitted`: the request without the topics that the client may not create, `refused`. `repeated`: those that the
    request names twice. `visible`: those whose settings the client may see.
    """

    permitted: CreateTopicsRequest
    refused: Container[str]
    repeated: Container[str]
    visible: Container[str]


def _refuse_defaults(request: CreateTopicsRequest) -> None:
    """Replaces the counts that stand for defaults by ones that the controller refuses."""
    for topic in request.topics:
        if not topic.assignments:
            topic.num_partitions = NONE if topic.num_partitions == UNSET else topic.num_partitions
            topic.replication_factor = NONE if topic.replication_factor == UNSET else topic.replication_factor


def _results(asked: list[Topic], answered: list[Result], decisions: _Decisions) -> Steps[list[Result]]:
    """Returns the results of all topics in the order of the request (A, B)."""
    rest = iter(answered)
    results = []
    pace = Pace()
    for topic in asked:
        is_refused = topic.name in decisions.refused
        if is_refused:
            result = Result(name=topic.name, error_code=DENIED, error_message=DENIED.message, configs=[])
        else:
            result = next(rest)
        if topic.name != RESERVED_TOPIC and topic.name not in decisions.visible:
            _hide(result, is_refused or topic.name in decisions.repeated)
        results.append(result)
        if pace.step_ends():
            yield
    return results


def _hide(result: Result, is_refused_unseen: bool) -> None:
    """Leaves out what the client may not see. `is_refused_unseen`: the controller has not judged the topic."""
    if is_refused_unseen or result.error_code == ErrorCode.NONE:
        result.topic_config_error_code = DENIED
        result.topic_id = ZERO_UUID
        result.num_partitions = result.replication_factor = -1
        result.configs = []
