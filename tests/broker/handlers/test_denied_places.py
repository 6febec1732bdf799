"""Where each API's response has a denial, and what comes before it. One broker, two of everything: one is closed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from odradek.broker.handlers.authorized_operations import ON_RESOURCE, bit_field
from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.broker.server import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from odradek.protocol.messages.client_quotas import DescribeClientQuotasRequest
from odradek.protocol.messages.cluster import DescribeClusterRequest
from odradek.protocol.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.delete_records import DeleteRecordsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest
from odradek.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from odradek.protocol.messages.list_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from odradek.protocol.messages.log_dirs import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.producers import DescribeProducersRequest, InitProducerIdRequest
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest, DescribeUserScramCredentialsRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from odradek.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from odradek.testing.loop_thread import LoopThread
from tests.base_requests import small_batch
from tests.broker.handlers.scripted_authorizer import (
    Question,
    Rule,
    ScriptedAuthorizer,
    broker_with,
    but,
    everything,
    only,
)
from tests.patience import block_until
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload, response_of

TOPIC_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
OPEN, CLOSED, ABSENT = "open", "closed", "absent"
NEITHER = "neither"
"""Denied, and it does not exist."""


def topic(operation: Op, name: str) -> Question:
    return Question(operation, On.TOPIC, name)


def group(operation: Op, name: str = "g") -> Question:
    return Question(operation, On.GROUP, name)


def transaction(operation: Op, name: str = "t") -> Question:
    return Question(operation, On.TRANSACTIONAL_ID, name)


def cluster(operation: Op) -> Question:
    return Question(operation, On.CLUSTER, CLUSTER_NAME)


def closed(operation: Op) -> Rule:
    """Everything except the operation on the topics `closed` and `neither`."""
    return but(topic(operation, CLOSED), topic(operation, NEITHER))


def made(cls: Any, **values: Any) -> Any:
    """A message whose structures are given as dicts."""
    fields = {field.attribute: field for field in cls.__schema__.fields}

    def value_of(name: str, value: Any) -> Any:
        inner = fields[name].struct_class
        if isinstance(value, dict):
            return made(inner, **value)
        if inner is not None and isinstance(value, list):
            return [made(inner, **element) for element in value]
        return value

    return cls(**{name: value_of(name, value) for name, value in values.items()})


def each_topic(*names: str, field: str = "name", partitions: str = "partitions", **partition: Any) -> list[Any]:
    """The array of topics of a request, each with partition 0."""
    inner: Any = [partition] if partition else [0]
    return [{field: name, partitions: inner} for name in names]


def codes(items: Any, name: str, inner: str = "", code: str = "error_code") -> dict[str, int]:
    """The error code of each item, or of the only element of its array `inner`, by the item's name."""
    return {getattr(each, name): getattr(getattr(each, inner)[0] if inner else each, code) for each in items}


ALL_NAMES = (OPEN, CLOSED, ABSENT, NEITHER)
EXPECTED = {
    OPEN: ErrorCode.NONE,
    CLOSED: TOPIC_DENIED,
    ABSENT: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    NEITHER: TOPIC_DENIED,
}
"""Whether a denied topic exists stays unknown."""


class Asked:
    """`asked(request, version, rule)` returns the response, decided by the rule; None if the connection ends."""

    def __init__(self, thread: LoopThread[Broker], authorizer: ScriptedAuthorizer) -> None:
        self.broker = thread.inside
        self.authorizer = authorizer

    def __call__(self, request: Message, version: int, rule: Rule = everything) -> Any:
        self.authorizer.change(rule)
        with RawClient(self.broker.bootstrap) as client:
            client.send(request_payload(request, version))
            try:
                return response_of(client.receive(), request, version)
            except ConnectionError:
                return None

    def until(self, request: Message, version: int, is_done: Callable[[Any], object]) -> Any:
        """Asks until the response is as wanted."""
        found: list[Any] = []

        def ask() -> bool:
            found[:] = [self(request, version)]
            return bool(is_done(found[0]))

        block_until(ask)
        return found[0]


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    authorizer = ScriptedAuthorizer()
    settings = {"auto.create.topics.enable": "true", "offsets.topic.num.partitions": "1", **ONE_REPLICA}
    thread = LoopThread(lambda: broker_with(authorizer, settings), name="broker with an authorizer")
    thread.start()
    try:
        asked = Asked(thread, authorizer)
        for name in (OPEN, CLOSED):
            request = made(
                CreateTopicsRequest,
                topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
                timeout_ms=9000,
            )
            assert asked(request, 7).topics[0].error_code == ErrorCode.NONE
            assert codes(asked(produce(name), 9).responses, "name", "partition_responses") == {name: ErrorCode.NONE}
        commit = offset_commit("g", OPEN, CLOSED)
        coordinator = made(FindCoordinatorRequest, coordinator_keys=["g"], key_type=0)
        asked.until(coordinator, 4, lambda found: found.coordinators[0].error_code == ErrorCode.NONE)
        asked.until(commit, 8, lambda found: set(codes(found.topics, "name", "partitions").values()) == {0})
        coordinator = made(FindCoordinatorRequest, coordinator_keys=["t"], key_type=1)
        asked.until(coordinator, 4, lambda found: found.coordinators[0].error_code == ErrorCode.NONE)
        yield asked
    finally:
        thread.stop()


