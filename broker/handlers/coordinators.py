"""FindCoordinator: returns the coordinator of a group or a transactional id.

The coordinator is the leader of the id's partition of the internal topic. The topic is created by the first request
for a coordinator. Source: Kafka's `KafkaApis.getCoordinator`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from odradek.broker.background.stepwise import Steps, each_in_steps, once
from odradek.broker.coordinator.internal_topics import InternalTopics
from odradek.broker.coordinator.runtime.shard import Runtime
from odradek.broker.handlers.access import DENIALS, Access, Check
from odradek.broker.metadata.metadata_cache import GROUP_TOPIC, TRANSACTION_TOPIC, BrokerEndpoint, MetadataCache
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.broker.requests.request_context import RequestContext
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation, AclResourceType, CoordinatorType

FIRST_BATCHED_VERSION = 4
FIRST_VERSION_WITH_SHARE_GROUPS = 6
NO_NODE = -1


TOPICS = {CoordinatorType.GROUP: GROUP_TOPIC, CoordinatorType.TRANSACTION: TRANSACTION_TOPIC}
"""The internal topic whose partition leaders are the coordinators of this type."""
CHECKS = {
    CoordinatorType.GROUP: Check(AclOperation.DESCRIBE, AclResourceType.GROUP, "a group's key", "each key"),
    CoordinatorType.TRANSACTION: Check(
        AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, "a transaction's key", "each key"
    ),
    CoordinatorType.SHARE: Check(
        AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, "a share group's key", "each key"
    ),
}
"""What a client must be allowed to know the coordinator of a key. Brokers alone ask for share groups."""


class FindCoordinatorHandler:
    """FindCoordinator (key 10)."""

    def __init__(
        self,
        internal_topics: InternalTopics,
        runtimes: Mapping[str, Runtime],
        metadata: MetadataCache,
        partitions: HostedPartitions,
        access: Access,
        *,
        has_texts: bool,
    ) -> None:
        """`runtimes`: by their topic. `has_texts`: results of single keys have a text, also without an error."""
        self._internal_topics = internal_topics
        self._runtimes = runtimes
        self._metadata = metadata
        self._partitions = partitions
        self._access = access
        self._has_texts = has_texts

    def find_coordinator(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> Steps[FindCoordinatorResponse]:
        """Returns the leader of the key's partition of the internal topic. From v4 on there is a result for each key.

        Returns COORDINATOR_NOT_AVAILABLE if the partition has no leader. If the topic does not exist yet, this request
        creates it. No broker coordinates share groups (KIP-932), as in Kafka 3.9. Returns INVALID_REQUEST for other
        types.
        """
        if context.api_version >= FIRST_BATCHED_VERSION:
            keys = yield from once(request.coordinator_keys)
            found = yield from each_in_steps(keys, lambda key: self._coordinator(request.key_type, key, context))
            return FindCoordinatorResponse(coordinators=found)
        one = self._coordinator(request.key_type, request.key, context)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=(one.error_message or ErrorCode.NONE.name) if self._has_texts else None,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _coordinator(self, key_type: int, key: str, context: RequestContext) -> FindCoordinatorResponse.Coordinator:
        result = FindCoordinatorResponse.Coordinator(key=key, node_id=NO_NODE, host="", port=-1)
        topic = TOPICS.get(cast(CoordinatorType, key_type))
        if topic is None and not _is_share_group(key_type, context):
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"Unknown coordinator type {key_type}"
            return result
        denial = self._denial(key_type, key, context)
        if denial is not None:
            result.error_code, result.error_message = denial, denial.message
            return result
        broker_id, endpoint = (NO_NODE, None) if topic is None else self._leader(topic, key, context)
        if endpoint is None:
            result.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            result.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE.message
            return result
        result.node_id, result.host, result.port = broker_id, endpoint.host, endpoint.port
        return result

    def _denial(self, key_type: int, key: str, context: RequestContext) -> ErrorCode | None:
        """Returns the error of a client that may not know the coordinator."""
        check = CHECKS[cast(CoordinatorType, key_type)]
        name = CLUSTER_NAME if check.resource_type is AclResourceType.CLUSTER else key
        return None if self._access.allows(context, check, name) else DENIALS[check.resource_type]

    def _leader(self, topic: str, key: str, context: RequestContext) -> tuple[int, BrokerEndpoint | None]:
        """Returns the leader of the key's partition and its endpoint on the client's listener; None if unavailable."""
        internal_topics, metadata = self._internal_topics, self._metadata
        if not internal_topics.exists(topic):
            internal_topics.create(topic)
            return NO_NODE, None
        number = self._runtimes[topic].partition_for(key)
        partition = metadata.partition(topic, number)
        if partition is None:
            return NO_NODE, None
        is_offline = TopicPartition(topic, number) in self._partitions.offline
        if is_offline and partition.leader == metadata.broker_id:
            return NO_NODE, None
        leader = metadata.brokers.get(partition.leader)
        return partition.leader, None if leader is None else leader.endpoint(context.listener.name)


def _is_share_group(key_type: int, context: RequestContext) -> bool:
    return key_type == CoordinatorType.SHARE and context.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS
