"""An error code stands in the selected items alone; the broker handles the others."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest
from odradek.protocol.messages.list_offsets import ListOffsetsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.transactions import EndTxnRequest
from odradek.testing import BrokerThread
from tests.patience import block_until
from tests.wire.blocking_client import Client
from tests.wire.records import codes
from tests.wire.requests import produce_to as produce

NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
NONE = 0


def end_offset(client: Client, topic: str, partition: int) -> int:
    asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])])
    return int(client.ask(request, 7).topics[0].partitions[0].offset)


@pytest.mark.parametrize("version", range(3, 12))
def test_one_partition_fails_and_the_others_are_written(broker: BrokerThread, client: Client, version: int) -> None:
    broker.faults.add(api="Produce", topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    answered = client.ask(produce({"orders": [0, 1, 2], "other": [0]}), version)
    expected = {("orders", 0): NONE, ("orders", 1): NOT_LEADER, ("orders", 2): NONE, ("other", 0): NONE}
    assert codes(answered) == expected
    assert [end_offset(client, "orders", partition) for partition in range(3)] == [1, 0, 1]


def test_a_topic_fails_and_the_other_is_written(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(topic="orders", error="NOT_LEADER_OR_FOLLOWER")
    answered = client.ask(produce({"other": [0], "orders": [0, 1]}), 9)
    assert codes(answered) == {("other", 0): NONE, ("orders", 0): NOT_LEADER, ("orders", 1): NOT_LEADER}
    assert fault.hits == 1
    fault.remove()
    assert end_offset(client, "orders", 0) == 0


def test_faults_of_two_partitions_both_hit_one_request(broker: BrokerThread, client: Client) -> None:
    first = broker.faults.add(topic="orders", partition=0, error="NOT_LEADER_OR_FOLLOWER")
    second = broker.faults.add(topic="orders", partition=2, error="CORRUPT_MESSAGE")
    third = broker.faults.add(topic="orders", partition=0, error="CORRUPT_MESSAGE", optional=True)
    assert codes(client.ask(produce({"orders": [0, 1, 2]}), 9)) == {
        ("orders", 0): NOT_LEADER,
        ("orders", 1): NONE,
        ("orders", 2): int(ErrorCode.CORRUPT_MESSAGE),
    }
    assert (first.hits, second.hits, third.hits) == (1, 1, 0), "the first fault keeps the partition from the third"


def test_a_request_for_other_partitions_is_not_hit(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER", optional=True)
    assert codes(client.ask(produce({"orders": [0], "other": [0]}), 9)) == {("orders", 0): NONE, ("other", 0): NONE}
    assert fault.hits == 0


def test_a_failed_produce_without_acks_ends_the_connection_as_in_kafka(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(topic="orders", partition=1, error="NOT_LEADER_OR_FOLLOWER")
    client.send(produce({"orders": [0, 1]}, acks=0), 9)
    with pytest.raises(ConnectionError):
        client.raw.receive()
    with Client(broker.bootstrap) as other:
        assert [end_offset(other, "orders", partition) for partition in (0, 2)] == [1, 0]


# Fetch


def fetch(
    topic: str | UUID, partitions: list[int], *, session: int = 0, epoch: int = -1, wait_ms: int = 0
) -> FetchRequest:
    asked = [
        FetchRequest.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=10_000) for each in partitions
    ]
    named = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchRequest.FetchTopic(partitions=asked, **named)] if partitions else [],
    )


def fetched(response: FetchResponse) -> dict[int, tuple[int, bool]]:
    return {
        partition.partition_index: (partition.error_code, bool(partition.records))
        for topic in response.responses
        for partition in topic.partitions
    }


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 17])
def test_one_partition_of_a_fetch_fails(broker: BrokerThread, client: Client, version: int) -> None:
    client.ask(produce({"orders": [0, 1]}), 9)
    broker.faults.add(api="Fetch", topic="orders", partition=1, error="OFFSET_OUT_OF_RANGE")
    topic = "orders" if version < 13 else broker.broker.metadata.topic_id("orders")
    answered = fetched(client.ask(fetch(topic, [0, 1]), version))
    assert answered == {0: (NONE, True), 1: (int(ErrorCode.OFFSET_OUT_OF_RANGE), False)}


@pytest.mark.parametrize("version", [12, 13])
def test_a_partition_of_a_session_fails_although_the_request_does_not_name_it(
    broker: BrokerThread, client: Client, version: int
) -> None:
    topic = "orders" if version < 13 else broker.broker.metadata.topic_id("orders")
    opened = client.ask(fetch(topic, [0, 1], epoch=0), version)
    fault = broker.faults.add(api="Fetch", topic="orders", partition=1, times=1, error="NOT_LEADER_OR_FOLLOWER")
    incremental = fetch(topic, [], session=opened.session_id, epoch=1, wait_ms=20_000)
    answered = client.ask(incremental, version)
    assert (fetched(answered), fault.hits) == ({1: (NOT_LEADER, False)}, 1)
    client.ask(produce({"orders": [1]}), 9)
    again = client.ask(fetch(topic, [], session=opened.session_id, epoch=2), version)
    assert (again.error_code, fetched(again)) == (0, {1: (NONE, True)}), "the session goes on"


def test_the_id_of_a_topic_selects_it_and_an_old_one_selects_requests_of_stale_clients(
    broker: BrokerThread, client: Client
) -> None:
    topic_id, stale = broker.broker.metadata.topic_id("orders"), UUID(int=7)
    fault = broker.faults.add(api="Fetch", topic_id=stale, error="UNKNOWN_TOPIC_ID")
    assert fetched(client.ask(fetch(topic_id, [0]), 13)) == {0: (NONE, False)}
    assert fault.hits == 0
    client.ask(fetch(stale, [0]), 13)
    assert fault.hits == 1
    broker.faults.add(api="Fetch", topic_id=str(topic_id), error="NOT_LEADER_OR_FOLLOWER")
    assert fetched(client.ask(fetch(topic_id, [0]), 13)) == {0: (NOT_LEADER, False)}


def test_the_codes_of_sessions_fail_the_whole_fetch(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Fetch", error="FETCH_SESSION_ID_NOT_FOUND")
    answered = client.ask(fetch("orders", [0]), 12)
    assert (answered.error_code, answered.responses) == (int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), [])


# Metadata


def test_a_topic_of_all_topics_fails_in_the_metadata(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Metadata", topic="orders", times=1, error="LEADER_NOT_AVAILABLE")
    answered = client.ask(MetadataRequest(topics=None), 9)
    found = {topic.name: (topic.error_code, len(topic.partitions)) for topic in answered.topics}
    assert found == {"orders": (int(ErrorCode.LEADER_NOT_AVAILABLE), 0), "other": (NONE, 1)}
    assert answered.brokers, "clients still find the brokers"


def test_a_partition_fails_in_the_metadata(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Metadata", topic="orders", partition=1, error="LEADER_NOT_AVAILABLE")
    topics = [MetadataRequest.MetadataRequestTopic(name="orders"), MetadataRequest.MetadataRequestTopic(name="other")]
    orders, other = sorted(client.ask(MetadataRequest(topics=topics), 9).topics, key=lambda topic: topic.name)
    assert {each.partition_index: each.error_code for each in orders.partitions} == {0: 0, 1: 5, 2: 0}
    assert (orders.error_code, other.error_code, len(other.partitions)) == (0, 0, 1)


def test_metadata_without_topics_is_not_hit_by_a_fault_of_a_topic(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(api="Metadata", topic="orders", error="LEADER_NOT_AVAILABLE", optional=True)
    client.ask(MetadataRequest(topics=[]), 9)
    assert fault.hits == 0


def test_metadata_that_does_not_show_what_is_selected_is_not_hit(broker: BrokerThread, client: Client) -> None:
    missing = broker.faults.add(api="Metadata", topic="missing", error="LEADER_NOT_AVAILABLE", optional=True)
    once = broker.faults.add(api="Metadata", times=1, error="LEADER_NOT_AVAILABLE")
    client.ask(MetadataRequest(topics=[]), 9)
    assert (missing.hits, once.hits) == (0, 0)
    answered = client.ask(MetadataRequest(topics=None), 9)
    assert {topic.error_code for topic in answered.topics} == {int(ErrorCode.LEADER_NOT_AVAILABLE)}
    assert (missing.hits, once.hits) == (0, 1)
    assert {topic.error_code for topic in client.ask(MetadataRequest(topics=None), 9).topics} == {NONE}


# Groups and transactions


def test_one_of_two_groups_fails(broker: BrokerThread, client: Client) -> None:
    until_coordinated(broker, client)
    broker.faults.add(api="DeleteGroups", group="billing", error="NOT_COORDINATOR")
    answered = client.ask(DeleteGroupsRequest(groups_names=["billing", "shipping"]), 2)
    found = {result.group_id: result.error_code for result in answered.results}
    assert found == {"billing": int(ErrorCode.NOT_COORDINATOR), "shipping": int(ErrorCode.GROUP_ID_NOT_FOUND)}


@pytest.mark.parametrize("version", [3, 4])
def test_the_coordinator_of_a_group_is_not_found(broker: BrokerThread, client: Client, version: int) -> None:
    until_coordinated(broker, client)
    fault = broker.faults.add(api="FindCoordinator", group="billing", error="COORDINATOR_NOT_AVAILABLE")
    code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if version < 4:
        assert client.ask(FindCoordinatorRequest(key="billing", key_type=0), 3).error_code == code
        assert client.ask(FindCoordinatorRequest(key="billing", key_type=1), 3).error_code != code
    else:
        answered = client.ask(FindCoordinatorRequest(coordinator_keys=["shipping", "billing"], key_type=0), 4)
        assert {each.key: each.error_code for each in answered.coordinators} == {"shipping": 0, "billing": code}
    assert fault.hits == 1


def test_a_partition_of_a_commit_of_one_group_fails(broker: BrokerThread, client: Client) -> None:
    until_coordinated(broker, client)
    broker.faults.add(group="billing", topic="orders", partition=0, error="NOT_COORDINATOR")

    def commit(group: str) -> dict[int, int]:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(
            name="orders", partitions=[partition(partition_index=each, committed_offset=5) for each in range(2)]
        )
        answered = client.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
        return {each.partition_index: each.error_code for each in answered.topics[0].partitions}

    assert commit("billing") == {0: int(ErrorCode.NOT_COORDINATOR), 1: NONE}
    assert commit("shipping") == {0: NONE, 1: NONE}
    asked = OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="billing", topics=None)])
    topics = client.ask(asked, 8).groups[0].topics
    found = {each.partition_index: (each.error_code, each.committed_offset) for each in topics[0].partitions}
    assert found == {1: (NONE, 5)}, "partition 0 was not committed"


@pytest.mark.parametrize("version", [0, 1, 5, 7, 8, 9])
def test_a_partition_of_the_offsets_of_a_group_fails(broker: BrokerThread, client: Client, version: int) -> None:
    until_coordinated(broker, client)
    fault = broker.faults.add(api="OffsetFetch", topic="orders", partition=1, error="UNSTABLE_OFFSET_COMMIT")
    kind = OffsetFetchRequest.OffsetFetchRequestTopic if version < 8 else OffsetFetchRequest.OffsetFetchRequestTopics
    topics: list[Any] = [kind(name="orders", partition_indexes=[0, 1]), kind(name="other", partition_indexes=[0])]
    if version < 8:
        answered = client.ask(OffsetFetchRequest(group_id="billing", topics=topics), version)
    else:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="billing", topics=topics)
        answered = client.ask(OffsetFetchRequest(groups=[group]), version).groups[0]
    found = {
        (topic.name, each.partition_index): each.error_code for topic in answered.topics for each in topic.partitions
    }
    assert (answered.error_code, fault.hits) == (NONE, 1)
    unstable = int(ErrorCode.UNSTABLE_OFFSET_COMMIT)
    unknown = NONE if version else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # there is no offset
    assert found == {("orders", 0): unknown, ("orders", 1): unstable, ("other", 0): unknown}


def test_all_offsets_of_one_of_two_groups_fail(broker: BrokerThread, client: Client) -> None:
    until_coordinated(broker, client)
    broker.faults.add(api="OffsetFetch", group="billing", error="NOT_COORDINATOR")
    groups = [
        OffsetFetchRequest.OffsetFetchRequestGroup(group_id=each, topics=None) for each in ("shipping", "billing")
    ]
    answered = client.ask(OffsetFetchRequest(groups=groups), 8)
    found = {group.group_id: (group.error_code, group.topics) for group in answered.groups}
    assert found == {"shipping": (NONE, []), "billing": (int(ErrorCode.NOT_COORDINATOR), [])}


def until_coordinated(broker: BrokerThread, client: Client) -> None:
    """Waits until the broker coordinates groups and transactions."""
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key="any", key_type=key_type)
        block_until(lambda request=request: client.ask(request, 3).error_code == 0)  # type: ignore[misc]
    block_until(lambda: not broker.broker.coordinators.groups.is_loading)


def test_an_api_with_one_code_for_all_items_fails_as_a_whole(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Heartbeat", group="billing", error="REBALANCE_IN_PROGRESS")
    heartbeat = HeartbeatRequest(group_id="billing", member_id="somebody")
    assert client.ask(heartbeat, 4).error_code == int(ErrorCode.REBALANCE_IN_PROGRESS)


def test_the_offsets_of_one_partition_are_not_deleted(broker: BrokerThread, client: Client) -> None:
    until_coordinated(broker, client)
    broker.faults.add(api="OffsetDelete", topic="orders", partition=1, error="GROUP_SUBSCRIBED_TO_TOPIC")
    partitions = [OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1)]
    topic = OffsetDeleteRequest.OffsetDeleteRequestTopic(name="orders", partitions=partitions)
    answered = client.ask(OffsetDeleteRequest(group_id="billing", topics=[topic]), 0)
    found = {each.partition_index: each.error_code for topic in answered.topics for each in topic.partitions}
    assert found[1] == int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert answered.error_code == int(ErrorCode.GROUP_ID_NOT_FOUND), "the broker's own answer to the rest"


def test_a_transactional_id_selects_requests(broker: BrokerThread, client: Client) -> None:
    fault = broker.faults.add(transactional_id="payments", error="INVALID_PRODUCER_EPOCH")
    ended = client.ask(EndTxnRequest(transactional_id="payments", producer_id=1, producer_epoch=0, committed=True), 3)
    assert ended.error_code == int(ErrorCode.INVALID_PRODUCER_EPOCH)
    client.ask(EndTxnRequest(transactional_id="others", producer_id=1, producer_epoch=0, committed=True), 3)
    assert fault.hits == 1


# Which requests


def test_the_nth_request_and_those_behind_it(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", nth=2, error="NOT_LEADER_OR_FOLLOWER")
    broker.faults.add(api="Produce", nth=3, times=2, error="REQUEST_TIMED_OUT")
    answered = [codes(client.ask(produce({"orders": [0]}), 9))["orders", 0] for _ in range(7)]
    late = int(ErrorCode.REQUEST_TIMED_OUT)
    assert answered == [NONE, NOT_LEADER, NONE, late, late, NONE, NONE], (
        "the second fault never sees the second request"
    )


def test_a_client_a_user_and_a_function_select_requests(broker: BrokerThread, client: Client) -> None:
    broker.faults.add(api="Produce", client_id="billing", error="NOT_LEADER_OR_FOLLOWER")
    broker.faults.add(api="Produce", user="alice", error="CORRUPT_MESSAGE", optional=True)
    large = broker.faults.add(api="Produce", when=lambda request: request.body.acks == 1, error="MESSAGE_TOO_LARGE")
    everybody = broker.faults.add(api="Produce", user="ANONYMOUS", nth=2, error="REQUEST_TIMED_OUT")
    with Client(broker.bootstrap, "billing") as billing:
        assert codes(billing.ask(produce({"orders": [0]}), 9)) == {("orders", 0): NOT_LEADER}
    assert codes(client.ask(produce({"orders": [0]}), 9)) == {("orders", 0): NONE}
    assert codes(client.ask(produce({"orders": [0]}, acks=1), 9)) == {("orders", 0): int(ErrorCode.MESSAGE_TOO_LARGE)}
    assert codes(client.ask(produce({"orders": [0]}), 9)) == {("orders", 0): int(ErrorCode.REQUEST_TIMED_OUT)}
    assert (large.hits, everybody.hits) == (1, 1)
