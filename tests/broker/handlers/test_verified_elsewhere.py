"""Transactional requests over sockets that wait for the answer of another broker's transaction coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.replica.leader.verification import VerificationRequest
from odradek.broker.server import Broker
from odradek.protocol.append_allowance import TURN_BYTES
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offsets import OffsetFetchRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.transactions import TxnOffsetCommitRequest, WriteTxnMarkersRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing import in_process_broker
from tests.broker.replica.test_over_sockets import batch, client_of, create
from tests.patience import until
from tests.wire import requests
from tests.wire.raw_client import RawClient

T0 = TopicPartition("t", 0)
OTHER = 2
Codes = dict[TopicPartition, ErrorCode]


class Elsewhere:
    """The coordinator on another broker, for all transactional ids. The test answers the questions."""

    def __init__(self, broker: Broker) -> None:
        self.asked: list[tuple[VerificationRequest, asyncio.Future[Codes]]] = []
        self.verification = broker.replica_manager.verification
        self.verification.elsewhere = lambda _: OTHER
        self.verification.ask = self._ask

    async def _ask(self, question: VerificationRequest) -> Codes:
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self.asked.append((question, answer))
        return await answer

    async def questions(self, count: int) -> list[VerificationRequest]:
        """Waits until so many questions have been asked."""
        await until(lambda: len(self.asked) >= count)
        return [question for question, _ in self.asked]

    async def answer(self, number: int, code: ErrorCode = ErrorCode.NONE) -> None:
        """Answers the question with this number."""
        await self.questions(number + 1)
        question, answer = self.asked[number]
        answer.set_result(dict.fromkeys(question.partitions, code))

    @property
    def is_settled(self) -> bool:
        return not self.verification._unsettled


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with in_process_broker(offsets_topic_num_partitions=1) as broker:
        yield broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[RawClient]:
    async with client_of(broker) as client:
        await create(client, partitions=2)
        yield client


@pytest.fixture
def elsewhere(broker: Broker) -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(broker)
    yield elsewhere
    assert elsewhere.is_settled


def produce(sequence: int = 0, *, acks: int = -1, partitions: tuple[int, ...] = (0,), **options: Any) -> ProduceRequest:
    options = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, **options}
    data = [
        ProduceRequest.PartitionProduceData(index=number, records=batch(base_sequence=sequence, **options))
        for number in partitions
    ]
    topics = [ProduceRequest.TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(transactional_id="copier", acks=acks, timeout_ms=30_000, topic_data=topics)


def plain(acks: int = 1) -> ProduceRequest:
    return requests.produce("t", batch(), 1, acks=acks)


def outcomes(response: Any) -> list[tuple[int, int]]:
    """The error code and the base offset of each partition."""
    return [(each.error_code, each.base_offset) for topic in response.responses for each in topic.partition_responses]


async def end_offset(client: RawClient, partition: int = 0) -> int:
    response = await client.call(requests.list_offsets("t", partition), 5)
    return int(response.topics[0].partitions[0].offset)


async def abort(client: RawClient, topic: str = "t") -> None:
    """Writes a marker to the topic's first partition."""
    topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])]
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=7, producer_epoch=0, transaction_result=False, topics=topics
    )
    response = await client.call(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert response.markers[0].topics[0].partitions[0].error_code == 0


# Produce


async def test_a_batch_is_appended_after_the_other_brokers_answer(client: RawClient, elsewhere: Elsewhere) -> None:
    client.send_request(produce(), 9)
    (question,) = await elsewhere.questions(1)
    assert (question.transactional_id, question.producer_id, question.partitions) == ("copier", 7, (T0,))
    assert await client.is_silent()
    await elsewhere.answer(0)
    assert outcomes(await client.response()) == [(0, 0)]


async def test_later_produce_requests_of_the_connection_stay_behind_the_one_that_waits(
    client: RawClient, elsewhere: Elsewhere
) -> None:
    client.send_request(produce(0), 9)
    client.send_request(plain(), 9)
    for sequence in (1, 2, 3):
        client.send_request(produce(sequence), 9)
    await elsewhere.answer(0)
    assert [outcomes(await client.response()) for _ in range(5)] == [[(0, n)] for n in (0, 0, 1, 2, 3)]
    assert len(elsewhere.asked) == 1, "the transaction was open then"


async def test_the_order_is_kept_if_the_first_batch_is_refused(client: RawClient, elsewhere: Elsewhere) -> None:
    """The producer sends all of them again, in their order."""
    client.send_request(produce(0), 9)
    client.send_request(produce(1), 9)
    await elsewhere.answer(0, ErrorCode.NETWORK_EXCEPTION)
    assert outcomes(await client.response()) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    await elsewhere.answer(1)
    assert outcomes(await client.response()) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert await end_offset(client) == 0


async def test_other_requests_of_the_connection_and_other_connections_do_not_wait(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    client.send_request(produce(0), 9)
    await elsewhere.questions(1)
    async with client_of(broker) as another:
        assert outcomes(await another.call(plain(), 9)) == [(0, 0)]
    client.send_request(FindCoordinatorRequest(key="g"), 3)
    await until(lambda: broker.metadata.topic("__consumer_offsets") is not None)
    await elsewhere.answer(0)
    assert outcomes(await client.response()) == [(0, 0)]
    assert (await client.response()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_each_partition_gets_its_own_answer(client: RawClient, elsewhere: Elsewhere) -> None:
    client.send_request(produce(0, partitions=(0, 1)), 9)
    (question,) = await elsewhere.questions(1)
    second = TopicPartition("t", 1)
    elsewhere.asked[0][1].set_result({T0: ErrorCode.NONE, second: ErrorCode.INVALID_TXN_STATE})
    assert question.partitions == (T0, second)
    assert sorted(outcomes(await client.response())) == [(0, 0), (ErrorCode.INVALID_TXN_STATE, -1)]


async def test_a_marker_that_is_written_meanwhile_refuses_the_batch(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    client.send_request(produce(0), 9)
    await elsewhere.questions(1)
    async with client_of(broker) as coordinator:
        await abort(coordinator)
        await elsewhere.answer(0)
        assert outcomes(await client.response()) == [(ErrorCode.INVALID_TXN_STATE, -1)]
        assert await end_offset(coordinator) == 1, "the marker only"


async def test_a_busy_coordinator_elsewhere_is_asked_to_add_again(client: RawClient, elsewhere: Elsewhere) -> None:
    client.send_request(produce(0), 12)
    client.send_request(produce(1), 12)
    await elsewhere.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    (first, again) = await elsewhere.questions(2)
    assert first is again
    assert (first.adds, first.partitions) == (True, (T0,))
    await elsewhere.answer(1)
    assert [outcomes(await client.response()) for _ in range(2)] == [[(0, 0)], [(0, 1)]]
    assert len(elsewhere.asked) == 2


async def test_a_marker_before_a_busy_answer_leaves_the_next_answer_valid(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    client.send_request(produce(0), 12)
    await elsewhere.questions(1)
    async with client_of(broker) as coordinator:
        await abort(coordinator)
    await elsewhere.answer(0, ErrorCode.CONCURRENT_TRANSACTIONS)
    await elsewhere.answer(1)
    assert outcomes(await client.response()) == [(0, 1)]


async def test_a_request_without_acknowledgment_is_appended_in_order_and_not_answered(
    client: RawClient, elsewhere: Elsewhere
) -> None:
    client.send_request(produce(0, acks=0), 9)
    client.send_request(produce(1, acks=0), 9)
    client.send_request(produce(2, acks=1), 9)
    await elsewhere.answer(0)
    assert outcomes(await client.response()) == [(0, 2)]


async def test_a_refused_request_without_acknowledgment_ends_the_connection(
    client: RawClient, elsewhere: Elsewhere
) -> None:
    with capture_logs() as lines:
        client.send_request(produce(0, acks=0), 9)
        client.send_request(produce(1, acks=0), 9)
        await elsewhere.answer(0, ErrorCode.INVALID_TXN_STATE)
        assert await client.frame() is None
    assert [line["event"] for line in lines] == ["produce with acks=0 failed"]
    assert len(elsewhere.asked) == 1, "the second request was not handled"


async def test_a_batch_is_appended_although_its_client_has_left(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    async with client_of(broker) as leaving:
        leaving.send_request(produce(0), 9)
        leaving.send_request(produce(1), 9)
        await elsewhere.questions(1)
    await until(lambda: len(broker.socket_server.connections) == 1)
    await elsewhere.answer(0)
    await until(lambda: elsewhere.is_settled)
    assert await end_offset(client) == 1


async def test_large_batches_keep_the_answer_until_they_are_appended(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    await create(client, "large", max_message_bytes=str(100 << 20))
    client.send_request(produce_large(), 9)
    client.send_request(plain(), 9)
    await elsewhere.answer(0)
    assert outcomes(await client.response()) == [(0, 0)]
    assert outcomes(await client.response()) == [(0, 0)]
    assert len(elsewhere.asked) == 1


async def test_a_marker_during_the_checks_of_a_large_batch_refuses_it(
    broker: Broker, client: RawClient, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.replica_manager
    is_before, checked = asyncio.Event(), manager.large_appends._checked

    async def held(*arguments: Any) -> Any:
        is_before.set()
        await may_go_on.wait()
        return await checked(*arguments)

    may_go_on = asyncio.Event()
    monkeypatch.setattr(manager.large_appends, "_checked", held)
    await create(client, "large", max_message_bytes=str(100 << 20))
    client.send_request(produce_large(), 9)
    await elsewhere.answer(0)
    await is_before.wait()
    async with client_of(broker) as coordinator:
        await abort(coordinator, "large")
        may_go_on.set()
        assert outcomes(await client.response()) == [(ErrorCode.INVALID_TXN_STATE, -1)]


def produce_large() -> ProduceRequest:
    records = batch(size=2 * TURN_BYTES, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    return requests.produce("large", records, transactional_id="copier")


async def test_a_stopping_broker_answers_nothing_that_waits_and_stops(elsewhere_is_silent: Broker) -> None:
    async with client_of(elsewhere_is_silent) as client:
        await create(client)
        elsewhere = Elsewhere(elsewhere_is_silent)
        client.send_request(produce(0), 9)
        await elsewhere.questions(1)
        await elsewhere_is_silent.stop()
        assert await client.frame() is None


@pytest.fixture
async def elsewhere_is_silent() -> AsyncIterator[Broker]:
    async with in_process_broker() as broker:
        yield broker


# TxnOffsetCommit


def commit(offset: int, group: str = "g") -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    return TxnOffsetCommitRequest(
        transactional_id="copier", group_id=group, producer_id=7, producer_epoch=0, topics=[topic]
    )


def code_of(response: Any) -> int:
    return int(response.topics[0].partitions[0].error_code)


async def coordinated(broker: Broker, client: RawClient) -> None:
    async def is_found() -> bool:
        return bool((await client.call(FindCoordinatorRequest(key="g"), 3)).error_code == 0)

    await until(is_found)


async def test_offsets_are_committed_after_the_other_brokers_answer_in_the_order_of_the_requests(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    await coordinated(broker, client)
    client.send_request(commit(5), 3)
    client.send_request(commit(9), 3)
    (question,) = await elsewhere.questions(1)
    assert question.partitions == (TopicPartition("__consumer_offsets", 0),)
    assert await client.is_silent()
    await elsewhere.answer(0)
    assert [code_of(await client.response()) for _ in range(2)] == [0, 0]
    assert len(elsewhere.asked) == 1
    shard: Any = broker.coordinators.groups.shard_of("g")
    shard.replay_end_transaction(7, 0, True)
    response = await client.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert response.topics[0].partitions[0].committed_offset == 9


@pytest.mark.parametrize(
    ("answer", "version", "returned"),
    [
        (ErrorCode.INVALID_TXN_STATE, 4, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 3, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NETWORK_EXCEPTION, 3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_offsets_that_were_not_verified_are_not_committed(
    broker: Broker, client: RawClient, elsewhere: Elsewhere, answer: ErrorCode, version: int, returned: ErrorCode
) -> None:
    await coordinated(broker, client)
    client.send_request(commit(5), version)
    await elsewhere.answer(0, answer)
    assert code_of(await client.response()) == returned
    response = await client.call(OffsetFetchRequest(group_id="g", topics=None), 7)
    assert response.topics == []


async def test_nobody_is_asked_about_a_group_that_another_broker_coordinates(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    assert code_of(await client.call(commit(5), 3)) == ErrorCode.NOT_COORDINATOR
    assert elsewhere.asked == []


async def test_a_group_that_moves_while_another_broker_is_asked_is_not_committed_here(
    broker: Broker, client: RawClient, elsewhere: Elsewhere
) -> None:
    await coordinated(broker, client)
    client.send_request(commit(5), 3)
    await elsewhere.questions(1)
    broker.replica_manager.stop_replica(TopicPartition("__consumer_offsets", 0))
    await elsewhere.answer(0)
    assert code_of(await client.response()) == ErrorCode.NOT_COORDINATOR