ONE_REPLICA = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


# --- records --------------------------------------------------------------------------------------------------------


def produce(*names: str, records: bytes = b"", acks: int = 1, transactional_id: str | None = None) -> ProduceRequest:
    topics = [{"name": name, "partition_data": [{"index": 0, "records": records or small_batch()}]} for name in names]
    request: ProduceRequest = made(
        ProduceRequest, acks=acks, timeout_ms=9000, transactional_id=transactional_id, topic_data=topics
    )
    return request


def transactional_batch() -> bytes:
    record = Record(offset=0, timestamp=1000, key=None, value=b"v", headers=[])
    return bytes(build_batch([record], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))


def test_produce_answers_each_partition(asked: Asked) -> None:
    response = asked(produce(*ALL_NAMES), 9, closed(Op.WRITE))
    assert codes(response.responses, "name", "partition_responses") == EXPECTED
    denied = response.responses[-1].partition_responses[0]
    assert (denied.base_offset, denied.log_append_time_ms, denied.error_message) == (-1, -1, None)


def test_a_denied_produce_without_acks_ends_the_connection(asked: Asked) -> None:
    assert asked(produce(CLOSED, acks=0), 9, closed(Op.WRITE)) is None


def test_a_transactional_batch_needs_the_transactional_id(asked: Asked) -> None:
    transactional = produce(OPEN, CLOSED, records=transactional_batch(), transactional_id="t")
    both = dict.fromkeys((OPEN, CLOSED), TRANSACTION_DENIED)
    nameless = produce(OPEN, CLOSED, records=transactional_batch())
    response = asked(nameless, 9, closed(Op.WRITE))
    assert codes(response.responses, "name", "partition_responses") == both
    response = asked(transactional, 9, but(transaction(Op.WRITE), topic(Op.WRITE, CLOSED)))
    assert codes(response.responses, "name", "partition_responses") == both
    plain = produce(OPEN, transactional_id="t")
    response = asked(plain, 9, but(transaction(Op.WRITE)))
    assert codes(response.responses, "name", "partition_responses") == {OPEN: ErrorCode.NONE}
    silent = produce(OPEN, records=transactional_batch(), transactional_id="t", acks=0)
    assert asked(silent, 9, but(transaction(Op.WRITE))) is None


