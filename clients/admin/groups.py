"""GroupAdmin: lists, describes and deletes groups, and reads and commits their offsets, over an `AdminClient`.

Requests about groups are sent to their coordinators, requests about logs to the partitions' leaders. If a coordinator
is loading or has just moved, the request is retried until the timeout.

Source: Kafka's `ConsumerGroupCommand`, `KafkaAdminClient`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients.admin.client import AdminClient, by_leader, check
from odradek.clients.admin.described_groups import CLASSIC, DescribedGroup, classic_group, consumer_group
from odradek.clients.network_errors import UnsupportedVersion
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import CoordinatorType

EARLIEST, LATEST = -2, -1
"""The timestamps that ListOffsets uses for the start and the end of a log."""
NOBODY_COMMITTED = -1


class ListedGroup(NamedTuple):
    """A group and the broker that coordinates it. `group_type` is empty if the broker knows no types."""

    group_id: str
    protocol_type: str
    state: str
    coordinator: int
    group_type: str


class GroupAdmin:
    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    # Reading

    async def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
        """Returns the groups of all coordinators, sorted by name. Empty `states` or `types` means all."""
        request = ListGroupsRequest(states_filter=list(states))
        wanted = {each.lower() for each in types}
        found = []
        for broker_id in await self._admin.broker_ids():
            response = await self._admin.ask_when_loaded(broker_id, request)
            check(response.error_code)
            found += [
                ListedGroup(group.group_id, group.protocol_type, group.group_state, broker_id, group.group_type)
                for group in response.groups
                if not wanted or (group.group_type or CLASSIC).lower() in wanted  # from v5 on, brokers know types
            ]
        return sorted(found)

    async def describe(self, group_id: str) -> DescribedGroup:
        """Returns a group's description. A group that does not exist is described as Dead."""
        found = await self._consumer_group(group_id)
        if found is not None:
            return found
        coordinator, response = await self._ask(group_id, DescribeGroupsRequest(groups=[group_id]))
        (group,) = response.groups
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:  # from v6 on; its state is Dead in every version
            check(group.error_code)
        return classic_group(coordinator, group)

    async def _consumer_group(self, group_id: str) -> DescribedGroup | None:
        """Returns a group's description; None if it is of another kind, or the broker does not serve this one."""
        request = ConsumerGroupDescribeRequest(group_ids=[group_id])
        try:
            coordinator, response = await self._ask(group_id, request)
        except UnsupportedVersion:
            return None
        (group,) = response.groups
        if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        check(group.error_code, group.error_message)
        return consumer_group(coordinator, group)

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Returns all offsets that the group has committed."""
        request = OffsetFetchRequest(
            group_id=group_id,
            topics=None,
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group_id, topics=None)],
        )
        _, response = await self._ask(group_id, request)
        answer = response.groups[0] if response.groups else response
        check(answer.error_code)
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                check(partition.error_code)
                if partition.committed_offset != NOBODY_COMMITTED:
                    found[TopicPartition(topic.name, partition.partition_index)] = partition.committed_offset
        return dict(sorted(found.items()))

    async def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Returns the topic's partitions, ascending. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        described = await self._admin.topic(topic)
        return sorted(TopicPartition(topic, partition.partition_index) for partition in described.partitions)

    async def offsets_at(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """Returns, for each partition, the first offset with a timestamp >= `time_ms`, or the log end offset if there
        is none. EARLIEST and LATEST return the log's start and end. Partitions that cannot be queried now are omitted.
        """
        asked = set(partitions)
        found: dict[TopicPartition, int] = {}
        for leader, keys in (await self._by_leader(asked)).items():
            found |= await self._offsets_at(leader, keys, time_ms)
        late = [key for key, offset in found.items() if offset < 0]
        if late:
            found |= await self.offsets_at(late, LATEST)
        return dict(sorted(found.items()))

    async def _offsets_at(
        self, leader: int, keys: Collection[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int]:
        topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
        for key in keys:
            topic = topics.setdefault(key.topic, ListOffsetsRequest.ListOffsetsTopic(name=key.topic))
            topic.partitions.append(
                ListOffsetsRequest.ListOffsetsPartition(partition_index=key.partition, timestamp=time_ms)
            )
        response = await self._admin.ask_broker(leader, ListOffsetsRequest(replica_id=-1, topics=list(topics.values())))
        return {
            TopicPartition(topic.name, partition.partition_index): partition.offset
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }

    async def _by_leader(self, keys: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        if not keys:
            return {}
        led = by_leader(await self._admin.topics(sorted({key.topic for key in keys})))
        return {leader: found for leader, them in led.items() if (found := [key for key in them if key in keys])}

    # Changing

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits offsets for a group without members. Raises UNKNOWN_MEMBER_ID if it has members."""
        topics: dict[str, OffsetCommitRequest.OffsetCommitRequestTopic] = {}
        for key, offset in offsets.items():
            topic = topics.setdefault(key.topic, OffsetCommitRequest.OffsetCommitRequestTopic(name=key.topic))
            topic.partitions.append(
                OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=key.partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))
        _, response = await self._ask(group_id, request)
        for answer in response.topics:
            for partition in answer.partitions:
                check(partition.error_code, f"{answer.name}-{partition.partition_index}")

    async def delete(self, group_id: str) -> None:
        """Deletes a group. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
        _, response = await self._ask(group_id, DeleteGroupsRequest(groups_names=[group_id]))
        (result,) = response.results
        check(result.error_code, _WHY_NOT_DELETED.get(result.error_code, "").format(group_id) or None)

    # Asking

    async def _ask(self, group_id: str, request: Message) -> tuple[int, Any]:
        return await self._admin.ask_coordinator(CoordinatorType.GROUP, group_id, request)


_WHY_NOT_DELETED = {
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no group '{}'",
    ErrorCode.NON_EMPTY_GROUP: "The group '{}' has members",
}
