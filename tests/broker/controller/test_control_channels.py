"""The queues of requests to brokers, and the queue of the controller's events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.background.background import Background
from odradek.broker.controller.control_channels import ControlChannels
from odradek.broker.controller.control_requests import Addressed, deletion_errors, leadership_errors
from odradek.broker.controller.events import Events
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.clients.network_errors import Disconnected
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import EPOCH_DURING_DELETE
from tests.simulation.loop import in_virtual_time

OWN = 1


def request(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_epoch=number)


class Target:
    """Answers each request with its controller epoch, when `gate` is open; fails as often as `failures` says."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []

    async def send(self, request: Any) -> int:
        self.begun.append(request.controller_epoch)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.ended.append(request.controller_epoch)
        return int(request.controller_epoch)


class Channels:
    """The channels of broker 1, to itself and to broker 2."""

    def __init__(self) -> None:
        self.background = Background()
        self.targets = {OWN: Target(), 2: Target()}
        self.answers: list[tuple[int, Any]] = []
        self.channels = ControlChannels(
            OWN,
            self.targets[OWN],
            lambda broker: self.targets[broker.broker_id],
            lambda broker, _request, response: self.answers.append((broker, response)),
            self.background.spawn,
        )
        for broker in self.targets:
            self.channels.add(BrokerInfo(broker, {}))

    def put(self, broker: int, *numbers: int) -> None:
        for number in numbers:
            self.channels.put(Addressed(broker, request(number)))


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@in_virtual_time
async def test_requests_of_a_broker_go_out_in_order_one_at_a_time() -> None:
    each = Channels()
    each.targets[2].gate.clear()
    each.put(2, 1, 2, 3)
    await turns()
    assert each.targets[2].begun == [1]
    each.targets[2].gate.set()
    await turns()
    assert each.targets[2].ended == [1, 2, 3]
    assert each.answers == [(2, 1), (2, 2), (2, 3)]
    await each.background.stop()


@in_virtual_time
async def test_a_slow_broker_does_not_hold_up_the_others() -> None:
    each = Channels()
    each.targets[2].gate.clear()
    each.put(2, 1)
    each.put(OWN, 1, 2)
    await turns()
    assert (each.targets[2].ended, each.targets[OWN].ended) == ([], [1, 2])
    await each.background.stop()


@in_virtual_time
async def test_a_request_is_sent_again_until_it_arrives() -> None:
    each = Channels()
    each.targets[2].failures = [Disconnected("gone")] * 3
    each.put(2, 1, 2)
    await asyncio.sleep(1)
    assert each.targets[2].begun == [1, 1, 1, 1, 2]
    assert each.answers == [(2, 1), (2, 2)]
    await each.background.stop()


@in_virtual_time
async def test_a_request_that_fails_in_another_way_is_answered_with_none() -> None:
    each = Channels()
    each.targets[2].failures = [ValueError("broken")]
    each.put(2, 1, 2)
    await turns()
    assert each.answers == [(2, None), (2, 2)]
    await each.background.stop()


@in_virtual_time
async def test_a_broker_that_registers_again_gets_nothing_of_before() -> None:
    each = Channels()
    each.targets[2].gate.clear()
    each.put(2, 1, 2)
    await turns()
    each.channels.add(BrokerInfo(2, {}))
    each.put(2, 3)
    each.targets[2].gate.set()
    await turns()
    assert each.targets[2].ended == [3]
    assert each.answers == [(2, 3)]
    each.channels.remove(2)
    each.put(2, 4)  # dead: dropped
    await turns()
    assert each.targets[2].ended == [3]
    await each.background.stop()


@in_virtual_time
async def test_this_brokers_request_in_flight_is_carried_out_when_the_channels_close() -> None:
    each = Channels()
    for target in each.targets.values():
        target.gate.clear()
    each.put(OWN, 1, 2)
    each.put(2, 1)
    await turns()
    answered = each.channels.own_answered()
    each.channels.close()
    assert await answered is False
    for target in each.targets.values():
        target.gate.set()
    await turns()
    assert (each.targets[OWN].ended, each.targets[2].ended) == ([1], [])
    assert each.answers == []
    assert await each.channels.own_answered() is False
    await each.background.stop()


@in_virtual_time
async def test_who_waits_for_this_broker_waits_for_what_was_queued_until_then() -> None:
    each = Channels()
    assert await each.channels.own_answered() is True
    each.targets[OWN].gate.clear()
    each.put(OWN, 1)
    first = each.channels.own_answered()
    each.put(OWN, 2)
    second = each.channels.own_answered()
    each.targets[OWN].failures = []
    each.targets[OWN].gate.set()
    assert await first is True
    assert await second is True
    assert each.targets[OWN].ended == [1, 2]
    await each.background.stop()


# ---- responses