def fetch(*names: str, replica_id: int = -1, **more: Any) -> FetchRequest:
    topics = each_topic(*names, field="topic", partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request: FetchRequest = made(
        FetchRequest, replica_id=replica_id, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=1 << 20, topics=topics,
        session_epoch=-1, **more,
    )  # fmt: skip
    return request


@pytest.mark.parametrize("version", [4, 12])
def test_fetch_answers_each_partition_and_does_not_wait(asked: Asked, version: int) -> None:
    response = asked(fetch(*ALL_NAMES), version, closed(Op.READ))
    assert codes(response.responses, "topic", "partitions") == EXPECTED


def test_fetch_of_an_old_version_is_denied_before_it_is_unsupported(asked: Asked) -> None:
    response = asked(fetch(OPEN, CLOSED), 3, closed(Op.READ))
    expected = {OPEN: ErrorCode.UNSUPPORTED_VERSION, CLOSED: TOPIC_DENIED}
    assert codes(response.responses, "topic", "partitions") == expected


def test_fetch_by_id_is_denied_by_the_topics_name(asked: Asked) -> None:
    ids = {name: topic_id(asked, name) for name in (OPEN, CLOSED)}
    request = fetch()
    request.topics = [
        made(
            FetchRequest.FetchTopic,
            topic_id=each,
            partitions=[{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}],
        )
        for each in (*ids.values(), UUID(int=7))
    ]
    response = asked(request, 13, closed(Op.READ))
    assert {each.topic_id: each.partitions[0].error_code for each in response.responses} == {
        ids[OPEN]: ErrorCode.NONE,
        ids[CLOSED]: TOPIC_DENIED,
        UUID(int=7): ErrorCode.UNKNOWN_TOPIC_ID,
    }


def test_a_follower_needs_cluster_action_and_nothing_else(asked: Asked) -> None:
    denied = asked(fetch(OPEN, ABSENT, replica_id=5), 12, but(cluster(Op.CLUSTER_ACTION)))
    assert codes(denied.responses, "topic", "partitions") == dict.fromkeys((OPEN, ABSENT), TOPIC_DENIED)
    asked(fetch(ABSENT, replica_id=5), 12)
    assert asked.authorizer.asked[-1] == cluster(Op.CLUSTER_ACTION)
    assert topic(Op.READ, ABSENT) not in asked.authorizer.asked


@pytest.mark.parametrize("version", [0, 1, 9])
def test_list_offsets_answers_each_partition(asked: Asked, version: int) -> None:
    topics = each_topic(*ALL_NAMES, partition_index=0, timestamp=-1, max_num_offsets=1)
    response = asked(made(ListOffsetsRequest, replica_id=-1, topics=topics), version, closed(Op.DESCRIBE))
    assert codes(response.topics, "name", "partitions") == EXPECTED


def test_offset_for_leader_epoch_answers_each_partition_unless_brokers_ask(asked: Asked) -> None:
    topics = each_topic(*ALL_NAMES, field="topic", partition=0, current_leader_epoch=-1, leader_epoch=0)
    request = made(OffsetForLeaderEpochRequest, replica_id=-1, topics=topics)
    rule = but(cluster(Op.CLUSTER_ACTION), topic(Op.DESCRIBE, CLOSED), topic(Op.DESCRIBE, NEITHER))
    assert codes(asked(request, 3, rule).topics, "topic", "partitions") == EXPECTED
    response = asked(request, 3, closed(Op.DESCRIBE))
    assert codes(response.topics, "topic", "partitions")[CLOSED] == ErrorCode.NONE


def test_delete_records_answers_each_partition(asked: Asked) -> None:
    topics = each_topic(*ALL_NAMES, partition_index=0, offset=0)
    response = asked(made(DeleteRecordsRequest, topics=topics, timeout_ms=9000), 2, closed(Op.DELETE))
    assert codes(response.topics, "name", "partitions") == EXPECTED
    assert {each.name: each.partitions[0].low_watermark for each in response.topics}[CLOSED] == -1


def test_describe_producers_answers_each_partition_behind_an_invalid_name(asked: Asked) -> None:
    topics = each_topic(*ALL_NAMES, "not a name", partitions="partition_indexes")
    response = asked(made(DescribeProducersRequest, topics=topics), 0, closed(Op.READ))
    expected = {**EXPECTED, "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert codes(response.topics, "name", "partitions") == expected
    assert response.topics[1].partitions[0].error_message == TOPIC_DENIED.message


# --- topics ---------------------------------------------------------------------------------------------------------


def topic_id(asked: Asked, name: str) -> Any:
    return asked(metadata(name), 12).topics[0].topic_id


def metadata(*names: str, **more: Any) -> MetadataRequest:
    request: MetadataRequest = made(
        MetadataRequest, topics=[{"name": name} for name in names], **{"allow_auto_topic_creation": False, **more}
    )
    return request


def test_metadata_hides_whether_a_denied_topic_exists(asked: Asked) -> None:
    response = asked(metadata(*ALL_NAMES), 12, closed(Op.DESCRIBE))
    assert codes(response.topics, "name") == EXPECTED
    assert {each.topic_id for each in response.topics if each.error_code} == {UUID(int=0)}
    assert not any(each.partitions for each in response.topics if each.error_code)


def test_metadata_by_id_hides_the_name_of_a_denied_topic(asked: Asked) -> None:
    denied = topic_id(asked, CLOSED)
    request = made(MetadataRequest, topics=[{"topic_id": denied, "name": None}], allow_auto_topic_creation=False)
    (found,) = asked(request, 12, closed(Op.DESCRIBE)).topics
    assert (found.error_code, found.name, found.topic_id) == (TOPIC_DENIED, None, denied)


@pytest.mark.parametrize("version", [0, 1, 12])
def test_metadata_of_all_topics_lists_those_that_may_be_described(asked: Asked, version: int) -> None:
    request = made(MetadataRequest, topics=None if version else [])
    names = {each.name for each in asked(request, version, but(topic(Op.DESCRIBE, CLOSED))).topics}
    assert OPEN in names
    assert CLOSED not in names
    assert CLOSED in {each.name for each in asked(request, version).topics}


def test_metadata_creates_a_topic_for_who_may_create_it(asked: Asked) -> None:
    request = metadata("wanted", allow_auto_topic_creation=True)
    no_cluster = cluster(Op.CREATE)
    denied = asked(request, 9, but(no_cluster, topic(Op.CREATE, "wanted")))
    assert codes(denied.topics, "name") == {"wanted": TOPIC_DENIED}
    assert codes(asked(metadata("wanted"), 9).topics, "name") == {"wanted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert asked(request, 9, but(no_cluster)).topics[0].error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    asked.until(metadata("wanted"), 9, lambda found: found.topics[0].error_code == 0)


def test_metadata_shows_the_operations_that_are_allowed(asked: Asked) -> None:
    request = metadata(OPEN, include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
    response = asked(request, 8, only((Op.DESCRIBE, On.TOPIC), (Op.READ, On.TOPIC)))
    assert response.topics[0].topic_authorized_operations == bit_field(Op.DESCRIBE, Op.READ)
    assert response.cluster_authorized_operations == 0
    response = asked(request, 8)
    assert response.topics[0].topic_authorized_operations == bit_field(*ON_RESOURCE[On.TOPIC])
    assert response.cluster_authorized_operations == bit_field(*ON_RESOURCE[On.CLUSTER])


def test_describe_cluster_shows_no_operations_to_who_may_not_describe_it(asked: Asked) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = asked(request, 1, but(cluster(Op.DESCRIBE)))
    assert (response.error_code, response.cluster_authorized_operations) == (ErrorCode.NONE, 0)
    response = asked(request, 1, but(cluster(Op.ALTER)))
    allowed = [operation for operation in ON_RESOURCE[On.CLUSTER] if operation != Op.ALTER]
    assert response.cluster_authorized_operations == bit_field(*allowed)


def create_topics(*names: str, **more: Any) -> CreateTopicsRequest:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    request: CreateTopicsRequest = made(CreateTopicsRequest, topics=topics, timeout_ms=9000, **more)
    return request


def test_create_topics_needs_create_on_the_cluster_or_the_topic(asked: Asked) -> None:
    denied = [cluster(Op.CREATE), topic(Op.CREATE, CLOSED), topic(Op.CREATE, NEITHER)]
    response = asked(create_topics(CLOSED, NEITHER, "fresh"), 7, but(*denied))
    assert codes(response.topics, "name") == {CLOSED: TOPIC_DENIED, NEITHER: TOPIC_DENIED, "fresh": ErrorCode.NONE}
    assert response.topics[0].error_message == TOPIC_DENIED.message
    assert response.topics[0].topic_config_error_code == ErrorCode.NONE
    response = asked(create_topics("fresher"), 7, but(topic(Op.CREATE, "fresher")))
    assert codes(response.topics, "name") == {"fresher": ErrorCode.NONE}


def test_create_topics_finds_repeated_topics_before_it_denies_them(asked: Asked) -> None:
    response = asked(create_topics(NEITHER, NEITHER), 7, but(cluster(Op.CREATE), topic(Op.CREATE, NEITHER)))
    assert [each.error_code for each in response.topics] == [ErrorCode.INVALID_REQUEST] * 2


def test_create_topics_hides_settings_from_who_may_not_see_them(asked: Asked) -> None:
    hidden = [topic(Op.DESCRIBE_CONFIGS, name) for name in ("hidden", OPEN, NEITHER)]
    rule = but(*hidden, cluster(Op.CREATE), topic(Op.CREATE, NEITHER))
    created, existing, denied = asked(create_topics("hidden", OPEN, NEITHER), 7, rule).topics
    assert (created.error_code, created.topic_config_error_code) == (ErrorCode.NONE, TOPIC_DENIED)
    assert (created.num_partitions, created.replication_factor, created.configs) == (-1, -1, [])
    assert created.topic_id == UUID(int=0)
    assert (existing.error_code, existing.topic_config_error_code) == (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE)
    assert (denied.error_code, denied.topic_config_error_code) == (TOPIC_DENIED, TOPIC_DENIED)


def test_delete_topics_hides_whether_a_denied_topic_exists(asked: Asked) -> None:
    request = made(DeleteTopicsRequest, topic_names=[CLOSED, ABSENT, NEITHER], timeout_ms=9000)
    response = asked(request, 5, closed(Op.DELETE))
    assert codes(response.responses, "name") == {name: EXPECTED[name] for name in (CLOSED, ABSENT, NEITHER)}
    assert asked(metadata(CLOSED), 12).topics[0].error_code == ErrorCode.NONE


def test_delete_topics_by_id_names_the_topic_only_to_who_may_describe_it(asked: Asked) -> None:
    denied = topic_id(asked, CLOSED)
    request = made(DeleteTopicsRequest, topics=[{"name": None, "topic_id": denied}], timeout_ms=9000)
    (found,) = asked(request, 6, closed(Op.DELETE)).responses
    assert (found.error_code, found.name, found.topic_id) == (TOPIC_DENIED, CLOSED, denied)
    (found,) = asked(request, 6, but(topic(Op.DESCRIBE, CLOSED))).responses
    assert (found.error_code, found.name, found.topic_id) == (TOPIC_DENIED, None, denied)


def test_create_partitions_answers_each_topic_behind_repeated_ones(asked: Asked) -> None:
    names = (CLOSED, NEITHER, ABSENT, "twice", "twice")
    topics = [{"name": name, "count": 2} for name in names]
    request = made(CreatePartitionsRequest, topics=topics, timeout_ms=9000)
    denied = [topic(Op.ALTER, name) for name in (CLOSED, NEITHER, "twice")]
    response = asked(request, 3, but(*denied))
    assert codes(response.results, "name") == {
        CLOSED: TOPIC_DENIED,
        NEITHER: TOPIC_DENIED,
        ABSENT: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "twice": ErrorCode.INVALID_REQUEST,
    }


# --- groups ---------------------------------------------------------------------------------------------------------


def offset_commit(group_id: str, *names: str) -> OffsetCommitRequest:
    topics = each_topic(*names, partition_index=0, committed_offset=1, committed_leader_epoch=-1)
    request: OffsetCommitRequest = made(
        OffsetCommitRequest, group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return request


@pytest.mark.parametrize("version", [0, 8])
def test_offset_commit_answers_each_partition(asked: Asked, version: int) -> None:
    response = asked(offset_commit("g", *ALL_NAMES), version, closed(Op.READ))
    assert codes(response.topics, "name", "partitions") == EXPECTED
    response = asked(offset_commit("g", OPEN, ABSENT), version, but(group(Op.READ), topic(Op.READ, OPEN)))
    assert codes(response.topics, "name", "partitions") == dict.fromkeys((OPEN, ABSENT), GROUP_DENIED)


def test_offset_fetch_answers_each_group_and_each_partition(asked: Asked) -> None:
    topics = each_topic(OPEN, CLOSED, NEITHER, partitions="partition_indexes")
    groups = [{"group_id": "g", "topics": topics}, {"group_id": "other", "topics": topics}]
    rule = but(group(Op.DESCRIBE, "other"), topic(Op.DESCRIBE, CLOSED), topic(Op.DESCRIBE, NEITHER))
    found, denied = asked(made(OffsetFetchRequest, groups=groups), 8, rule).groups
    assert codes(found.topics, "name", "partitions") == {
        OPEN: ErrorCode.NONE,
        CLOSED: TOPIC_DENIED,
        NEITHER: TOPIC_DENIED,
    }
    assert [each.partitions[0].committed_offset for each in found.topics] == [1, -1, -1]
    assert (denied.error_code, denied.topics) == (GROUP_DENIED, [])


def test_offset_fetch_of_all_topics_leaves_out_denied_ones(asked: Asked) -> None:
    request = made(OffsetFetchRequest, groups=[{"group_id": "g", "topics": None}])
    (found,) = asked(request, 8, closed(Op.DESCRIBE)).groups
    assert codes(found.topics, "name", "partitions") == {OPEN: ErrorCode.NONE}


@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_offset_fetch_of_one_group(asked: Asked, version: int) -> None:
    topics = each_topic(OPEN, CLOSED, partitions="partition_indexes")
    request = made(OffsetFetchRequest, group_id="g", topics=topics)
    response = asked(request, version, but(group(Op.DESCRIBE)))
    if version < 2:
        assert codes(response.topics, "name", "partitions") == dict.fromkeys((OPEN, CLOSED), GROUP_DENIED)
    else:
        assert (response.error_code, response.topics) == (GROUP_DENIED, [])
    response = asked(request, version, closed(Op.DESCRIBE))
    assert codes(response.topics, "name", "partitions")[CLOSED] == TOPIC_DENIED


@pytest.mark.parametrize(
    ("key_type", "denied", "code"),
    [
        (0, Question(Op.DESCRIBE, On.GROUP, "k"), GROUP_DENIED),
        (1, Question(Op.DESCRIBE, On.TRANSACTIONAL_ID, "k"), TRANSACTION_DENIED),
        (2, Question(Op.CLUSTER_ACTION, On.CLUSTER, CLUSTER_NAME), CLUSTER_DENIED),
    ],
)
def test_find_coordinator_answers_each_key(asked: Asked, key_type: int, denied: Question, code: ErrorCode) -> None:
    request = made(FindCoordinatorRequest, key_type=key_type, coordinator_keys=["k", "l"])
    first, second = asked(request, 6, but(denied)).coordinators
    assert (first.key, first.error_code, first.node_id) == ("k", code, -1)
    assert second.error_code in (code, ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (second.error_code == code) is (key_type == 2)


def test_find_coordinator_of_an_old_version_answers_with_one_error(asked: Asked) -> None:
    response = asked(made(FindCoordinatorRequest, key="g", key_type=0), 3, but(group(Op.DESCRIBE)))
    assert (response.error_code, response.error_message) == (GROUP_DENIED, GROUP_DENIED.message)
    response = asked(made(FindCoordinatorRequest, key="g", key_type=2), 5)
    assert asked(made(FindCoordinatorRequest, coordinator_keys=["g"], key_type=2), 5).coordinators[0].error_code == 42


class Member(NamedTuple):
    request: Message
    version: int


MEMBERS = [
    Member(
        made(
            JoinGroupRequest,
            group_id="g",
            session_timeout_ms=9000,
            rebalance_timeout_ms=9000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b""}],
        ),
        5,
    ),
    Member(
        SyncGroupRequest(group_id="g", generation_id=1, member_id="m", protocol_type="consumer", protocol_name="range"),
        5,
    ),
    Member(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    Member(made(LeaveGroupRequest, group_id="g", members=[{"member_id": "m"}]), 5),
]


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: type(member.request).__name__)
def test_membership_is_denied_as_a_whole(asked: Asked, member: Member) -> None:
    assert asked(*member, but(group(Op.READ))).error_code == GROUP_DENIED
    response = asked(*member)
    assert response.error_code != GROUP_DENIED


def test_a_denied_join_has_no_protocol(asked: Asked) -> None:
    join = MEMBERS[0].request
    for version, protocol in ((5, ""), (7, None)):
        response = asked(join, version, but(group(Op.READ)))
        assert (response.protocol_name, response.member_id, response.generation_id) == (protocol, "", -1)


def test_sync_group_names_its_protocol_before_it_is_denied(asked: Asked) -> None:
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id="m")
    assert asked(request, 5, but(group(Op.READ))).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_describe_groups_answers_each_group_and_shows_operations(asked: Asked) -> None:
    request = DescribeGroupsRequest(groups=["g", "other"], include_authorized_operations=True)
    response = asked(request, 5, but(group(Op.DESCRIBE, "other"), group(Op.DELETE)))
    assert codes(response.groups, "group_id") == {"g": ErrorCode.NONE, "other": GROUP_DENIED}
    operations = {each.group_id: each.authorized_operations for each in response.groups}
    assert operations == {"g": bit_field(Op.READ, Op.DESCRIBE), "other": -(2**31)}


def test_list_groups_lists_those_that_may_be_described(asked: Asked) -> None:
    for denied, listed in ((group(Op.DESCRIBE), False), (group(Op.DESCRIBE, "other"), True)):
        response = asked(ListGroupsRequest(), 4, but(cluster(Op.DESCRIBE), denied))
        assert response.error_code == ErrorCode.NONE
        assert ("g" in {each.group_id for each in response.groups}) is listed
    response = asked(ListGroupsRequest(), 4, but(group(Op.DESCRIBE)))
    assert "g" in {each.group_id for each in response.groups}


def test_delete_groups_answers_each_group(asked: Asked) -> None:
    response = asked(DeleteGroupsRequest(groups_names=["g", "none"]), 2, but(group(Op.DELETE)))
    assert codes(response.results, "group_id") == {"g": GROUP_DENIED, "none": ErrorCode.GROUP_ID_NOT_FOUND}


def test_offset_delete_answers_the_group_and_each_partition(asked: Asked) -> None:
    request = made(OffsetDeleteRequest, group_id="g", topics=each_topic(CLOSED, ABSENT, NEITHER, partition_index=0))
    response = asked(request, 0, but(group(Op.DELETE)))
    assert (response.error_code, response.topics) == (GROUP_DENIED, [])
    response = asked(request, 0, closed(Op.READ))
    assert response.error_code == ErrorCode.NONE
    expected = {name: EXPECTED[name] for name in (CLOSED, ABSENT, NEITHER)}
    assert codes(response.topics, "name", "partitions") == expected


# --- transactions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ([transaction(Op.WRITE), group(Op.READ)], dict.fromkeys((OPEN, CLOSED), TRANSACTION_DENIED)),
        ([group(Op.READ), topic(Op.READ, CLOSED)], dict.fromkeys((OPEN, CLOSED), GROUP_DENIED)),
    ],
)
def test_txn_offset_commit_answers_each_partition(
    asked: Asked, denied: list[Question], expected: dict[str, int]
) -> None:
    response = asked(txn_offset_commit(OPEN, CLOSED), 3, but(*denied))
    assert codes(response.topics, "name", "partitions") == expected


def test_txn_offset_commit_denies_single_topics(asked: Asked) -> None:
    found = codes(asked(txn_offset_commit(OPEN, CLOSED), 3, closed(Op.READ)).topics, "name", "partitions")
    assert found[CLOSED] == TOPIC_DENIED
    assert found[OPEN] != TOPIC_DENIED


def txn_offset_commit(*names: str) -> TxnOffsetCommitRequest:
    topics = each_topic(*names, partition_index=0, committed_offset=1)
    request: TxnOffsetCommitRequest = made(
        TxnOffsetCommitRequest,
        transactional_id="t",
        group_id="g",
        producer_id=1,
        producer_epoch=0,
        generation_id=-1,
        member_id="",
        topics=topics,
    )
    return request


def test_init_producer_id_with_a_transactional_id(asked: Asked) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=9000)
    response = asked(request, 4, but(transaction(Op.WRITE)))
    assert (response.error_code, response.producer_id) == (TRANSACTION_DENIED, -1)


