"""Questions to the transaction coordinators on other brokers: which requests are sent, and what the answers are."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.coordinator.transaction.peer_queue import PARTITIONS_PER_REQUEST
from odradek.broker.coordinator.transaction.remote_verification import RemoteVerification
from odradek.broker.replica.leader.verification import VerificationRequest
from odradek.clients.network_errors import Disconnected, UnsupportedVersion
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
THIS, OTHER, THIRD = 1, 2, 3

Codes = dict[TopicPartition, ErrorCode]


def question(coordinator: int, transactional_id: str, *partitions: TopicPartition) -> VerificationRequest:
    led: Any = dict.fromkeys(partitions)
    return VerificationRequest(coordinator, transactional_id, 7, 3, led)


class Coordinator:
    """Another broker. Answers when it is not `held`; `codes` are those of partitions, `lost` are left out."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.versions: list[int | None] = []
        self.codes: Codes = {}
        self.lost: set[TopicPartition] = set()
        self.error = ErrorCode.NONE
        self.failure: Exception | None = None
        self.held = asyncio.Event()
        self.held.set()

    async def send(self, request: Message, *, version: int | None = None) -> AddPartitionsToTxnResponse:
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.requests.append(request)
        self.versions.append(version)
        await self.held.wait()
        if self.failure is not None:
            raise self.failure
        if self.error:
            return AddPartitionsToTxnResponse(error_code=self.error)
        return AddPartitionsToTxnResponse(results_by_transaction=[self._result(each) for each in request.transactions])

    def _result(self, each: Any) -> Any:
        return AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
            transactional_id=each.transactional_id,
            topic_results=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult(
                            partition_index=number,
                            partition_error_code=self.codes.get(TopicPartition(topic.name, number), ErrorCode.NONE),
                        )
                        for number in topic.partitions
                        if TopicPartition(topic.name, number) not in self.lost
                    ],
                )
                for topic in each.topics
            ],
        )

    @property
    def names(self) -> list[list[str]]:
        """The transactional ids of each request."""
        return [[each.transactional_id for each in request.transactions] for request in self.requests]


class Cluster:
    """Broker THIS asks. `coordinators` has the broker that coordinates each id, by default OTHER."""

    def __init__(self) -> None:
        self.brokers = {broker_id: Coordinator(broker_id) for broker_id in (OTHER, THIRD)}
        self.coordinators: dict[str, int | None] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        self.verification = RemoteVerification(
            lambda name: self.coordinators.get(name, OTHER),
            self.brokers.__getitem__,
            broker_id=THIS,
            spawn=self.spawn,
        )

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    @property
    def other(self) -> Coordinator:
        return self.brokers[OTHER]

    async def ask(self, transactional_id: str, *partitions: TopicPartition) -> Codes:
        coordinator = self.verification.elsewhere(transactional_id)
        assert coordinator is not None
        return await self.verification.ask(question(coordinator, transactional_id, *partitions))

    def asking(self, transactional_id: str, *partitions: TopicPartition) -> asyncio.Task[Codes]:
        return self.spawn(self.ask(transactional_id, *partitions), "question")


async def test_a_question_names_the_producer_and_its_partitions_and_adds_nothing() -> None:
    cluster = Cluster()
    cluster.other.codes[B] = ErrorCode.INVALID_TXN_STATE
    assert await cluster.ask("t", A, C, B) == {A: ErrorCode.NONE, C: ErrorCode.NONE, B: ErrorCode.INVALID_TXN_STATE}
    ((sent,),) = [request.transactions for request in cluster.other.requests]
    assert (sent.transactional_id, sent.producer_id, sent.producer_epoch, sent.verify_only) == ("t", 7, 3, True)
    assert [(topic.name, topic.partitions) for topic in sent.topics] == [("a", [0, 1]), ("b", [0])]
    assert cluster.other.versions == [4]


async def test_questions_that_arrive_while_a_request_is_in_flight_go_together_into_the_next() -> None:
    cluster = Cluster()
    cluster.other.held.clear()
    asked = [cluster.asking("first", A)]
    await asyncio.sleep(0.01)
    asked += [cluster.asking("second", A), cluster.asking("third", B)]
    await asyncio.sleep(0.01)
    assert cluster.other.names == [["first"]]
    cluster.other.held.set()
    assert await asyncio.gather(*asked) == [{A: 0}, {A: 0}, {B: 0}]
    assert cluster.other.names == [["first"], ["second", "third"]]


async def test_a_request_has_one_question_about_a_transactional_id() -> None:
    cluster = Cluster()
    cluster.other.codes[B] = ErrorCode.INVALID_TXN_STATE
    asked = [cluster.asking("t", A), cluster.asking("t", B), cluster.asking("u", C)]
    assert await asyncio.gather(*asked) == [{A: 0}, {B: ErrorCode.INVALID_TXN_STATE}, {C: 0}]
    assert cluster.other.names == [["t", "u"], ["t"]]