def test_errors_of_leaderships_are_named_by_the_requests_topic_ids() -> None:
    asked = LeaderAndIsrRequest(
        topic_states=[LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t", topic_id=ZERO_UUID)]
    )
    errors = [
        LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=0),
        LeaderAndIsrResponse.LeaderAndIsrPartitionError(partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    topic = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=ZERO_UUID, partition_errors=errors)
    assert leadership_errors(asked, LeaderAndIsrResponse(topics=[topic])) == {
        TopicPartition("t", 0): ErrorCode.NONE,
        TopicPartition("t", 1): ErrorCode.KAFKA_STORAGE_ERROR,
    }
    refused = LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, topics=[])
    assert leadership_errors(asked, refused) == leadership_errors(asked, None) == {}


def test_a_deletion_has_failed_if_its_request_has() -> None:
    states = [
        StopReplicaRequest.StopReplicaPartitionState(partition_index=number, delete_partition=number > 0)
        for number in range(3)
    ]
    with_topic = StopReplicaRequest.StopReplicaPartitionState(
        partition_index=3, leader_epoch=EPOCH_DURING_DELETE, delete_partition=True
    )
    asked = StopReplicaRequest(
        topic_states=[StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[*states, with_topic])]
    )
    failed = StopReplicaResponse.StopReplicaPartitionError(
        topic_name="t", partition_index=2, error_code=ErrorCode.KAFKA_STORAGE_ERROR
    )
    one, two = TopicPartition("t", 1), TopicPartition("t", 2)
    assert deletion_errors(asked, StopReplicaResponse(partition_errors=[failed]), with_topic=False) == {
        one: ErrorCode.NONE,
        two: ErrorCode.KAFKA_STORAGE_ERROR,
    }
    refused = StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, partition_errors=[])
    removed = {one: ErrorCode.STALE_CONTROLLER_EPOCH, two: ErrorCode.STALE_CONTROLLER_EPOCH}
    assert deletion_errors(asked, refused, with_topic=False) == removed
    assert deletion_errors(asked, None, with_topic=True) == {TopicPartition("t", 3): ErrorCode.UNKNOWN_SERVER_ERROR}


# ---- events


class Scene:
    """Events that note their names."""

    def __init__(self) -> None:
        self.background = Background()
        self.done: list[str] = []
        self.failed: list[str] = []
        self.events = Events(self.background.spawn, lambda name, error: self.failed.append(f"{name}: {error}"))
        self.events.start()

    def work(self, name: str, seconds: float = 0) -> Any:
        async def work() -> str:
            await asyncio.sleep(seconds)
            self.done.append(name)
            return name

        return work


@in_virtual_time
async def test_events_run_one_after_the_other_in_their_order() -> None:
    scene = Scene()
    scene.events.put("a", scene.work("a", 1))
    asked = asyncio.ensure_future(scene.events.ask("b", scene.work("b")))
    await turns()
    scene.events.put("c", scene.work("c"))
    assert await asked == "b"
    await turns()
    assert scene.done == ["a", "b", "c"]
    await scene.events.stop()


@in_virtual_time
async def test_one_event_that_waits_stands_for_all_of_its_name() -> None:
    scene = Scene()
    for _ in range(3):
        scene.events.put_once("a", scene.work("a"))
        scene.events.put_once("later", scene.work("later"), 1)
    await turns()
    assert scene.done == ["a"]
    scene.events.put_once("a", scene.work("a"))
    await asyncio.sleep(2)
    assert scene.done == ["a", "a", "later"]
    await scene.events.stop()


@in_virtual_time
async def test_a_failure_is_raised_by_the_asker_or_reported_and_the_next_event_runs() -> None:
    scene = Scene()

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await scene.events.ask("a", fail)
    scene.events.put("b", fail)
    gone = asyncio.ensure_future(scene.events.ask("c", fail))
    await asyncio.sleep(0)
    gone.cancel()
    assert await scene.events.ask("d", scene.work("d")) == "d"
    assert scene.failed == ["b: no", "c: no"]
    await scene.events.stop()


@in_virtual_time
async def test_stopping_finishes_the_event_in_progress_and_refuses_the_others() -> None:
    scene = Scene()
    first = asyncio.ensure_future(scene.events.ask("a", scene.work("a", 1)))
    second = asyncio.ensure_future(scene.events.ask("b", scene.work("b")))
    await turns()
    await scene.events.stop()
    assert await first == "a"
    for refused in (second, scene.events.ask("c", scene.work("c"))):
        with pytest.raises(ProtocolError) as caught:
            await refused
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert scene.done == ["a"]


@in_virtual_time
async def test_stopping_gives_up_an_event_that_does_not_end_and_answers_its_asker() -> None:
    scene = Scene()
    asked = asyncio.ensure_future(scene.events.ask("a", scene.work("a", 1_000_000)))
    await turns()
    await scene.events.stop()
    assert asyncio.get_running_loop().time() < 10
    async with asyncio.timeout(1):
        with pytest.raises(ProtocolError) as caught:
            await asked
    assert caught.value.code is ErrorCode.NOT_CONTROLLER
    assert scene.done == []