def test_who_may_write_to_some_topic_may_write_idempotently(asked: Asked) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=9000)
    some = Question(Op.WRITE, On.TOPIC, "")
    assert asked(request, 4, but(cluster(Op.IDEMPOTENT_WRITE), some)).error_code == CLUSTER_DENIED
    assert asked(request, 4, but(cluster(Op.IDEMPOTENT_WRITE))).error_code == ErrorCode.NONE
    assert asked(request, 4, but(some)).error_code == ErrorCode.NONE


def add_partitions(*names: str) -> AddPartitionsToTxnRequest:
    request: AddPartitionsToTxnRequest = made(
        AddPartitionsToTxnRequest,
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=each_topic(*names),
    )
    return request


def test_add_partitions_to_txn_adds_none_if_one_is_denied(asked: Asked) -> None:
    place = ("name", "results_by_partition", "partition_error_code")
    response = asked(add_partitions(*ALL_NAMES), 3, closed(Op.WRITE))
    expected = {**EXPECTED, OPEN: ErrorCode.OPERATION_NOT_ATTEMPTED}
    assert codes(response.results_by_topic_v3_and_below, *place) == expected
    response = asked(add_partitions(OPEN), 3, but(transaction(Op.WRITE), topic(Op.WRITE, OPEN)))
    assert codes(response.results_by_topic_v3_and_below, *place) == {OPEN: TRANSACTION_DENIED}


