"""OffsetFetch (key 9): the committed offsets of one group, or from version 8 on of several (KIP-709).

Groups and partitions without a committed offset are answered with offset -1 and no error. With require_stable (KIP-447)
a partition with a pending transactional commit is answered with UNSTABLE_OFFSET_COMMIT.

From version 9 on a member of a consumer group names itself and its epoch (KIP-848). From version 10 on topics are named
by their ids: a topic that does not exist has UNKNOWN_TOPIC_ID, and an offset of another topic of the same name does not
count.

Version 0 reads offsets of its own, see offsets/zookeeper.py. A partition without one returns
UNKNOWN_TOPIC_OR_PARTITION.

Source: Kafka's `KafkaApis.handleOffsetFetchRequest`, `GroupMetadataManager.getOffsets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps, each_when_written, in_steps, items_of
from odradek.broker.background.tasks import Spawn
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.coordinator.group.offsets.offsets import OffsetsOfGroup
from odradek.broker.coordinator.group.offsets.records import NO_TOPIC_ID
from odradek.broker.coordinator.group.offsets.zookeeper import ZooKeeperOffsets
from odradek.broker.handlers.access import Access, Check
from odradek.broker.handlers.answer_size import AnswerSize, AnswerTooLarge
from odradek.broker.metadata.metadata_cache import MetadataCache
from odradek.broker.requests.answered_later import answered_later
from odradek.broker.requests.request_context import RequestContext
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation, AclResourceType

VERSION_OF_ZOOKEEPER = 0
FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_IDS = 10
NO_OFFSET = -1
PARTITION_BYTES = 15
SEE_GROUP = Check(AclOperation.DESCRIBE, AclResourceType.GROUP, "group_id, groups.group_id", "each group")
SEE_TOPIC = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "topics.name", "each partition; all: left out")
"""The size of a partition in a response, without its metadata."""


class Shape(NamedTuple):
    """The classes of topics and partitions in the response."""

    topic: Any
    partition: Any


OF_ONE_GROUP = Shape(OffsetFetchResponse.OffsetFetchResponseTopic, OffsetFetchResponse.OffsetFetchResponsePartition)
OF_GROUPS = Shape(OffsetFetchResponse.OffsetFetchResponseTopics, OffsetFetchResponse.OffsetFetchResponsePartitions)


class OffsetFetchHandler:
    """OffsetFetch (key 9)."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        zookeeper_offsets: ZooKeeperOffsets,
        spawn: Spawn,
        access: Access,
        max_response_bytes: int,
    ) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._zookeeper_offsets = zookeeper_offsets
        self._spawn = spawn
        self._access = access
        self._max_response_bytes = max_response_bytes

    def offset_fetch(self, request: OffsetFetchRequest, context: RequestContext) -> Steps[Any]:
        """Responds at once, except to version 0 and requests for very many groups."""
        if context.api_version == VERSION_OF_ZOOKEEPER:
            return answered_later(self._from_zookeeper(request, context), context, self._spawn)
        if context.api_version < FIRST_VERSION_WITH_GROUPS:
            return (yield from self._one_group(request, context))
        return (yield from self._groups(request, context))

    def _groups(self, request: OffsetFetchRequest, context: RequestContext) -> Steps[OffsetFetchResponse]:
        """Looks up one group after the other. All offsets of a group are listed once, however often it is named."""
        answers = []
        whole: set[str] = set()
        fetching = self._fetching(request, OF_GROUPS, context)
        for group in request.groups:
            if fetching.pace.step_ends(items_of(group.group_id)):
                yield
            if group.topics is None:
                if group.group_id in whole:
                    continue
                whole.add(group.group_id)
            answer = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=group.group_id)
            try:
                fetching.check_member(group)
                answer.topics = yield from fetching.topics(group.group_id, group.topics)
            except AnswerTooLarge:
                raise
            except ProtocolError as error:
                answer.error_code = error.code
            answers.append(answer)
        return OffsetFetchResponse(groups=answers)

    def _one_group(self, request: OffsetFetchRequest, context: RequestContext) -> Steps[OffsetFetchResponse]:
        try:
            fetching = self._fetching(request, OF_ONE_GROUP, context)
            topics = yield from fetching.topics(request.group_id, request.topics)
        except AnswerTooLarge:
            raise
        except ProtocolError as error:
            if context.api_version < FIRST_VERSION_WITH_ERROR:
                raise
            return OffsetFetchResponse(error_code=error.code)
        return OffsetFetchResponse(topics=topics)

    def _fetching(self, request: OffsetFetchRequest, shape: Shape, context: RequestContext) -> _Fetching:
        return _Fetching(
            request, shape, self._coordinator, self._metadata, self._access, context, self._max_response_bytes
        )

    async def _from_zookeeper(self, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
        access = self._access
        access.demand(context, SEE_GROUP, request.group_id)
        asked = _asked(request.topics or ())
        known = await in_steps(access.allowed(context, SEE_TOPIC, asked))
        store = self._zookeeper_offsets
        contains = self._metadata.contains

        async def answer(topic: str, index: int) -> Any:
            offset = None
            if topic not in known:
                return _answer(OF_ONE_GROUP, index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if contains(TopicPartition(topic, index)):
                try:
                    offset = await store.committed(request.group_id, topic, index)
                except ProtocolError as error:
                    return _answer(OF_ONE_GROUP, index, error.code)
            if offset is None:
                return _answer(OF_ONE_GROUP, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return OF_ONE_GROUP.partition(partition_index=index, committed_offset=offset, metadata="")

        return OffsetFetchResponse(
            topics=[
                OF_ONE_GROUP.topic(name=topic, partitions=[await answer(topic, index) for index in indexes])
                for topic, indexes in asked.items()
            ]
        )


def offset_fetch_error(request: OffsetFetchRequest, code: ErrorCode, message: str | None) -> Steps[Message]:
    """From version 8 on each group has the error; before, the response has it and, lacking a field, each partition."""
    yield from ()
    if request.groups:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        groups = each_when_written(
            request.groups, lambda each: group(group_id=each.group_id, topics=[], error_code=code)
        )
        return OffsetFetchResponse(groups=groups)

    def refused(topic: OffsetFetchRequest.OffsetFetchRequestTopic) -> Any:
        partitions = each_when_written(topic.partition_indexes, lambda index: _answer(OF_ONE_GROUP, index, code))
        return OF_ONE_GROUP.topic(name=topic.name, partitions=partitions)

    return OffsetFetchResponse(error_code=code, topics=each_when_written(request.topics or (), refused))


class _Fetching:
    """Looks up committed offsets for one response."""

    def __init__(
        self,
        request: OffsetFetchRequest,
        shape: Shape,
        coordinator: GroupCoordinator,
        metadata: MetadataCache,
        access: Access,
        context: RequestContext,
        max_response_bytes: int,
    ) -> None:
        self.pace = Pace()
        self._metadata = metadata
        self._with_ids = context.api_version >= FIRST_VERSION_WITH_IDS
        self._require_stable = request.require_stable
        self._shape = shape
        self._coordinator = coordinator
        self._access = access
        self._context = context
        self._size = AnswerSize(max_response_bytes)

    def check_member(self, group: OffsetFetchRequest.OffsetFetchRequestGroup) -> None:
        """Raises AuthorizationDenied, the errors of `shard_of`, and those of `Group.accept_fetch`."""
        self._access.demand(self._context, SEE_GROUP, group.group_id)
        known = self._coordinator.shard_of(group.group_id).groups.get(group.group_id)
        if known is not None:
            known.accept_fetch(group.member_id, group.member_epoch)

    def topics(self, group_id: str, topics: Sequence[Any] | None) -> Steps[list[Any]]:
        """Returns a group's topics; all that have offsets if `topics` is None, but for those that the client may not
        describe. Raises AuthorizationDenied, and the errors of `shard_of`.
        """
        access, context = self._access, self._context
        access.demand(context, SEE_GROUP, group_id)
        offsets = self._coordinator.shard_of(group_id).offsets.of_group(group_id)
        found = OffsetsOfGroup() if offsets is None else offsets
        answered: list[Any] = []
        unknown: list[Any] = []
        if topics is None:
            asked: Mapping[str, Iterable[int]] = found.committed
        else:
            asked = _asked((yield from self._named(topics, unknown)) if self._with_ids else topics)
        names = list(asked)
        known = yield from access.allowed(context, SEE_TOPIC.as_filter if topics is None else SEE_TOPIC, names)
        denied = []
        for topic, indexes in list(asked.items()):
            topic_id = self._metadata.topic_id(topic) if self._with_ids else NO_TOPIC_ID
            if self._with_ids and topic_id == NO_TOPIC_ID:
                continue
            if topic not in known:
                denied.append((topic, topic_id, indexes))
                continue
            partitions = []
            for index in list(indexes):
                partition = self._answer(found, topic, topic_id, index)
                self._size.add(PARTITION_BYTES + len(partition.metadata or ""))
                partitions.append(partition)
                if self.pace.step_ends():
                    yield
            answered.append(self._topic(topic, topic_id, partitions))
        for topic, topic_id, indexes in denied if topics is not None else ():
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answered.append(self._topic(topic, topic_id, (yield from self._refused(indexes, code))))
        return answered + unknown

    def _named(self, topics: Sequence[Any], unknown: list[Any]) -> Steps[list[Any]]:
        """Returns the topics that exist, with their names; adds the answers for the others to `unknown`."""
        named = []
        for topic in topics:
            topic.name = self._metadata.topic_name(topic.topic_id)
            if topic.name is not None:
                named.append(topic)
            elif topic.partition_indexes:
                partitions = yield from self._refused(topic.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID)
                unknown.append(self._topic("", topic.topic_id, partitions))
            if self.pace.step_ends():
                yield
        return named

    def _topic(self, name: str, topic_id: UUID, partitions: list[Any]) -> Any:
        topic = self._shape.topic(name=name, partitions=partitions)
        if self._with_ids:
            topic.topic_id = topic_id
        return topic

    def _refused(self, indexes: Iterable[int], code: ErrorCode) -> Steps[list[Any]]:
        return (yield from each_in_steps(indexes, lambda index: _answer(self._shape, index, code), self.pace))

    def _answer(self, found: OffsetsOfGroup, topic: str, topic_id: UUID, index: int) -> Any:
        if self._require_stable and found.is_unstable(topic, index):
            return _answer(self._shape, index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = found.committed.get(topic, {}).get(index)
        if committed is None or (topic_id != NO_TOPIC_ID and committed.topic_id not in (NO_TOPIC_ID, topic_id)):
            return _answer(self._shape, index)
        return self._shape.partition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _asked(topics: Iterable[Any]) -> dict[str, dict[int, None]]:
    """Returns the topics and partitions of a request, each once."""
    asked: dict[str, dict[int, None]] = {}
    for topic in topics:
        if topic.partition_indexes:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return asked


def _answer(shape: Shape, index: int, error: ErrorCode = ErrorCode.NONE) -> Any:
    """Returns a partition without an offset."""
    return shape.partition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error)


def partitions_asked(request: OffsetFetchRequest) -> Iterator[int]:
    """Returns how many partitions a request names of each topic."""
    yield from (len(topic.partition_indexes) for topic in request.topics or ())
    for group in request.groups:
        if group.topics:
            yield from (len(topic.partition_indexes) for topic in group.topics)
