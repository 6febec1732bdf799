"""One client without a login sends valid, huge administrative requests: they do not block other clients, and memory
stays in proportion to the requests.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence

import pytest

from odradek.broker.metadata.metadata_cache import PartitionState, TopicMetadata
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.producers import DescribeProducersRequest
from odradek.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import DescribeTransactionsRequest
from tests.scenarios.turns_of_a_loop import Turns
from tests.scenarios.watched_broker import Memory, WatchedBroker, decoded, watched_broker
from tests.soak import rounds

pytestmark = pytest.mark.soak("hostile administrative requests", minutes=1)
BYTES_PER_BYTE = 20
"""Memory beyond the frame and the answer, per byte of the request."""
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
THIS_BROKER = "0"
LIST = "leader.replication.throttled.replicas"
SETTINGS = rounds(8_000, in_soak=20_000)
TOPICS = rounds(2_000, in_soak=10_000)
DELETIONS = rounds(15_000, in_soak=40_000)
"""So many of each would make several times as many calls as a turn may, if one turn did them all."""

DescribedResource = DescribeConfigsRequest.DescribeConfigsResource
Incremental = IncrementalAlterConfigsRequest
NewTopic = CreateTopicsRequest.CreatableTopic


@pytest.fixture(scope="module")
def broker() -> Iterator[WatchedBroker]:
    with watched_broker({"auto.create.topics.enable": False}) as broker:
        created = broker.response(new_topics(["t"], validate_only=False), 7)
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE]
        yield broker


def description_of(names: Sequence[str], resource_type: int = BROKER) -> DescribeConfigsRequest:
    resources = [
        DescribedResource(resource_type=resource_type, resource_name=name, configuration_keys=None) for name in names
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)


def change(
    resource_type: int, name: str, items: Sequence[tuple[str, int, str | None]], *, validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [
        Incremental.AlterableConfig(name=each, config_operation=what, value=value) for each, what, value in items
    ]
    resource = Incremental.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    return Incremental(resources=[resource], validate_only=validate_only)


def new_topics(
    names: Sequence[str], *, validate_only: bool = True, config: Callable[[int], str] | None = None
) -> CreateTopicsRequest:
    setting = CreateTopicsRequest.CreatableTopicConfig
    return CreateTopicsRequest(
        topics=[
            NewTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[setting(name="retention.ms", value=config(number))] if config else [],
            )
            for number, name in enumerate(names)
        ],
        timeout_ms=60_000,
        validate_only=validate_only,
    )


def in_proportion(memory: Memory) -> bool:
    return memory.beyond_frame_and_answer <= BYTES_PER_BYTE * memory.request


def test_a_resource_named_thousands_of_times_is_described_once(broker: WatchedBroker) -> None:
    request = description_of([THIS_BROKER] * 13_000)
    once = broker.ask(description_of([THIS_BROKER]), 4)
    answer = broker.ask(request, 4)
    assert answer.size == once.size
    assert answer.turns.are_short()
    assert in_proportion(broker.memory_of(request, 4))


def test_a_resource_named_with_different_keys_is_described_with_all_of_them(broker: WatchedBroker) -> None:
    request = description_of(["t", "t", "t"], TOPIC)
    for resource, key in zip(request.resources, ("retention.ms", "segment.ms", "no.such"), strict=True):
        resource.configuration_keys = [key]
    (described,) = broker.response(request, 4).results
    assert [config.name for config in described.configs] == ["retention.ms", "segment.ms"]
    request.resources[1].configuration_keys = None
    (described,) = broker.response(request, 4).results
    assert len(described.configs) > 30


def test_a_response_that_would_be_too_large_is_refused_before_it_is_built() -> None:
    names = ["0" * length for length in range(1, 400)]  # all are this broker's id
    most_bytes = 1 << 20
    with watched_broker({"odradek.max.response.bytes": most_bytes}) as broker:
        request = description_of(names)
        answer = broker.ask(request, 4)
        results = decoded(request, 4, answer).results
        assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
        assert answer.turns.are_short()
        memory = broker.memory_of(request, 4)
        assert memory.peak <= BYTES_PER_BYTE * memory.request + 2 * most_bytes
        assert len(broker.response(description_of(names[:5]), 4).results) == 5


def test_the_connection_closes_if_the_error_response_is_too_large_as_well() -> None:
    with watched_broker({"odradek.max.response.bytes": 64 * 1024}) as broker:
        with pytest.raises(ConnectionError):
            broker.ask(description_of(["0" * length for length in range(1, 500)]), 4)

        async def add_a_topic() -> None:
            partitions = {number: PartitionState(number, 0, 0, (0,), (0,)) for number in range(5_000)}
            broker.thread.broker.metadata.put_topic(TopicMetadata("large", uuid.uuid4(), partitions), {})

        broker.thread.call(add_a_topic())
        with pytest.raises(ConnectionError):
            broker.ask(MetadataRequest(topics=None), 9)
        named = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="large")])
        assert [topic.error_code for topic in broker.response(named, 9).topics] == [ErrorCode.POLICY_VIOLATION]


@pytest.mark.parametrize("name", ["plug.in.{}", "listener.name.l{}.max.connections"])
def test_thousands_of_settings_of_one_broker_are_set_and_deleted_in_steps(broker: WatchedBroker, name: str) -> None:
    names = [name.format(number) for number in range(SETTINGS)]
    for request in (
        change(BROKER, THIS_BROKER, [(each, SET, "7") for each in names]),
        description_of([THIS_BROKER]),
        change(BROKER, THIS_BROKER, [(each, DELETE, None) for each in names]),
    ):
        answer = broker.ask(request, 1)
        assert answer.turns.are_short()
    assert [one.error_code for one in decoded(request, 1, answer).responses] == [ErrorCode.NONE]


def test_more_settings_than_one_entry_holds_are_refused(broker: WatchedBroker) -> None:
    for items in (
        [(f"plug.in.{number}", SET, "7") for number in range(40_000)],
        [(f"plug.in.{number}", SET, "7" * 30_000) for number in range(40)],
    ):
        (answer,) = broker.response(change(BROKER, THIS_BROKER, items), 1).responses
        assert answer.error_code == ErrorCode.POLICY_VIOLATION


def test_settings_named_twice_are_refused_in_steps_and_a_few_are_listed(broker: WatchedBroker) -> None:
    request = change(BROKER, THIS_BROKER, [(f"plug.in.{number // 2}", SET, "x") for number in range(20_000)])
    answer = broker.ask(request, 1)
    (refusal,) = decoded(request, 1, answer).responses
    assert refusal.error_code == ErrorCode.INVALID_REQUEST
    assert "and 9990 more" in refusal.error_message
    assert answer.turns.are_short()


def test_all_settings_of_a_broker_are_replaced_in_steps(broker: WatchedBroker) -> None:
    config = AlterConfigsRequest.AlterableConfig
    for count in (SETTINGS, 0):
        resource = AlterConfigsRequest.AlterConfigsResource(
            resource_type=BROKER,
            resource_name=THIS_BROKER,
            configs=[config(name=f"plug.in.{number}", value="x") for number in range(count)],
        )
        request = AlterConfigsRequest(resources=[resource])
        answer = broker.ask(request, 2)
        assert [one.error_code for one in decoded(request, 2, answer).responses] == [ErrorCode.NONE]
        assert answer.turns.are_short()


def test_a_list_setting_grows_at_most_to_the_longest_string_of_a_response(broker: WatchedBroker) -> None:
    def append(prefix: str) -> tuple[int, Turns]:
        value = ",".join(f"{number}:{prefix}" for number in range(3500))
        request = change(TOPIC, "t", [(LIST, APPEND, value)])
        answer = broker.ask(request, 1)
        return decoded(request, 1, answer).responses[0].error_code, answer.turns

    outcomes = [append(prefix) for prefix in ("0", "1", "2")]
    assert [code for code, _ in outcomes] == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_CONFIG]
    assert all(turns.are_short() for _, turns in outcomes)
    request = description_of(["t"], TOPIC)
    for resource in request.resources:
        resource.configuration_keys = [LIST]
    for version in (0, 4):
        (described,) = broker.response(request, version).results
        assert described.error_code == ErrorCode.NONE
        assert len(described.configs[0].value.split(",")) == 3500
    subtracted = change(TOPIC, "t", [(LIST, SUBTRACT, described.configs[0].value)])
    assert broker.ask(subtracted, 1).turns.are_short()


@pytest.mark.parametrize("config", [None, lambda number: str(number + 10_000)], ids=["defaults", "own settings"])
def test_thousands_of_new_topics_are_checked_in_steps(
    broker: WatchedBroker, config: Callable[[int], str] | None
) -> None:
    request = new_topics([f"name.{number}" for number in range(TOPICS)], config=config)
    answer = broker.ask(request, 7)
    assert answer.size > 500 * TOPICS, "each has its settings"
    assert answer.turns.are_short()


def test_common_data_of_new_topics_is_in_memory_once(broker: WatchedBroker) -> None:
    request = new_topics([f"name.{number}" for number in range(500)])
    memory = broker.memory_of(request, 7)
    assert memory.beyond_frame_and_answer < memory.answer


def test_colliding_names_in_one_request_are_refused(broker: WatchedBroker) -> None:
    created = broker.response(new_topics(["a.b", "a_b", "a-b", "a.b.c", "a_b.c"]), 7)
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE, invalid, *[ErrorCode.NONE] * 2, invalid]


def test_thousands_of_duplicate_topics_are_refused_in_steps(broker: WatchedBroker) -> None:
    names = [f"name.{number}" for number in range(5_000)] * 2
    request = new_topics(names)
    answer = broker.ask(request, 7)
    assert {topic.error_code for topic in decoded(request, 7, answer).topics} == {ErrorCode.INVALID_REQUEST}
    assert answer.turns.are_short()
    more = CreatePartitionsRequest.CreatePartitionsTopic
    partitions = CreatePartitionsRequest(topics=[more(name=name, count=1) for name in names], timeout_ms=60_000)
    answer = broker.ask(partitions, 3)
    assert len(decoded(partitions, 3, answer).results) == 5_000
    assert answer.turns.are_short()


def test_one_topic_deleted_by_thousands_of_items_is_deleted_in_steps(broker: WatchedBroker) -> None:
    broker.response(new_topics(["gone"], validate_only=False), 7)
    request = DeleteTopicsRequest(topic_names=["gone"] * DELETIONS, timeout_ms=60_000)
    answer = broker.ask(request, 5)
    assert {topic.error_code for topic in decoded(request, 5, answer).responses} == {ErrorCode.NONE}
    assert answer.turns.are_short()


def test_an_assignment_to_a_million_brokers_is_refused_with_a_short_message(broker: WatchedBroker) -> None:
    replicas = list(range(1_000_000))
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = NewTopic(name="assigned", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    creation = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    answer = broker.ask(creation, 7)
    (refused,) = decoded(creation, 7, answer).topics
    assert refused.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert len(refused.error_message) < 1000
    assert answer.turns.are_short()
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
    moved = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[partition])
    reassignment = AlterPartitionReassignmentsRequest(topics=[moved], timeout_ms=60_000)
    answer = broker.ask(reassignment, 0)
    (response,) = decoded(reassignment, 0, answer).responses
    assert response.partitions[0].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert answer.turns.are_short()


def test_producers_and_transactions_named_repeatedly_are_described_once(broker: WatchedBroker) -> None:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[0] * 4_000)
    producers = DescribeProducersRequest(topics=[topic] * 2)
    (described,) = broker.response(producers, 0).topics
    assert [partition.partition_index for partition in described.partitions] == [0]
    transactions = DescribeTransactionsRequest(transactional_ids=["x"] * 4_000)
    assert len(broker.response(transactions, 0).transaction_states) == 1