def test_clients_may_not_add_internal_topics_to_transactions(asked: Asked) -> None:
    response = asked(add_partitions("__consumer_offsets"), 3)
    (found,) = response.results_by_topic_v3_and_below
    assert found.results_by_partition[0].partition_error_code == TOPIC_DENIED


def test_add_partitions_of_several_transactions_needs_cluster_action(asked: Asked) -> None:
    transactions = [
        {"transactional_id": "t", "producer_id": 1, "producer_epoch": 0, "topics": each_topic(OPEN)},
    ]
    request = made(AddPartitionsToTxnRequest, transactions=transactions)
    response = asked(request, 4, but(cluster(Op.CLUSTER_ACTION)))
    assert (response.error_code, response.results_by_transaction) == (CLUSTER_DENIED, [])
    response = asked(request, 4, only((Op.CLUSTER_ACTION, On.CLUSTER)))
    assert response.error_code == ErrorCode.NONE


def test_add_offsets_and_end_of_a_transaction_are_denied_as_a_whole(asked: Asked) -> None:
    adding = AddOffsetsToTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, group_id="g")
    assert asked(adding, 3, but(transaction(Op.WRITE), group(Op.READ))).error_code == TRANSACTION_DENIED
    assert asked(adding, 3, but(group(Op.READ))).error_code == GROUP_DENIED
    ending = EndTxnRequest(transactional_id="t", producer_id=1, producer_epoch=0, committed=True)
    assert asked(ending, 3, but(transaction(Op.WRITE))).error_code == TRANSACTION_DENIED


