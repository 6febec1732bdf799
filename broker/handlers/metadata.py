"""Metadata: brokers, topics and partitions; creates topics on request.

    (A) A null array selects all topics. Before v1, which has no null, an empty array does. From v1 on an empty array
        selects none.
    (B) A topic that is named but does not exist is created if both the broker (auto.create.topics.enable) and the
        request (from v4 on) allow it. The response waits for the creation and describes the resulting topic; Kafka
        returns LEADER_NOT_AVAILABLE at once, and the client retries. The two internal topics are created in this way,
        too, with their coordinators' definitions. Of very many names only the first are created; the client retries for
        the others.
    (C) An invalid topic name returns INVALID_TOPIC_EXCEPTION; any other topic that does not exist
        UNKNOWN_TOPIC_OR_PARTITION.
    (D) A partition whose leader is not alive returns LEADER_NOT_AVAILABLE. If the leader has no endpoint on this
        listener, the error is LISTENER_NOT_FOUND, before v6 LEADER_NOT_AVAILABLE. Version 0 names only live replicas,
        and returns REPLICA_NOT_AVAILABLE if some are missing.
    (E) A client sees the topics that it may describe. Others are left out of all topics; if the request names them,
        they return TOPIC_AUTHORIZATION_FAILED, whether they exist or not, by id without their name. Before a topic is
        created for a client, it needs CREATE on the cluster or on the topic.
    (F) From version 12 on topics can be named by their ids (KIP-516). If one of them is, names do not count. An unknown
        id returns UNKNOWN_TOPIC_ID; no topic is created for it. Versions 10 and 11 have the fields, but do not support
        them (KAFKA-9773): INVALID_REQUEST for every topic. So does a topic with neither name nor id.

Source: Kafka's `KafkaApis.handleTopicMetadataRequest`, `ZkMetadataCache`, `AutoTopicCreationManager`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.background.tasks import Spawn
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.active_controller import ActiveController, NoController
from odradek.broker.coordinator.internal_topics import InternalTopics
from odradek.broker.handlers.access import (
    ASKS_ON,
    EVERYTHING,
    ITEMS_PER_DECISION,
    NOT_ASKED,
    ON_RESOURCE,
    Access,
    Check,
)
from odradek.broker.metadata.metadata_cache import (
    INTERNAL_TOPICS,
    NO_LEADER,
    BrokerInfo,
    MetadataCache,
    PartitionState,
    TopicMetadata,
)
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.request_bound import MAX_PARTITIONS_PER_REQUEST
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.wire_codes import AclOperation, AclResourceType

ResponseTopic = MetadataResponse.MetadataResponseTopic
ResponsePartition = MetadataResponse.MetadataResponsePartition

NO_PARTITIONS: list[ResponsePartition] = []
"""The partitions of every topic that does not exist, shared by all responses."""
ITEMS_PER_OPERATIONS = len(ON_RESOURCE[AclResourceType.TOPIC]) * ITEMS_PER_DECISION
"""How many items of a step it counts as to decide about each operation on a topic."""
CLUSTER_OPERATIONS_VERSIONS = range(8, 11)
FIRST_VERSION_WITH_IDS = 12
SEE_TOPIC = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "topics.name", "each topic; all: left out")
CREATE_ALL = Check(AclOperation.CREATE, AclResourceType.CLUSTER, "to create a topic", ASKS_ON, is_audited=False)
CREATE_EACH = Check(AclOperation.CREATE, AclResourceType.TOPIC, "or else, to create it", "each topic")


class Asked(NamedTuple):
    """The topics of a request, each once: by name, or by id (F). `names` None: all topics (A), of which the client sees
    `visible`. `refused` are those that it may not see or create (E).
    """

    names: Iterable[str] | None
    ids: Iterable[UUID] = ()
    visible: Container[str] = EVERYTHING
    refused: Sequence[ResponseTopic] = ()


class MetadataHandler:
    """Metadata (key 3)."""

    def __init__(
        self,
        metadata: MetadataCache,
        config: BrokerConfig,
        active_controller: ActiveController,
        internal_topics: InternalTopics,
        access: Access,
        spawn: Spawn,
        turns: Turns,
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._active_controller = active_controller
        self._internal_topics = internal_topics
        self._access = access
        self._spawn = spawn
        self._turns = turns

    def metadata(self, request: MetadataRequest, context: RequestContext) -> Steps[Any]:
        """Responds at once unless topics must be created (B) or the request names very many."""
        asked = yield from self._asked(request, context)
        if self._access.decides:
            asked = yield from self._seen(asked, context)
        missing = []
        pace = Pace()
        for name in asked.names or ():
            if self._is_to_be_created(name, request):
                missing.append(name)
            if pace.step_ends():
                yield
        if missing and self._access.decides:
            asked, missing = yield from self._creatable(asked, missing, context)
        if not missing:
            return (yield from self._response(request, context, asked, {}))
        return answered_later(self._create_and_answer(request, context, asked, missing), context, self._spawn)

    def _asked(self, request: MetadataRequest, context: RequestContext) -> Steps[Asked]:
        """Raises INVALID_REQUEST (F)."""
        if request.topics is None or not (request.topics or context.api_version):
            return Asked(None)
        names: dict[str | None, None] = {}
        ids: dict[UUID, None] = {}
        pace = Pace()
        for topic in request.topics:
            if topic.topic_id != ZERO_UUID:
                ids[topic.topic_id] = None
            else:
                names[topic.name] = None
            if pace.step_ends():
                yield
        if context.api_version < FIRST_VERSION_WITH_IDS and (ids or None in names):
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "Topic ids require version 12, and so do null names")
        if ids:
            return Asked((), ids)
        if None in names:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "A topic has neither a name nor an id")
        return Asked(cast("dict[str, None]", names))

    def _seen(self, asked: Asked, context: RequestContext) -> Steps[Asked]:
        """Returns the topics that the client may see, and the others as refused (E)."""
        names = self._metadata.topic_names() if asked.names is None else asked.names
        name_of = {
            topic_id: name for topic_id in asked.ids if (name := self._metadata.topic_name(topic_id)) is not None
        }
        check = SEE_TOPIC.as_filter if asked.names is None else SEE_TOPIC
        visible = yield from self._access.allowed(context, check, [*names, *name_of.values()])
        if asked.names is None:
            return asked._replace(visible=visible)
        hidden = {topic_id: None for topic_id, name in name_of.items() if name not in visible}
        return Asked(
            {name: None for name in asked.names if name in visible},
            [topic_id for topic_id in asked.ids if topic_id not in hidden],
            refused=[
                *(_refused(name) for name in asked.names if name not in visible),
                *(_refused(None, topic_id=topic_id) for topic_id in hidden),
            ],
        )

    def _creatable(self, asked: Asked, missing: list[str], context: RequestContext) -> Steps[tuple[Asked, list[str]]]:
        """Returns the missing topics that the client may create; the others are refused (E)."""
        access = self._access
        if access.allows(context, CREATE_ALL):
            return asked, missing
        creatable = yield from access.allowed(context, CREATE_EACH, missing)
        denied = {name: None for name in missing if name not in creatable}
        refused = [_refused(name, is_internal=name in INTERNAL_TOPICS) for name in denied]
        names = [name for name in asked.names or () if name not in denied]
        return Asked(names, refused=[*refused, *asked.refused]), [name for name in missing if name in creatable]

    async def _create_and_answer(
        self, request: MetadataRequest, context: RequestContext, asked: Asked, missing: list[str]
    ) -> MetadataResponse:
        failures = await self._create(missing)
        answering = self._response(request, context, asked, failures)
        return await self._turns.take(answering)

    def _is_to_be_created(self, name: str, request: MetadataRequest) -> bool:
        """Whether a topic must be created (B)."""
        return (
            request.allow_auto_topic_creation
            and self._metadata.topic(name) is None
            and self._config.auto_create_topics_enable
            and topic_name_fault(name) is None
        )

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        """Creates topics with the broker's defaults. Returns error codes for those that do not exist afterwards."""
        timeout_ms = self._config.request_timeout_ms
        internal_topics = self._internal_topics
        most = max(1, MAX_PARTITIONS_PER_REQUEST // self._config.num_partitions)
        names, later = names[:most], names[most:]
        new_topics = [internal_topics.definition(name) if name in INTERNAL_TOPICS else NewTopic(name) for name in names]
        failures = dict.fromkeys(later, ErrorCode.LEADER_NOT_AVAILABLE)
        try:
            results = await self._active_controller.create_topics(new_topics, timeout_ms)
        except NoController:
            return failures | dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)
        for name, result in zip(names, results, strict=True):
            if result is None:
                failures[name] = ErrorCode.LEADER_NOT_AVAILABLE  # until this broker learns of the topic
            else:
                is_pending = result.code in (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
                failures[name] = ErrorCode.LEADER_NOT_AVAILABLE if is_pending else result.code
        return failures

    def _response(
        self,
        request: MetadataRequest,
        context: RequestContext,
        asked: Asked,
        failures: Mapping[str, ErrorCode],
    ) -> Steps[MetadataResponse]:
        metadata, access = self._metadata, self._access
        view = _ListenerView(metadata.brokers.values(), context)
        topics: list[ResponseTopic] = []
        pace = Pace()
        for described in self._described(asked, view, failures):
            if request.include_topic_authorized_operations and described.name is not None:
                described.topic_authorized_operations = access.operations(
                    context, AclResourceType.TOPIC, described.name
                )
                if access.decides and pace.step_ends(ITEMS_PER_OPERATIONS):
                    yield
            topics.append(described)
            if pace.step_ends(1 + len(described.partitions)):
                yield
        topics += asked.refused
        response = MetadataResponse(
            brokers=view.brokers(),
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_id,
            topics=topics,
            cluster_authorized_operations=NOT_ASKED,
        )
        if request.include_cluster_authorized_operations and context.api_version in CLUSTER_OPERATIONS_VERSIONS:
            response.cluster_authorized_operations = access.operations_on_cluster(context)
        return response

    def _described(
        self, asked: Asked, view: _ListenerView, failures: Mapping[str, ErrorCode]
    ) -> Iterator[ResponseTopic]:
        """Yields each topic as it is when it is taken."""
        metadata = self._metadata
        for name in metadata.topic_names() if asked.names is None else asked.names:
            topic = metadata.topic(name)
            if name not in asked.visible:
                continue
            yield _absent_topic(name, failures.get(name)) if topic is None else view.topic(topic)
        for topic_id in asked.ids:
            topic = metadata.topic_by_id(topic_id)
            yield _unknown_topic(topic_id) if topic is None else view.topic(topic)


def _absent_topic(name: str, failure: ErrorCode | None) -> ResponseTopic:
    """Returns the error for a topic that does not exist (C)."""
    if failure is None:
        is_legal = topic_name_fault(name) is None
        failure = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return ResponseTopic(error_code=failure, name=name, is_internal=name in INTERNAL_TOPICS, partitions=NO_PARTITIONS)


def _refused(name: str | None, *, topic_id: UUID = ZERO_UUID, is_internal: bool = False) -> ResponseTopic:
    """Returns the error for a topic that the client may not see or create (E)."""
    return ResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=topic_id,
        is_internal=is_internal,
        partitions=NO_PARTITIONS,
    )


