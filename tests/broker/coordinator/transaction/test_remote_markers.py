"""Markers for the partitions of another broker: which requests are sent, and what is made of the responses."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from odradek.broker.coordinator.transaction.marker_writing import OUTCOMES, Marker, Outcome
from odradek.broker.coordinator.transaction.peer_queue import PARTITIONS_PER_REQUEST
from odradek.broker.coordinator.transaction.remote_markers import RemoteMarkerWriter
from odradek.clients.network_errors import Disconnected
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def marker(producer_id: int, *partitions: TopicPartition, committed: bool = True) -> Marker:
    return Marker(producer_id, 3, 9, committed, partitions)


class OtherBroker:
    """Answers each request when `release` is called; `codes` are those of partitions, `lost` are left out."""

    broker_id = 2

    def __init__(self) -> None:
        self.requests: list[WriteTxnMarkersRequest] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.lost: set[TopicPartition] = set()
        self.failure: Disconnected | None = None
        self.held: asyncio.Event = asyncio.Event()
        self.held.set()
        self.written: list[tuple[int, TopicPartition, ErrorCode]] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.writer = RemoteMarkerWriter(self, self.spawn)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    def write(self, wanted: Marker) -> None:
        self.writer.write(wanted, lambda key, code: self.written.append((wanted.producer_id, key, code)))

    async def settle(self) -> None:
        while waiting := [task for task in self.tasks if not task.done()]:
            await asyncio.gather(*waiting)

    async def send(self, request: Message) -> WriteTxnMarkersResponse:
        assert isinstance(request, WriteTxnMarkersRequest)
        self.requests.append(request)
        await self.held.wait()
        if self.failure is not None:
            raise self.failure
        return WriteTxnMarkersResponse(markers=[self._result(each) for each in request.markers])

    def _result(
        self, each: WriteTxnMarkersRequest.WritableTxnMarker
    ) -> WriteTxnMarkersResponse.WritableTxnMarkerResult:
        return WriteTxnMarkersResponse.WritableTxnMarkerResult(
            producer_id=each.producer_id,
            topics=[
                WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(
                            partition_index=partition,
                            error_code=self.codes.get(TopicPartition(topic.name, partition), ErrorCode.NONE),
                        )
                        for partition in topic.partition_indexes
                        if TopicPartition(topic.name, partition) not in self.lost
                    ],
                )
                for topic in each.topics
            ],
        )


async def test_a_marker_names_producer_epochs_decision_and_partitions() -> None:
    broker = OtherBroker()
    broker.write(marker(7, A, B, C, committed=False))
    await broker.settle()
    (sent,) = broker.requests[0].markers
    assert (sent.producer_id, sent.producer_epoch, sent.coordinator_epoch, sent.transaction_result) == (7, 3, 9, False)
    assert [(topic.name, topic.partition_indexes) for topic in sent.topics] == [("a", [0, 1]), ("b", [0])]
    assert broker.written == [(7, A, ErrorCode.NONE), (7, B, ErrorCode.NONE), (7, C, ErrorCode.NONE)]


async def test_markers_that_arrive_while_a_request_is_in_flight_go_together_into_the_next() -> None:
    broker = OtherBroker()
    broker.held.clear()
    broker.write(marker(1, A))
    await asyncio.sleep(0)
    broker.write(marker(2, A))
    broker.write(marker(3, B))
    await asyncio.sleep(0)
    assert len(broker.requests) == 1
    broker.held.set()
    await broker.settle()
    assert [[each.producer_id for each in request.markers] for request in broker.requests] == [[1], [2, 3]]
    assert len(broker.written) == 3


async def test_a_request_has_one_marker_of_a_producer() -> None:
    broker = OtherBroker()
    broker.write(marker(1, A))
    broker.write(marker(1, B))
    await broker.settle()
    assert [len(request.markers) for request in broker.requests] == [1, 1]
    assert broker.written == [(1, A, ErrorCode.NONE), (1, B, ErrorCode.NONE)]


async def test_each_partition_has_its_own_error() -> None:
    broker = OtherBroker()
    broker.codes[B] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    broker.write(marker(1, A, B))
    await broker.settle()
    assert broker.written == [(1, A, ErrorCode.NONE), (1, B, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


async def test_a_lost_connection_or_an_incomplete_response_is_tried_again() -> None:
    broker = OtherBroker()
    broker.failure = Disconnected("gone")
    broker.write(marker(1, A))
    await broker.settle()
    broker.failure = None
    broker.lost.add(B)
    broker.write(marker(1, A, B))
    await broker.settle()
    lost = ErrorCode.NETWORK_EXCEPTION
    assert broker.written == [(1, A, lost), (1, A, ErrorCode.NONE), (1, B, lost)]
    assert OUTCOMES[lost] is Outcome.AGAIN


async def test_a_transaction_of_many_partitions_takes_several_requests() -> None:
    broker = OtherBroker()
    broker.write(marker(1, *(TopicPartition("many", number) for number in range(2 * PARTITIONS_PER_REQUEST + 1))))
    await broker.settle()
    assert len(broker.requests) == 3
    assert len(broker.written) == 2 * PARTITIONS_PER_REQUEST + 1