async def test_each_broker_is_asked_on_its_own() -> None:
    cluster = Cluster()
    cluster.coordinators["u"] = THIRD
    cluster.other.held.clear()
    slow = cluster.asking("t", A)
    assert await cluster.ask("u", A) == {A: ErrorCode.NONE}
    assert not slow.done()
    cluster.other.held.set()
    assert await slow == {A: ErrorCode.NONE}


async def test_many_partitions_take_several_requests_but_a_question_is_not_divided() -> None:
    cluster = Cluster()
    many = [TopicPartition("many", number) for number in range(PARTITIONS_PER_REQUEST + 1)]
    asked = [cluster.asking("t", A), cluster.asking("u", *many), cluster.asking("v", B)]
    answers = await asyncio.gather(*asked)
    assert cluster.other.names == [["t", "v"], ["u"]]
    assert answers == [{A: 0}, dict.fromkeys(many, 0), {B: 0}]


async def test_an_unreachable_broker_or_an_incomplete_response_is_a_network_exception() -> None:
    cluster = Cluster()
    cluster.other.failure = Disconnected("gone")
    assert await cluster.ask("t", A) == {A: ErrorCode.NETWORK_EXCEPTION}
    cluster.other.failure = None
    cluster.other.lost.add(B)
    assert await cluster.ask("t", A, B) == {A: ErrorCode.NONE, B: ErrorCode.NETWORK_EXCEPTION}
    cluster.other.lost.clear()
    assert await cluster.ask("t", B) == {B: ErrorCode.NONE}, "the next question is sent again"


async def test_an_error_of_the_whole_request_is_that_of_each_partition() -> None:
    cluster = Cluster()
    cluster.other.error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await cluster.ask("t", A, B) == {A: refused, B: refused}


async def test_a_broker_that_cannot_verify_lets_everything_pass() -> None:
    cluster = Cluster()
    cluster.other.failure = UnsupportedVersion("AddPartitionsToTxn 4 is not served")
    assert await cluster.ask("t", A) == {A: ErrorCode.NONE}


async def test_partitions_are_added_by_the_same_request() -> None:
    cluster = Cluster()
    cluster.other.held.clear()
    asked = [cluster.asking("first", A)]
    await asyncio.sleep(0.01)
    to_add = question(OTHER, "adds", A)
    to_add.adds = True
    asked += [cluster.spawn(cluster.verification.ask(to_add), "question"), cluster.asking("verifies", B)]
    await asyncio.sleep(0.01)
    cluster.other.held.set()
    assert await asyncio.gather(*asked) == [{A: 0}, {A: 0}, {B: 0}]
    assert [(each.transactional_id, each.verify_only) for each in cluster.other.requests[1].transactions] == [
        ("adds", False),
        ("verifies", True),
    ]


async def test_a_broker_that_cannot_verify_cannot_add_either() -> None:
    """A batch would begin a transaction that nothing ends."""
    cluster = Cluster()
    cluster.other.failure = UnsupportedVersion("AddPartitionsToTxn 4 is not served")
    to_add = question(OTHER, "t", A)
    to_add.adds = True
    assert await cluster.verification.ask(to_add) == {A: ErrorCode.UNSUPPORTED_VERSION}


async def test_a_fenced_producer_gets_the_code_that_all_producers_know() -> None:
    cluster = Cluster()
    cluster.other.codes[A] = ErrorCode.PRODUCER_FENCED
    assert await cluster.ask("t", A) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}


@pytest.mark.parametrize("coordinator", [None, -1, THIS])
async def test_nobody_is_asked_about_an_id_without_another_coordinator(coordinator: int | None) -> None:
    cluster = Cluster()
    cluster.coordinators["t"] = coordinator
    assert cluster.verification.elsewhere("t") is None


async def test_the_coordinator_at_the_time_of_the_question_is_asked() -> None:
    cluster = Cluster()
    assert cluster.verification.elsewhere("t") == OTHER
    await cluster.ask("t", A)
    cluster.coordinators["t"] = THIRD
    await cluster.ask("t", A)
    assert (cluster.other.names, cluster.brokers[THIRD].names) == ([["t"]], [["t"]])


async def test_a_mistake_is_logged_and_later_questions_are_asked() -> None:
    cluster = Cluster()
    cluster.other.failure = ValueError("no")
    with capture_logs() as lines:
        asked = [cluster.asking("t", A), cluster.asking("t", B)]
        assert await asyncio.gather(*asked) == [
            {A: ErrorCode.UNKNOWN_SERVER_ERROR},
            {B: ErrorCode.UNKNOWN_SERVER_ERROR},
        ]
    assert [line["event"] for line in lines] == ["transactions not verified"] * 2


async def test_a_stopping_broker_answers_what_is_in_flight() -> None:
    cluster = Cluster()
    cluster.other.held.clear()
    asked = cluster.asking("t", A)
    await asyncio.sleep(0.01)
    (sending,) = [task for task in cluster.tasks if task is not asked]
    sending.cancel()
    assert await asked == {A: ErrorCode.NETWORK_EXCEPTION}