def _unknown_topic(topic_id: UUID) -> ResponseTopic:
    """Returns the error for an id that no topic has (F)."""
    return ResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id, partitions=NO_PARTITIONS)


class _ListenerView:
    """The cluster as clients of one listener see it, in one version of the API (D)."""

    def __init__(self, brokers: Iterable[BrokerInfo], context: RequestContext) -> None:
        self._listener = context.listener.name
        self._version = context.api_version
        self._brokers = list(brokers)
        self._alive = {broker.broker_id for broker in self._brokers}
        self._reachable = {broker.broker_id for broker in self._brokers if broker.endpoint(self._listener)}

    def brokers(self) -> list[MetadataResponse.MetadataResponseBroker]:
        """Returns the brokers that have an endpoint on this listener."""
        found = []
        for broker in self._brokers:
            endpoint = broker.endpoint(self._listener)
            if endpoint is not None:
                found.append(
                    MetadataResponse.MetadataResponseBroker(
                        node_id=broker.broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                    )
                )
        return found

    def topic(self, topic: TopicMetadata) -> ResponseTopic:
        """Describes a topic that exists, with all its partitions."""
        return ResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            partitions=[self._partition(state) for state in topic.partitions.values()],
        )

    def _partition(self, state: PartitionState) -> ResponsePartition:
        replicas, isr = list(state.replicas), list(state.isr)
        error = ErrorCode.NONE
        if self._version == 0:
            replicas = [broker for broker in replicas if broker in self._reachable]
            isr = [broker for broker in isr if broker in self._reachable]
            if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
                error = ErrorCode.REPLICA_NOT_AVAILABLE
        leader = state.leader
        if leader not in self._reachable:
            without_address = leader in self._alive and self._version >= 6
            error = ErrorCode.LISTENER_NOT_FOUND if without_address else ErrorCode.LEADER_NOT_AVAILABLE
            leader = NO_LEADER
        return ResponsePartition(
            error_code=error,
            partition_index=state.partition,
            leader_id=leader,
            leader_epoch=state.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=[
                broker for broker in state.replicas if broker not in self._reachable or broker in state.offline
            ],
        )