def test_write_txn_markers_needs_alter_or_cluster_action(asked: Asked) -> None:
    marker = {
        "producer_id": 9,
        "producer_epoch": 0,
        "transaction_result": False,
        "topics": each_topic(OPEN, partitions="partition_indexes"),
        "coordinator_epoch": 0,
    }
    request = made(WriteTxnMarkersRequest, markers=[marker])
    (denied,) = asked(request, 1, but(cluster(Op.ALTER), cluster(Op.CLUSTER_ACTION))).markers
    assert codes(denied.topics, "name", "partitions") == {OPEN: CLUSTER_DENIED}
    for one in (Op.ALTER, Op.CLUSTER_ACTION):
        (written,) = asked(request, 1, but(cluster(one))).markers
        assert codes(written.topics, "name", "partitions")[OPEN] != CLUSTER_DENIED


def test_transactions_and_their_topics_are_described_to_who_may_know_them(asked: Asked) -> None:
    init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=9000)
    begun = asked.until(init, 4, lambda found: found.error_code == ErrorCode.NONE)
    adding = add_partitions(OPEN, CLOSED)
    adding.v3_and_below_producer_id, adding.v3_and_below_producer_epoch = begun.producer_id, begun.producer_epoch
    place = ("name", "results_by_partition", "partition_error_code")
    asked.until(adding, 3, lambda found: not any(codes(found.results_by_topic_v3_and_below, *place).values()))
    request = DescribeTransactionsRequest(transactional_ids=["t"])
    (state,) = asked(request, 0, but(transaction(Op.DESCRIBE))).transaction_states
    assert (state.error_code, state.topics, state.producer_id) == (TRANSACTION_DENIED, [], 0)
    (state,) = asked(request, 0, closed(Op.DESCRIBE)).transaction_states
    assert (state.error_code, [each.topic for each in state.topics]) == (ErrorCode.NONE, [OPEN])
    listed = asked(ListTransactionsRequest(), 0, but(transaction(Op.DESCRIBE)))
    assert (listed.error_code, listed.transaction_states) == (ErrorCode.NONE, [])
    assert [each.transactional_id for each in asked(ListTransactionsRequest(), 0).transaction_states] == ["t"]


