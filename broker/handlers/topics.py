"""DeleteTopics and CreatePartitions: passes the items to the controller and returns the results. CreateTopics, which
brokers send, too: see create_topics.py.

    (A) An item that a CreatePartitions names twice fails with INVALID_REQUEST; the others are processed.
    (B) The controller handles timeouts and validate-only.
    (C) delete.topic.enable=false refuses every item: TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST.
    (D) From v6 on DeleteTopics names topics by name or by id, never both. An unknown id returns UNKNOWN_TOPIC_ID.
    (E) A broker that is not the controller returns NOT_CONTROLLER before these handlers are called (`ApiRow`). It may
        not know a topic that exists, for example if it has just started.
    (F) A client that may not describe a topic gets TOPIC_AUTHORIZATION_FAILED for it whether it exists or not, and does
        not learn its name by its id. These errors come before those of authorization: INVALID_REQUEST for an item that
        is named twice, TOPIC_DELETION_DISABLED, UNKNOWN_TOPIC_ID.

Source: Kafka's `KafkaApis.handleDeleteTopicsRequest`, `handleCreatePartitionsRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, others_between
from odradek.broker.background.turns import Turns
from odradek.broker.handlers.access import Access, Check
from odradek.broker.metadata.administration import TopicAdministration
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.metadata.new_topic import NewPartitions, repeated_in, repetition_of
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.wire_codes import AclOperation, AclResourceType

DeletionResult = DeleteTopicsResponse.DeletableTopicResult
PartitionsResult = CreatePartitionsResponse.CreatePartitionsTopicResult

SETTINGS_PER_PARTITION = 10
"""This many settings of a new topic count as one partition."""
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DELETION_DISABLED_VERSION = 3
NAME_OR_ID_VERSION = 6
NAME_BY_ID = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "topics.topic_id, to name it", "each topic")
DELETE_TOPIC = Check(AclOperation.DELETE, AclResourceType.TOPIC, "topic_names, topics.name", "each topic")
ADD_PARTITIONS = Check(AclOperation.ALTER, AclResourceType.TOPIC, "topics.name", "each topic")


def partitions_to_create(request: CreateTopicsRequest) -> Iterator[int]:
    """Counts the partitions of each topic of a CreateTopics (the default counts as one). Settings count, but less."""
    return (
        max(topic.num_partitions, len(topic.assignments), len(topic.configs) // SETTINGS_PER_PARTITION)
        for topic in request.topics
    )


def partitions_to_add(request: CreatePartitionsRequest) -> Iterator[int]:
    """Returns the total partition count of each topic of a CreatePartitions; existing ones are not subtracted."""
    return (topic.count for topic in request.topics)


class TopicHandlers:
    """DeleteTopics and CreatePartitions (keys 20 and 37)."""

    def __init__(
        self,
        administration: TopicAdministration,
        metadata: MetadataCache,
        config: BrokerConfig,
        access: Access,
        turns: Turns,
    ) -> None:
        self._access = access
        self._administration = administration
        self._metadata = metadata
        self._config = config
        self._turns = turns

    async def delete_topics(self, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
        """Deletes topics by name or id. Raises INVALID_REQUEST if an item has both."""
        in_turns = self._turns.take
        states = _topics_to_delete(request, context)
        results = await in_turns(each_in_steps(states, lambda state: self._deletion_result(state, context)))
        if self._access.decides:
            await in_turns(self._refuse_deletions(results, context))
        names: dict[str, None] = {}
        async for result in others_between(results):
            if result.error_code == ErrorCode.NONE and result.name is not None:
                names[result.name] = None
        outcomes = await self._administration.delete(list(names), timeout_ms=request.timeout_ms)
        outcome_of = dict(zip(names, outcomes, strict=True))
        async for result in others_between(results):
            outcome = outcome_of.get(result.name or "") if result.error_code == ErrorCode.NONE else None
            if outcome is not None:
                result.error_code, result.error_message = outcome.code, _message(outcome)
        return DeleteTopicsResponse(responses=results)

    def _deletion_result(self, state: DeleteTopicsRequest.DeleteTopicState, context: RequestContext) -> DeletionResult:
        """Returns NONE for a topic that can be deleted."""
        metadata = self._metadata
        if not self._config.delete_topic_enable:
            has_code = context.api_version >= DELETION_DISABLED_VERSION
            code = ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
            return DeletionResult(name=state.name, topic_id=state.topic_id, error_code=code)
        if state.name is None and state.topic_id == ZERO_UUID:
            message = "The item has neither a name nor an id"
            return DeletionResult(name=None, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
        if state.name is None:
            name = metadata.topic_name(state.topic_id)
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.NONE
            return DeletionResult(name=name, topic_id=state.topic_id, error_code=code)
        topic = metadata.topic(state.name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE
        return DeletionResult(name=state.name, error_code=code)

    def _refuse_deletions(self, results: list[DeletionResult], context: RequestContext) -> Steps[None]:
        """Sets the error of topics that the client may not delete (F)."""
        access = self._access
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        named = [each for each in results if each.name is not None and each.error_code in (ErrorCode.NONE, unknown)]
        names = [each.name for each in named if each.name is not None]
        by_id = [each.name for each in named if each.name is not None and each.topic_id != ZERO_UUID]
        known = yield from access.allowed(context, NAME_BY_ID, by_id)
        deletable = yield from access.allowed(context, DELETE_TOPIC, names)
        pace = Pace()
        for each in named:
            if each.topic_id != ZERO_UUID and each.name not in known:
                each.name, each.error_code = None, DENIED
            elif each.name not in deletable:
                each.error_code = DENIED
            if pace.step_ends():
                yield

    async def create_partitions(
        self, request: CreatePartitionsRequest, context: RequestContext
    ) -> CreatePartitionsResponse:
        """Increases the number of partitions of topics."""
        repeated = repeated_in(topic.name for topic in request.topics)
        topics = [topic for topic in request.topics if topic.name not in repeated]
        refused: list[str] = []
        if self._access.decides:
            names = [topic.name for topic in topics]
            alterable = await self._turns.take(self._access.allowed(context, ADD_PARTITIONS, names))
            refused = [name for name in names if name not in alterable]
            topics = [topic for topic in topics if topic.name in alterable]
        outcomes = await self._administration.add_partitions(
            [_new_partitions(topic) for topic in topics],
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
        results = [_partitions_result(topic.name, outcome) for topic, outcome in zip(topics, outcomes, strict=True)]
        results.extend(_partitions_result(name, repetition_of(name)) for name in repeated)
        results.extend(_partitions_result(name, ProtocolError(DENIED, DENIED.message)) for name in refused)
        return CreatePartitionsResponse(results=results)


def _topics_to_delete(
    request: DeleteTopicsRequest, context: RequestContext
) -> Iterable[DeleteTopicsRequest.DeleteTopicState]:
    """Returns the topics in the form of v6 (D)."""
    if context.api_version < NAME_OR_ID_VERSION:
        return (DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names)
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' has both a name and an id")
    return request.topics


def _new_partitions(topic: CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assigned = topic.assignments
    return NewPartitions(topic.name, topic.count, None if assigned is None else [one.broker_ids for one in assigned])


def _partitions_result(name: str, outcome: ProtocolError | None) -> PartitionsResult:
    if outcome is None:
        return PartitionsResult(name=name)
    return PartitionsResult(name=name, error_code=outcome.code, error_message=_message(outcome))


def _message(error: ProtocolError) -> str:
    return str(error.args[0])
