"""DescribeTopicPartitions: topics and their partitions, page by page. (KIP-966)

    (A) The topics are all topics, or those of the request, each once and sorted by name. A page has as many partitions
        as the request and max.request.partition.size.limit allow, at least one.
    (B) A cursor names the topic and the partition at which the page begins. If the request names topics, the cursor's
        must be among them. If it is gone, the page begins with the next topic.
    (C) Of all topics, the client does not see those that it may not describe. A named one is
        TOPIC_AUTHORIZATION_FAILED, behind the others and without its id.
    (D) There are no eligible leader replicas other than those in sync.

Source: Kafka's DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.describeTopicResponse.
"""

from __future__ import annotations

from bisect import bisect_left

from odradek.broker.background.stepwise import Pace, Steps, items_of
from odradek.broker.handlers.access import ITEMS_PER_DECISION, ON_RESOURCE, Access, Check
from odradek.broker.metadata.metadata_cache import (
    INTERNAL_TOPICS,
    NO_LEADER,
    MetadataCache,
    PartitionState,
    TopicMetadata,
)
from odradek.broker.metadata.topic_names import topic_name_fault
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from odradek.protocol.wire_codes import AclOperation, AclResourceType

Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition
Cursor = DescribeTopicPartitionsResponse.Cursor

SEE_TOPIC = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "topics.name", "each topic; all: left out")
ITEMS_PER_OPERATIONS = len(ON_RESOURCE[AclResourceType.TOPIC]) * ITEMS_PER_DECISION
"""How many items of a step it counts as to decide about each operation on a topic."""


class DescribeTopicPartitionsHandler:
    """DescribeTopicPartitions (key 75)."""

    def __init__(self, metadata: MetadataCache, config: BrokerConfig, access: Access) -> None:
        self._metadata = metadata
        self._config = config
        self._access = access

    def describe_topic_partitions(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> Steps[DescribeTopicPartitionsResponse]:
        """Returns one page. Raises INVALID_REQUEST for a cursor that no page has (B)."""
        pace, access = Pace(), self._access
        names, first_partition = yield from self._names(request, pace)
        check = SEE_TOPIC if request.topics else SEE_TOPIC.as_filter
        room = max(1, min(self._config.max_request_partition_size_limit, request.response_partition_limit))
        page = _Page(self._metadata, context.listener.name, room)
        refused = []
        for name in names:
            if not access.allows(context, check, name):
                if request.topics:
                    refused.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
                cost = ITEMS_PER_DECISION
            else:
                before = len(page.topics)
                page.add(name, first_partition, is_named=bool(request.topics))
                cost = 1
                for topic in page.topics[before:]:
                    topic.topic_authorized_operations = access.operations(context, AclResourceType.TOPIC, name)
                    cost += len(topic.partitions) + (ITEMS_PER_OPERATIONS if access.decides else 0)
            if page.next_cursor is not None:
                break
            first_partition = 0
            if pace.step_ends(cost + items_of(name)):
                yield
        return DescribeTopicPartitionsResponse(topics=[*page.topics, *refused], next_cursor=page.next_cursor)

    def _names(self, request: DescribeTopicPartitionsRequest, pace: Pace) -> Steps[tuple[list[str], int]]:
        """Returns the topics from the cursor on (A), and the first partition of the first of them (B)."""
        cursor = request.cursor
        begin = "" if cursor is None else cursor.topic_name
        asked: dict[str, None] = {}
        for topic in request.topics:
            if topic.name >= begin:
                asked[topic.name] = None
            if pace.step_ends():
                yield
        if request.topics:
            names = sorted(asked)
        else:
            names = self._metadata.topic_names()
            names = names[bisect_left(names, begin) :]
        if cursor is None:
            return names, 0
        if request.topics and begin not in asked:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, f"The cursor's topic {begin} is not among the topics.")
        if cursor.partition_index < 0:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"The cursor has an invalid partition: {cursor.partition_index}."
            )
        return names, cursor.partition_index if names[:1] == [begin] else 0


class _Page:
    """The topics of a page, with `room` for so many partitions, as clients of one listener see them."""

    def __init__(self, metadata: MetadataCache, listener: str, room: int) -> None:
        self._metadata = metadata
        self._room = room
        self._reachable = {each.broker_id for each in metadata.brokers.values() if each.endpoint(listener)}
        self.topics: list[Topic] = []
        self.next_cursor: Cursor | None = None

    def add(self, name: str, first_partition: int, *, is_named: bool) -> None:
        """Adds a topic from a partition on. Sets `next_cursor` if there is no room for all of it."""
        if not self._room:
            self.next_cursor = Cursor(topic_name=name, partition_index=0)
            return
        topic = self._metadata.topic(name)
        if topic is not None:
            self._add(topic, first_partition)
        elif is_named:
            is_legal = topic_name_fault(name) is None
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            self.topics.append(Topic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS))

    def _add(self, topic: TopicMetadata, first_partition: int) -> None:
        end = min(len(topic.partitions), first_partition + self._room)
        partitions = [self._partition(topic.partitions[number]) for number in range(first_partition, end)]
        self.topics.append(
            Topic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal, partitions=partitions)
        )
        self._room -= len(partitions)
        if first_partition + len(partitions) < len(topic.partitions):
            self.next_cursor = Cursor(topic_name=topic.name, partition_index=end)

    def _partition(self, state: PartitionState) -> Partition:
        reachable = self._reachable
        return Partition(
            partition_index=state.partition,
            leader_id=state.leader if state.leader in reachable else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=[],
            last_known_elr=[],
            offline_replicas=[each for each in state.replicas if each not in reachable or each in state.offline],
        )
