"""Consumer groups whose assignments the broker makes: ConsumerGroupHeartbeat and ConsumerGroupDescribe (keys 68, 69).

Version 0 of the heartbeat has no regular expression, and lets the broker make member ids; version 0 of the description
does not say which protocol a member speaks. Where the protocol is not enabled, both are UNSUPPORTED_VERSION.

Source: Kafka's KafkaApis (handleConsumerGroupHeartbeat, handleConsumerGroupDescribe).
"""

from __future__ import annotations

from uuid import UUID

from odradek.broker.background.stepwise import Pace, Steps, items_of, once
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.consumer.member import Partitions
from odradek.broker.coordinator.group.coordinator import GroupCoordinator
from odradek.broker.handlers.access import Access, AuthorizationDenied, Check
from odradek.broker.handlers.answer_size import AnswerSize
from odradek.broker.requests.request_context import PendingResponse, RequestContext
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation, AclResourceType

READ_GROUP = Check(AclOperation.READ, AclResourceType.GROUP, "group_id")
SEE_TOPICS = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "subscribed_topic_names")
SEE_MATCHED = Check(
    AclOperation.DESCRIBE, AclResourceType.TOPIC, "what the regular expression matches", "left out", is_audited=False
)
SEE_ASSIGNED = Check(AclOperation.DESCRIBE, AclResourceType.TOPIC, "the members' topics", "the group")
MEMBER_BYTES = 100
"""The size of a member in a response, mainly its id, without its topics."""
TOPIC_BYTES = 20
PARTITION_BYTES = 4
_Described = ConsumerGroupDescribeResponse.DescribedGroup


class ConsumerGroupHandlers:
    """ConsumerGroupHeartbeat and ConsumerGroupDescribe (keys 68 and 69)."""

    def __init__(
        self, coordinator: GroupCoordinator, access: Access, config: BrokerConfig, max_response_bytes: int
    ) -> None:
        self._coordinator = coordinator
        self._access = access
        self._config = config
        self._max_response_bytes = max_response_bytes

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> Steps[Message | PendingResponse]:
        """Responds when what the heartbeat changes is replicated."""
        self._check_served()
        access = self._access
        access.demand(context, READ_GROUP, request.group_id)
        heartbeat = _heartbeat(request, context)
        repeated = self._coordinator.repeated_heartbeat(heartbeat)
        if repeated is not None:
            return repeated
        names = request.subscribed_topic_names
        if names:
            self._check_size(names)
            allowed = yield from access.allowed(context, SEE_TOPICS, names)
            if not all(name in allowed for name in names):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                raise AuthorizationDenied(code, code.message)
        pending = PendingResponse()

        def answer(response: Message | ProtocolError) -> None:
            if isinstance(response, ProtocolError):
                pending.fail(response)
            else:
                pending.complete(response)

        def is_visible(topic: str) -> bool:
            return access.allows(context, SEE_MATCHED, topic)

        self._coordinator.consumer_heartbeat(heartbeat, is_visible, answer)
        if not pending.settled:
            return pending
        response: Message = pending.result()
        return response

    def describe(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> Steps[ConsumerGroupDescribeResponse]:
        """Describes each group once, even if named twice."""
        self._check_served()
        groups = []
        pace, size = Pace(), AnswerSize(self._max_response_bytes)
        for group_id in (yield from once(request.group_ids)):
            described = yield from self._described(group_id, context)
            if request.include_authorized_operations and described.error_code == ErrorCode.NONE:
                described.authorized_operations = self._access.operations(context, AclResourceType.GROUP, group_id)
            for member in described.members:
                size.add(_size_of(member))
                if pace.step_ends():
                    yield
            groups.append(described)
            if pace.step_ends(items_of(group_id)):
                yield
        return ConsumerGroupDescribeResponse(groups=groups)

    def _check_served(self) -> None:
        if not self._coordinator.serves_consumer_groups:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, "The consumer group protocol is not enabled.")

    def _check_size(self, names: list[str]) -> None:
        """Refuses a subscription that no record can have, before any work: the append would be refused in the end."""
        if sum(map(len, names)) > self._config.message_max_bytes:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscription is too large to be written.")

    def _described(self, group_id: str, context: RequestContext) -> Steps[_Described]:
        try:
            described = yield from self._coordinator.describe_consumer_group(group_id)
        except ProtocolError as error:
            return _Described(group_id=group_id, error_code=error.code, error_message=error.error_message)
        topics = {
            topic.topic_name
            for member in described.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        allowed = yield from self._access.allowed(context, SEE_ASSIGNED, sorted(topics))
        if all(topic in allowed for topic in topics):
            return described
        return _Described(
            group_id=group_id,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has topics that the client may not describe.",
        )


def _heartbeat(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Heartbeat:
    owned: Partitions | None = None
    if request.topic_partitions is not None:
        named: dict[UUID, set[int]] = {}
        for topic in request.topic_partitions:
            named.setdefault(topic.topic_id, set()).update(topic.partitions)
        owned = {topic_id: frozenset(partitions) for topic_id, partitions in named.items()}
    return Heartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        client_id=context.client_id or "",
        client_host=f"/{context.java_host}",
        version=context.api_version,
    )


def _size_of(member: ConsumerGroupDescribeResponse.Member) -> int:
    partitions = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return (
        MEMBER_BYTES
        + sum(map(len, member.subscribed_topic_names))
        + sum(TOPIC_BYTES + len(each.topic_name) + PARTITION_BYTES * len(each.partitions) for each in partitions)
    )


def items_named(request: ConsumerGroupHeartbeatRequest) -> list[int]:
    """Returns how many topics a heartbeat subscribes to, and how many partitions of each topic it owns."""
    return [
        *((len(request.subscribed_topic_names),) if request.subscribed_topic_names else ()),
        *(len(topic.partitions) for topic in request.topic_partitions or ()),
    ]
