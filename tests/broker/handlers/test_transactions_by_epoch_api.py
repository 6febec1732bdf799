"""Transactions of version 2 over a socket: Produce 12 and 13, TxnOffsetCommit 5 and 6, EndTxn 5, WriteTxnMarkers 2."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.features.features import TRANSACTION_VERSION
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.features import UpdateFeaturesRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.transactions import EndTxnRequest, TxnOffsetCommitRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import AclOperation as Op
from odradek.protocol.wire_codes import AclResourceType as On
from odradek.protocol.wire_codes import UpgradeType
from tests.broker.handlers.scripted_authorizer import Question, ScriptedAuthorizer, api_with, but, everything
from tests.broker.handlers.test_consumer_groups_api import join
from tests.broker.handlers.test_transactions_api import (
    SMALL,
    Producer,
    add,
    describe,
    end,
    last_stable_and_end,
    new_producer,
    prepare,
    write_markers,
)
from tests.broker.replica.test_over_sockets import client_of
from tests.patience import until
from tests.wire import requests
from tests.wire.api import Api, api_of_a_broker

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
NOBODY = UUID(int=77)


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with api_of_a_broker(SMALL) as api:
        await prepare(api)
        yield api


def topic_id(api: Api) -> UUID:
    return api.broker.metadata.topic_id("orders")


def producing(
    api: Api, producer: Producer, version: int, partition: int = 0, sequence: int = 0, **of_topic: Any
) -> ProduceRequest:
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"v")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    named = {"topic_id": topic_id(api)} if version >= 13 else {"name": "orders"}
    topic = ProduceRequest.TopicProduceData(**{**named, **of_topic}, partition_data=[data])
    return ProduceRequest(transactional_id="t", acks=-1, timeout_ms=30_000, topic_data=[topic])


async def produce(api: Api, producer: Producer, version: int = 12, partition: int = 0, sequence: int = 0) -> int:
    answer = await api(producing(api, producer, version, partition, sequence), version)
    (topic,) = answer.responses
    if version >= 13:
        assert topic.topic_id == topic_id(api)
    return int(topic.partition_responses[0].error_code)


async def end_epoch(api: Api, producer: Producer, committed: bool = True) -> Any:
    """The error code, or the next producer."""
    request = EndTxnRequest(
        transactional_id="t", producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )
    answer = await api(request, 5)
    return (answer.producer_id, answer.producer_epoch) if answer.error_code == 0 else answer.error_code


async def state(api: Api) -> str:
    return str((await describe(api, "t"))[0].transaction_state)


def of_epoch(producer: Producer, epoch: int) -> Producer:
    return producer[0], epoch


@pytest.mark.parametrize("version", [12, 13])
async def test_transactions_follow_each_other_without_adding_partitions(api: Api, version: int) -> None:
    producer = await new_producer(api)
    for number in range(4):
        committed = number != 2
        for partition in (0, 1):
            assert await produce(api, producer, version, partition) == 0
            assert await produce(api, producer, version, partition, 1) == 0
        following = await end_epoch(api, producer, committed)
        assert following == of_epoch(producer, number + 1)
        producer = following
    await until(lambda: api.broker.coordinators.transactions.markers.pending == 0)
    assert await last_stable_and_end(api) == (12, 12)
    request = requests.fetch((TopicPartition("orders", 0), 6), isolation_level=1)
    (aborted,) = (await api(request, 11)).responses[0].partitions[0].aborted_transactions
    assert (aborted.producer_id, aborted.first_offset) == (producer[0], 6)


async def test_a_partition_is_added_once(api: Api) -> None:
    producer = await new_producer(api)
    log = api.broker.coordinators.transactions.shards()[0]
    assert await produce(api, producer) == 0
    assert [topic.topic for topic in (await describe(api, "t"))[0].topics] == ["orders"]
    before = log.transactions["t"].update_ms
    for sequence in range(1, 5):
        assert await produce(api, producer, 12, 0, sequence) == 0
    assert log.transactions["t"].update_ms == before


async def test_a_batch_of_the_transaction_before_cannot_enter_the_next(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    following = await end_epoch(api, producer)
    assert await produce(api, following) == 0
    assert await produce(api, producer, 12, 0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await produce(api, producer, 12, 1, 0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await end_epoch(api, following) == of_epoch(producer, 2)
    assert await last_stable_and_end(api) == (4, 4)
    assert await last_stable_and_end(api, 1) == (0, 0)


async def test_a_new_producer_begins_with_sequence_0(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer, 12, 0, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await produce(api, producer) == 0


async def test_strangers_are_refused(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, (producer[0] + 1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await produce(api, of_epoch(producer, 1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await end_epoch(api, (producer[0] + 1, 0)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await end_epoch(api, of_epoch(producer, 3), False) == ErrorCode.PRODUCER_FENCED
    assert await end_epoch(api, producer) == ErrorCode.INVALID_TXN_STATE
    assert await state(api) == "Empty"


async def test_old_and_new_requests_take_turns(api: Api) -> None:
    producer = await new_producer(api)
    await add(api, producer)
    assert await produce(api, producer, 11) == 0
    assert await end(api, producer) == 0
    assert await produce(api, producer, 12, 0, 1) == 0
    following = await end_epoch(api, producer)
    assert following == of_epoch(producer, 1)
    assert await produce(api, following, 11) == ErrorCode.TRANSACTION_ABORTABLE, "nobody has added the partition"
    await add(api, following)
    assert await produce(api, following, 11) == 0
    assert await end(api, following, False) == 0
    assert await last_stable_and_end(api) == (6, 6)


# While the end of the transaction before is pending


class HeldMarkers:
    """Markers wait until `release`."""

    def __init__(self, api: Api) -> None:
        self.writer = api.broker.coordinators._own_logs
        self.append, self.held = self.writer._append, list[Any]()
        self.writer._append = lambda *arguments: self.held.append(arguments)

    def release(self) -> None:
        self.writer._append = self.append
        for arguments in self.held:
            self.append(*arguments)


async def test_a_batch_waits_for_the_markers_of_the_transaction_before(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    held = HeldMarkers(api)
    following = await end_epoch(api, producer)
    batch = asyncio.ensure_future(produce(api, following))
    await until(lambda: len(held.held) == 1)
    await asyncio.sleep(0.03)
    assert not batch.done()
    held.release()
    assert await batch == 0
    assert await last_stable_and_end(api) == (2, 3)


async def test_a_batch_that_has_waited_in_vain_is_sent_again(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    held = HeldMarkers(api)
    following = await end_epoch(api, producer)
    began_ms = api.broker.clock.now_ms()
    assert await produce(api, following) == BUSY
    assert api.broker.clock.now_ms() - began_ms >= 100
    assert await end_epoch(api, producer) == BUSY
    held.release()
    assert await produce(api, following) == 0


async def test_how_long_a_batch_waits_is_a_setting() -> None:
    settings = {"add.partitions.to.txn.retry.backoff.max.ms": 0, "add.partitions.to.txn.retry.backoff.ms": 10_000}
    async with api_of_a_broker(SMALL | settings) as api:
        await prepare(api)
        producer = await new_producer(api)
        assert await produce(api, producer) == 0
        held = HeldMarkers(api)
        following = await end_epoch(api, producer)
        assert await produce(api, following) == BUSY
        held.release()


# Topic ids


async def test_unknown_topic_ids_are_errors_of_their_partitions(api: Api) -> None:
    producer = await new_producer(api)
    request = producing(api, producer, 13)
    for unknown in (NOBODY, UUID(int=0)):
        data = [ProduceRequest.PartitionProduceData(index=number, records=b"") for number in (3, 4)]
        request.topic_data.append(ProduceRequest.TopicProduceData(topic_id=unknown, partition_data=data))
    answer = await api(request, 13)
    assert {
        (topic.topic_id, partition.index): (partition.error_code, partition.base_offset)
        for topic in answer.responses
        for partition in topic.partition_responses
    } == {
        (topic_id(api), 0): (0, 0),
        **{
            (unknown, number): (ErrorCode.UNKNOWN_TOPIC_ID, -1)
            for unknown in (NOBODY, UUID(int=0))
            for number in (3, 4)
        },
    }


async def test_an_unknown_topic_id_without_acknowledgment_ends_the_connection(api: Api) -> None:
    request = producing(api, (-1, -1), 13, topic_id=NOBODY)
    request.acks = 0
    async with client_of(api.broker) as client:
        client.send_request(request, 13)
        assert await client.frame() is None


async def test_an_unknown_partition_of_a_known_id_has_its_own_error(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer, 13, 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Offsets


def committing(api: Api, producer: Producer, version: int, offset: int = 5, **of_topic: Any) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    named = {"topic_id": topic_id(api)} if version >= 6 else {"name": "orders"}
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(**{**named, **of_topic}, partitions=[partition])
    return TxnOffsetCommitRequest(
        transactional_id="t", group_id="g", producer_id=producer[0], producer_epoch=producer[1], topics=[topic]
    )


async def commit(api: Api, producer: Producer, version: int, offset: int = 5, **of_topic: Any) -> int:
    (topic,) = (await api(committing(api, producer, version, offset, **of_topic), version)).topics
    return int(topic.partitions[0].error_code)


async def committed_offset(api: Api) -> int:
    answer = await api(OffsetFetchRequest(group_id="g", topics=None), 7)
    return int(answer.topics[0].partitions[0].committed_offset) if answer.topics else -1


async def grouped(api: Api) -> None:
    async def is_found() -> bool:
        return bool((await api(FindCoordinatorRequest(key="g"), 3)).error_code == 0)

    await until(is_found)


@pytest.mark.parametrize("version", [5, 6])
async def test_the_group_is_added_with_its_offsets(api: Api, version: int) -> None:
    await grouped(api)
    producer = await new_producer(api)
    assert await commit(api, producer, 4) == ErrorCode.TRANSACTION_ABORTABLE
    assert await commit(api, producer, version) == 0
    assert await committed_offset(api) == -1
    assert [topic.topic for topic in (await describe(api, "t"))[0].topics] == ["__consumer_offsets"]
    following = await end_epoch(api, producer)
    await until(lambda: api.broker.coordinators.transactions.markers.pending == 0)
    assert await committed_offset(api) == 5
    assert await commit(api, producer, version, 9) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert await commit(api, following, version, 7) == 0
    await end_epoch(api, following, False)
    await until(lambda: api.broker.coordinators.transactions.markers.pending == 0)
    assert await committed_offset(api) == 5


@pytest.mark.parametrize("unknown", [NOBODY, UUID(int=0)])
async def test_offsets_of_unknown_topic_ids_are_not_committed(api: Api, unknown: UUID) -> None:
    await grouped(api)
    assert await commit(api, await new_producer(api), 6, topic_id=unknown) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [5, 6])
async def test_a_group_without_offsets_to_commit_is_not_added(api: Api, version: int) -> None:
    await grouped(api)
    producer = await new_producer(api)
    unknown: dict[str, Any] = {"topic_id": NOBODY} if version >= 6 else {"name": "none"}
    assert await commit(api, producer, version, **unknown) != ErrorCode.NONE
    without_group, without_topics = committing(api, producer, version), committing(api, producer, version)
    without_group.group_id, without_topics.topics = "", []
    await api(without_group, version)
    await api(without_topics, version)
    assert await state(api) == "Empty"


@pytest.mark.parametrize(("version", "stale"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.STALE_MEMBER_EPOCH)])
async def test_the_epoch_of_a_member_is_checked_as_the_version_knows_it(
    api: Api, version: int, stale: ErrorCode
) -> None:
    await grouped(api)
    producer = await new_producer(api)
    joined = await join(api, "m", "orders")
    request = committing(api, producer, version)
    request.member_id = "m"
    for epoch, code in ((joined.member_epoch, ErrorCode.NONE), (joined.member_epoch + 1, stale)):
        request.generation_id_or_member_epoch = epoch
        assert (await api(request, version)).topics[0].partitions[0].error_code == code


async def test_offsets_are_refused_while_the_coordinator_is_busy(api: Api) -> None:
    await grouped(api)
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    held = HeldMarkers(api)
    following = await end_epoch(api, producer)
    assert await commit(api, following, 5) == BUSY
    held.release()
    assert await commit(api, following, 5) == 0


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_the_generation_of_an_unknown_group_is_an_error_of_the_version(
    api: Api, version: int, code: ErrorCode
) -> None:
    await grouped(api)
    request = committing(api, await new_producer(api), version)
    request.generation_id_or_member_epoch = 3
    assert (await api(request, version)).topics[0].partitions[0].error_code == code


# Markers, and the feature


async def test_late_markers_of_version_2_are_refused_by_the_request_that_names_it(api: Api) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    key = (producer[0], "orders", 0)
    assert await write_markers(api, (producer, False, 0, {"orders": [0]}), transaction_version=2, version=2) == {
        key: ErrorCode.INVALID_PRODUCER_EPOCH
    }
    assert await last_stable_and_end(api) == (0, 1)
    assert await write_markers(api, (producer, False, 0, {"orders": [0]}), version=2) == {key: 0}
    assert await last_stable_and_end(api) == (2, 2)


async def level(api: Api, wanted: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=TRANSACTION_VERSION, max_version_level=wanted, upgrade_type=UpgradeType.SAFE_DOWNGRADE
    )
    answer = await api(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]), 1)
    assert (answer.error_code, answer.results[0].error_code) == (0, 0)
    await until(lambda: api.broker.features.levels.get(TRANSACTION_VERSION, 0) == wanted)


async def test_clients_are_offered_version_2(api: Api) -> None:
    answer = await api(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    supported = {feature.name: (feature.min_version, feature.max_version) for feature in answer.supported_features}
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    assert (supported[TRANSACTION_VERSION], finalized[TRANSACTION_VERSION]) == ((0, 2), 2)


@pytest.mark.parametrize("wanted", [0, 1])
async def test_a_downgrade_leaves_open_transactions_alone(api: Api, wanted: int) -> None:
    producer = await new_producer(api)
    assert await produce(api, producer) == 0
    await level(api, wanted)
    assert await produce(api, producer, 12, 1) == 0
    following = await end_epoch(api, producer)
    assert following == of_epoch(producer, 1)
    await add(api, following)
    assert await produce(api, following, 11) == 0
    assert await end(api, following) == 0
    assert await last_stable_and_end(api) == (4, 4)


# Rights


async def test_topics_named_by_ids_need_the_rights_of_their_names() -> None:
    authorizer = ScriptedAuthorizer()
    async with api_with(authorizer, SMALL) as api:
        await prepare(api)
        await prepare(api, "returns")
        await grouped(api)
        producer = await new_producer(api)
        authorizer.change(but(Question(Op.WRITE, On.TOPIC, "orders")))
        request = producing(api, producer, 13)
        others = [
            producing(api, producer, 13, topic_id=each) for each in (api.broker.metadata.topic_id("returns"), NOBODY)
        ]
        request.topic_data += [other.topic_data[0] for other in others]
        answer = await api(request, 13)
        assert {topic.topic_id: topic.partition_responses[0].error_code for topic in answer.responses} == {
            topic_id(api): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            api.broker.metadata.topic_id("returns"): ErrorCode.NONE,
            NOBODY: ErrorCode.UNKNOWN_TOPIC_ID,
        }
        authorizer.change(but(Question(Op.READ, On.TOPIC, "orders")))
        assert await commit(api, producer, 6) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert await commit(api, producer, 6, topic_id=NOBODY) == ErrorCode.UNKNOWN_TOPIC_ID
        authorizer.change(but(Question(Op.WRITE, On.TRANSACTIONAL_ID, "t")))
        for version in (12, 13):
            assert await produce(api, producer, version) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await commit(api, producer, 6) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert await end_epoch(api, producer) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        authorizer.change(everything)
        assert await produce(api, producer, 13) == 0
        assert await end_epoch(api, producer) == of_epoch(producer, 1)
