"""A fault that names a topic also selects requests that have only its id; and those of groups of the newer protocol."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import DescribeConfigsRequest
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.topic_partitions import DescribeTopicPartitionsRequest
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest
from odradek.protocol.wire_codes import ConfigResourceType
from odradek.testing import BrokerThread
from tests.testing.faults.test_selected_items import NONE, NOT_LEADER, end_offset, until_coordinated
from tests.wire.blocking_client import Client
from tests.wire.requests import add_offsets, init, produce_to

NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)
STALE = UUID(int=7)


@pytest.fixture
def ids(broker: BrokerThread) -> dict[str, UUID]:
    """The ids of the topics."""
    return {name: broker.broker.metadata.topic_id(name) for name in ("orders", "other")}


@pytest.fixture
def coordinated(broker: BrokerThread, client: Client) -> Client:
    until_coordinated(broker, client)
    return client


def produce(ids: dict[str, UUID], topics: dict[str, list[int]]) -> Any:
    request = produce_to(topics)
    for topic in request.topic_data:
        topic.topic_id, topic.name = ids[topic.name], ""
    return request


def codes(response: Any, ids: dict[str, UUID]) -> dict[tuple[str, int], int]:
    names = {topic_id: name for name, topic_id in ids.items()}
    return {
        (names[topic.topic_id], partition.index): partition.error_code
        for topic in response.responses
        for partition in topic.partition_responses
    }


def by_partition(topics: Any) -> dict[tuple[UUID, int], int]:
    return {(topic.topic_id, each.partition_index): each.error_code for topic in topics for each in topic.partitions}


def test_a_partition_of_a_produce_by_ids_fails_and_the_others_are_written(
    broker: BrokerThread, client: Client, ids: dict[str, UUID]
) -> None:
    fault = broker.faults.add(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    answered = client.ask(produce(ids, {"orders": [0, 1], "other": [0]}), 13)
    assert codes(answered, ids) == {("orders", 0): NONE, ("orders", 1): NOT_LEADER, ("other", 0): NONE}
    assert fault.hits == 1
    assert [end_offset(client, "orders", partition) for partition in (0, 1)] == [1, 0]
    assert codes(client.ask(produce(ids, {"other": [0]}), 13), ids) == {("other", 0): NONE}
    assert fault.hits == 1


def test_a_produce_is_selected_by_an_id_that_no_topic_has(
    broker: BrokerThread, client: Client, ids: dict[str, UUID]
) -> None:
    fault = broker.faults.add(api="Produce", topic_id=STALE, error="NOT_LEADER_OR_FOLLOWER")
    assert codes(client.ask(produce(ids, {"orders": [0]}), 13), ids) == {("orders", 0): NONE}
    stale = {"orders": STALE}
    assert codes(client.ask(produce(stale, {"orders": [0]}), 13), stale) == {("orders", 0): NOT_LEADER}
    assert fault.hits == 1


def test_a_request_by_ids_is_waited_for_by_name(broker: BrokerThread, client: Client, ids: dict[str, UUID]) -> None:
    assert not list(broker.requests), "the journal begins"
    client.ask(produce(ids, {"other": [0]}), 13)
    client.ask(produce(ids, {"orders": [2]}), 13)
    request = broker.request(api="Produce", topic="orders", partition=2)
    assert (request.version, request.body.topic_data[0].topic_id) == (13, ids["orders"])


def offsets(ids: dict[str, UUID], topic: type[Any], partition: type[Any]) -> list[Any]:
    """Offset 5 of two partitions of `orders`, and of one of `other`."""
    return [
        topic(
            topic_id=ids[name],
            partitions=[partition(partition_index=each, committed_offset=5) for each in range(count)],
        )
        for name, count in (("orders", 2), ("other", 1))
    ]


def test_a_partition_of_a_commit_by_ids_fails(broker: BrokerThread, coordinated: Client, ids: dict[str, UUID]) -> None:
    broker.faults.add(group="billing", topic="orders", partition=0, error="NOT_COORDINATOR", times=1)
    kinds = OffsetCommitRequest.OffsetCommitRequestTopic, OffsetCommitRequest.OffsetCommitRequestPartition
    topics = offsets(ids, *kinds)
    answered = coordinated.ask(OffsetCommitRequest(group_id="billing", topics=topics), 10)
    orders, other = ids["orders"], ids["other"]
    assert by_partition(answered.topics) == {(orders, 0): NOT_COORDINATOR, (orders, 1): NONE, (other, 0): NONE}
    broker.faults.add(api="OffsetFetch", topic="orders", partition=1, error="UNSTABLE_OFFSET_COMMIT")
    asked = OffsetFetchRequest.OffsetFetchRequestTopics
    named = [asked(topic_id=orders, partition_indexes=[0, 1]), asked(topic_id=other, partition_indexes=[0])]
    for wanted in (named, None):  # None: all topics
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="billing", topics=wanted)
        (fetched,) = coordinated.ask(OffsetFetchRequest(groups=[group]), 10).groups
        found = {
            (topic.topic_id, each.partition_index): (each.error_code, each.committed_offset)
            for topic in fetched.topics
            for each in topic.partitions
        }
        assert found.pop((orders, 0), (NONE, -1)) == (NONE, -1), "it was not committed"
        assert found == {(orders, 1): (int(ErrorCode.UNSTABLE_OFFSET_COMMIT), -1), (other, 0): (NONE, 5)}


def test_a_topic_of_a_commit_in_a_transaction_fails_by_its_id(
    broker: BrokerThread, coordinated: Client, ids: dict[str, UUID]
) -> None:
    made = coordinated.ask(init("payments"), 3)
    producer = (made.producer_id, made.producer_epoch)
    coordinated.ask(add_offsets("payments", producer, "billing"), 3)
    broker.faults.add(api="TxnOffsetCommit", topic="orders", error="NOT_COORDINATOR")
    kinds = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic, TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    request = TxnOffsetCommitRequest(
        transactional_id="payments",
        group_id="billing",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=offsets(ids, *kinds),
    )
    found = by_partition(coordinated.ask(request, 6).topics)
    orders, other = ids["orders"], ids["other"]
    assert found == {(orders, 0): NOT_COORDINATOR, (orders, 1): NOT_COORDINATOR, (other, 0): NONE}


# Groups whose assignments the broker makes


def heartbeat(group: str, epoch: int = 0, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    more = {**joins, **fields} if epoch == 0 else fields
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=epoch, **more)


def owned(topic_id: UUID, *partitions: int) -> list[Any]:
    return [ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=list(partitions))]


def test_a_heartbeat_fails_by_its_group(broker: BrokerThread, coordinated: Client) -> None:
    fault = broker.faults.add(api="ConsumerGroupHeartbeat", group="billing", error="FENCED_MEMBER_EPOCH")
    assert coordinated.ask(heartbeat("shipping"), 1).error_code == NONE
    assert coordinated.ask(heartbeat("billing"), 1).error_code == int(ErrorCode.FENCED_MEMBER_EPOCH)
    assert fault.hits == 1


def test_a_heartbeat_is_selected_by_what_it_subscribes_to_and_by_what_it_owns(
    broker: BrokerThread, coordinated: Client, ids: dict[str, UUID]
) -> None:
    subscribed = broker.faults.add(topic="orders", error="NOT_COORDINATOR", times=1)
    assert coordinated.ask(heartbeat("billing", subscribed_topic_names=["other"]), 1).error_code == NONE
    both = heartbeat("shipping", subscribed_topic_names=["other", "orders"])
    assert coordinated.ask(both, 1).error_code == NOT_COORDINATOR
    assert (subscribed.hits, coordinated.ask(both, 1).error_code) == (1, NONE)
    owns = broker.faults.add(topic="orders", partition=1, error="NOT_COORDINATOR")
    assert coordinated.ask(heartbeat("shipping", 2, topic_partitions=owned(ids["orders"], 0, 2)), 1).error_code == NONE
    assert coordinated.ask(heartbeat("new"), 1).error_code == NONE, "a subscription names no partition"
    assert owns.hits == 0
    all_three = heartbeat("shipping", 2, topic_partitions=owned(ids["orders"], 0, 1, 2))
    assert (coordinated.ask(all_three, 1).error_code, owns.hits) == (NOT_COORDINATOR, 1)


def test_one_of_two_described_groups_fails(broker: BrokerThread, coordinated: Client) -> None:
    coordinated.ask(heartbeat("billing"), 1)
    broker.faults.add(api="ConsumerGroupDescribe", group="billing", error="NOT_COORDINATOR")
    answered = coordinated.ask(ConsumerGroupDescribeRequest(group_ids=["shipping", "billing"]), 1)
    found = {group.group_id: group.error_code for group in answered.groups}
    assert found == {"billing": NOT_COORDINATOR, "shipping": int(ErrorCode.GROUP_ID_NOT_FOUND)}


def test_the_settings_of_a_group_are_selected_by_it(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="DescribeConfigs", group="billing", error="INVALID_CONFIG")
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name)
        for kind, name in (
            (ConfigResourceType.GROUP, "shipping"),
            (ConfigResourceType.GROUP, "billing"),
            (ConfigResourceType.TOPIC, "orders"),
        )
    ]
    answered = client.ask(DescribeConfigsRequest(resources=asked), 4)
    found = {result.resource_name: result.error_code for result in answered.results}
    assert found == {"shipping": NONE, "billing": int(ErrorCode.INVALID_CONFIG), "orders": NONE}
    client.ask(DescribeConfigsRequest(resources=[asked[0], asked[2]]), 4)
    assert fault.hits == 1


# Topics, page by page


def described(response: Any) -> dict[str, tuple[int, dict[int, int]]]:
    return {
        topic.name: (topic.error_code, {each.partition_index: each.error_code for each in topic.partitions})
        for topic in response.topics
        if not topic.is_internal
    }


@pytest.mark.parametrize("names", [["orders", "other"], []])
def test_a_described_topic_fails_also_if_the_request_is_for_all(
    broker: BrokerThread, client: Client, names: list[str]
) -> None:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names]
    request = DescribeTopicPartitionsRequest(topics=topics)
    fault = broker.faults.add(api="DescribeTopicPartitions", topic="orders", error="LEADER_NOT_AVAILABLE")
    assert described(client.ask(request, 0)) == {"orders": (5, {}), "other": (NONE, {0: NONE})}
    fault.remove()
    broker.faults.add(api="DescribeTopicPartitions", topic="orders", partition=1, error="LEADER_NOT_AVAILABLE")
    assert described(client.ask(request, 0)) == {"orders": (NONE, {0: NONE, 1: 5, 2: NONE}), "other": (NONE, {0: NONE})}


def test_a_page_without_the_topic_is_not_hit(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(
        api="DescribeTopicPartitions", topic="orders", error="LEADER_NOT_AVAILABLE", optional=True
    )
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="other", partition_index=0)
    assert described(client.ask(DescribeTopicPartitionsRequest(cursor=cursor), 0)) == {"other": (NONE, {0: NONE})}
    named = [DescribeTopicPartitionsRequest.TopicRequest(name="other")]
    client.ask(DescribeTopicPartitionsRequest(topics=named), 0)
    assert fault.hits == 0