# --- settings, log directories, users, ACLs, reassignments ----------------------------------------------------------

TOPIC, BROKER, LOGGER = 2, 4, 8


def resources(asked: Asked, *kinds: tuple[int, str], **configs: Any) -> list[Any]:
    return [{"resource_type": kind, "resource_name": name, **configs} for kind, name in kinds]


def test_describe_configs_answers_each_resource(asked: Asked) -> None:
    own = str(asked.broker.broker_id)
    kinds = [(TOPIC, OPEN), (TOPIC, CLOSED), (TOPIC, NEITHER), (BROKER, own), (LOGGER, own)]
    request = made(DescribeConfigsRequest, resources=resources(asked, *kinds, configuration_keys=None))
    denied = [topic(Op.DESCRIBE_CONFIGS, CLOSED), topic(Op.DESCRIBE_CONFIGS, NEITHER), cluster(Op.DESCRIBE_CONFIGS)]
    results = asked(request, 4, but(*denied)).results
    found = {(each.resource_type, each.resource_name): each for each in results}
    assert {key: each.error_code for key, each in found.items()} == {
        (TOPIC, OPEN): ErrorCode.NONE,
        (TOPIC, CLOSED): TOPIC_DENIED,
        (TOPIC, NEITHER): TOPIC_DENIED,
        (BROKER, own): CLUSTER_DENIED,
        (LOGGER, own): CLUSTER_DENIED,
    }
    refused = found[(BROKER, own)]
    assert (refused.configs, refused.error_message) == ([], CLUSTER_DENIED.message)


@pytest.mark.parametrize("request_class", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
def test_altering_configs_answers_each_resource(asked: Asked, request_class: Any) -> None:
    own = str(asked.broker.broker_id)
    kinds = [(TOPIC, CLOSED), (TOPIC, NEITHER), (BROKER, own), (BROKER, "77"), (TOPIC, "twice"), (TOPIC, "twice")]
    configs: list[Any] = []
    request = made(request_class, resources=resources(asked, *kinds, configs=configs), validate_only=False)
    denied = [topic(Op.ALTER_CONFIGS, name) for name in (CLOSED, NEITHER, "twice")]
    response = asked(request, 1, but(*denied, cluster(Op.ALTER_CONFIGS)))
    assert [each.error_code for each in response.responses] == [
        TOPIC_DENIED,
        TOPIC_DENIED,
        CLUSTER_DENIED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert {each.error_message for each in response.responses[:3]} == {None}


def test_log_levels_belong_to_the_cluster(asked: Asked) -> None:
    kinds = [(LOGGER, str(asked.broker.broker_id)), (LOGGER, "77")]
    request = made(IncrementalAlterConfigsRequest, resources=resources(asked, *kinds, configs=[]))
    response = asked(request, 1, but(cluster(Op.ALTER_CONFIGS)))
    assert [each.error_code for each in response.responses] == [CLUSTER_DENIED] * 2
    assert response.responses[0].error_message is None


def test_log_directories(asked: Asked) -> None:
    moving = made(AlterReplicaLogDirsRequest, dirs=[{"path": "/elsewhere", "topics": each_topic(OPEN)}])
    response = asked(moving, 2, but(cluster(Op.ALTER)))
    assert codes(response.results, "topic_name", "partitions") == {OPEN: CLUSTER_DENIED}
    response = asked(DescribeLogDirsRequest(topics=None), 4, but(cluster(Op.DESCRIBE)))
    assert (response.error_code, response.results) == (CLUSTER_DENIED, [])


def test_quotas(asked: Asked) -> None:
    response = asked(DescribeClientQuotasRequest(), 1, but(cluster(Op.DESCRIBE_CONFIGS)))
    assert (response.error_code, response.error_message, response.entries) == (
        CLUSTER_DENIED,
        CLUSTER_DENIED.message,
        None,
    )


def test_users(asked: Asked) -> None:
    response = asked(DescribeUserScramCredentialsRequest(users=None), 0, but(cluster(Op.DESCRIBE)))
    assert (response.error_code, response.error_message) == (CLUSTER_DENIED, CLUSTER_DENIED.message)
    describing = made(DescribeUserScramCredentialsRequest, users=[{"name": "alice"}])
    response = asked(describing, 0, but(cluster(Op.DESCRIBE)))
    assert response.error_code == CLUSTER_DENIED
    assert codes(response.results, "user") == {"": CLUSTER_DENIED}  # as Kafka answers
    deletions = [{"name": "alice", "mechanism": 1}, {"name": "bob", "mechanism": 1}]
    altering = made(AlterUserScramCredentialsRequest, deletions=deletions, upsertions=[])
    response = asked(altering, 0, but(cluster(Op.ALTER)))
    assert codes(response.results, "user") == {"alice": CLUSTER_DENIED, "bob": CLUSTER_DENIED}


ANY_ACL = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}
AN_ACL = {
    "resource_type": 2,
    "resource_name": OPEN,
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
WHO = "User:ANONYMOUS from host 127.0.0.1 needs"


def test_acls_name_who_is_denied(asked: Asked) -> None:
    response = asked(made(DescribeAclsRequest, **ANY_ACL), 3, but(cluster(Op.DESCRIBE)))
    assert response.error_code == CLUSTER_DENIED
    assert f"{WHO} DESCRIBE for DESCRIBE_ACLS" in response.error_message
    (result,) = asked(made(CreateAclsRequest, creations=[AN_ACL]), 3, but(cluster(Op.ALTER))).results
    assert result.error_code == CLUSTER_DENIED
    assert f"{WHO} ALTER for CREATE_ACLS" in result.error_message
    (result,) = asked(made(DeleteAclsRequest, filters=[ANY_ACL]), 3, but(cluster(Op.ALTER))).filter_results
    assert result.error_code == CLUSTER_DENIED
    assert f"{WHO} ALTER for DELETE_ACLS" in result.error_message


def test_elections_and_reassignments(asked: Asked) -> None:
    electing = made(ElectLeadersRequest, topic_partitions=each_topic(OPEN, field="topic"), timeout_ms=9000)
    response = asked(electing, 2, but(cluster(Op.ALTER)))
    assert response.error_code == CLUSTER_DENIED
    assert codes(response.replica_election_results, "topic", "partition_result") == {OPEN: CLUSTER_DENIED}
    assert response.replica_election_results[0].partition_result[0].error_message is None
    topics = each_topic(OPEN, partition_index=0, replicas=[0])
    reassigning = made(AlterPartitionReassignmentsRequest, topics=topics, timeout_ms=9000)
    response = asked(reassigning, 0, but(cluster(Op.ALTER)))
    assert response.error_code == CLUSTER_DENIED
    assert f"{WHO} ALTER" in response.error_message
    assert codes(response.responses, "name", "partitions") == {OPEN: CLUSTER_DENIED}
    response = asked(ListPartitionReassignmentsRequest(topics=None), 0, but(cluster(Op.DESCRIBE)))
    assert (response.error_code, response.topics) == (CLUSTER_DENIED, [])
    assert f"{WHO} DESCRIBE" in response.error_message
    listing = made(ListPartitionReassignmentsRequest, topics=each_topic(OPEN, partitions="partition_indexes"))
    response = asked(listing, 0, but(cluster(Op.DESCRIBE)))
    assert [(each.name, each.partitions[0].replicas) for each in response.topics] == [(OPEN, [])]
