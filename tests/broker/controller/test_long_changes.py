"""Changes of very many topics or partitions: other tasks and other changes run in between."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, PartitionState
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType
from tests.broker.controller.harness import BROKER_ID, ControllerHarness
from tests.memory_files import ForgetfulFiles
from tests.scenarios import turns_of_a_loop
from tests.scenarios.turns_of_a_loop import MOST_CALLS
from tests.soak import SOAK, rounds

pytestmark = pytest.mark.usefixtures("logging_as_when_served")
MANY = 300
LEAST_TURNS = 8
PROMISED = 10_000
"""With so many partitions, too, turns are short."""
PARTITIONS = rounds(3_000, in_soak=PROMISED)


@pytest.fixture
async def harness() -> AsyncIterator[ControllerHarness]:
    harness = await ControllerHarness().start()
    yield harness
    await harness.stop()


async def turns_during(change: Coroutine[Any, Any, Any]) -> int:
    """Returns the number of loop turns that another task gets during the change."""
    task = asyncio.ensure_future(change)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    task.result()
    return turns


async def turns_while(condition: Callable[[], bool]) -> None:
    while condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def topics(count: int = MANY) -> list[NewTopic]:
    return [NewTopic(f"t{number}", 1, 1) for number in range(count)]


async def test_many_topics_are_planned_created_and_deleted_over_many_turns(harness: ControllerHarness) -> None:
    controller = harness.controller
    wishes = topics()
    planning = controller.topics.create(wishes, timeout_ms=1000, validate_only=True)
    assert await turns_during(planning) >= LEAST_TURNS
    assert await turns_during(controller.topics.create(wishes, timeout_ms=60_000)) >= 2 * LEAST_TURNS
    raising = controller.topics.add_partitions(
        [NewPartitions(f"t{number}", 2) for number in range(MANY)], timeout_ms=60_000
    )
    assert await turns_during(raising) >= LEAST_TURNS
    keys = [TopicPartition(f"t{number}", 0) for number in range(MANY)]
    assert await turns_during(controller.replicas.elect(ElectionType.PREFERRED, keys, timeout_ms=1000)) >= 3
    deleting = controller.topics.delete([wish.name for wish in wishes], timeout_ms=60_000)
    assert await turns_during(deleting) >= LEAST_TURNS
    assert harness.topics == {}


async def test_another_change_runs_between_the_topics_of_a_long_one(harness: ControllerHarness) -> None:
    long = asyncio.ensure_future(harness.controller.topics.create(topics(), timeout_ms=60_000))
    await turns_while(lambda: not harness.topics)
    await harness.controller.topics.create([NewTopic("other", 1, 1)], timeout_ms=1000)
    assert not long.done()
    assert 1 < len(harness.topics) < MANY
    await long


async def test_a_second_deletion_of_a_topic_waits_for_the_first(harness: ControllerHarness) -> None:
    await harness.controller.topics.create(topics(3), timeout_ms=1000)
    gate = asyncio.Event()

    async def wait(request: Any) -> None:
        if isinstance(request, StopReplicaRequest):
            await gate.wait()

    harness.broker.before = wait
    first = asyncio.ensure_future(harness.controller.topics.delete(["t0", "t1", "t2"], timeout_ms=1000))
    await turns_while(lambda: bool(harness.topics))
    second = asyncio.ensure_future(harness.controller.topics.delete(["t2"], timeout_ms=1000))
    assert await turns_during(asyncio.sleep(0.01)) > 0
    assert not first.done()
    assert not second.done()
    gate.set()
    assert await second == [None]
    assert (harness.broker.disk, await harness.store.children(znodes.TOPICS)) == ({}, [])
    assert await first == [None] * 3


async def test_a_topic_with_very_many_partitions_is_stored_in_steps(harness: ControllerHarness) -> None:
    operations = [Create("/many"), *(Create(f"/many/{number}", b"x") for number in range(5_000))]
    assert await turns_during(harness.store.multi(operations)) >= LEAST_TURNS
    assert len(await harness.store.children("/many")) == 5_000


class Indifferent:
    """A broker that does nothing: only the controller's work is measured. `led` and `stopped` count the leaderships and
    the stops that it was sent.
    """

    def __init__(self) -> None:
        self.led = 0
        self.stopped = 0

    async def send(self, request: Any) -> StopReplicaResponse | None:
        """See ControlTarget."""
        if isinstance(request, LeaderAndIsrRequest):
            self.led += sum(len(topic.partition_states) for topic in request.topic_states)
        elif isinstance(request, StopReplicaRequest):
            self.stopped += sum(len(topic.partition_states) for topic in request.topic_states)
            return StopReplicaResponse()
        return None


def measured_harness(files: ForgetfulFiles | None = None) -> tuple[ControllerHarness, Indifferent]:
    harness, broker = ControllerHarness(files), Indifferent()
    harness.own = broker
    harness.store._compact_bytes = 1 << 30  # a snapshot is written in a thread
    return harness, broker


class Turns(turns_of_a_loop.Turns):
    """Judges fewer partitions than PROMISED by as few calls for each of them."""

    def are_short(self) -> bool:
        return super().are_short() if SOAK else self.most_calls < MOST_CALLS * PARTITIONS // PROMISED


async def turns_of(change: Coroutine[Any, Any, Any]) -> Turns:
    """Returns the turns of another task during the change. Garbage is not collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        return await _turns_of(change)
    finally:
        gc.enable()


async def _turns_of(change: Coroutine[Any, Any, Any]) -> Turns:
    task = asyncio.ensure_future(change)
    turns = Turns()
    turns.next()
    while not task.done():
        await asyncio.sleep(0)
        turns.next()
    turns.end()
    task.result()
    return turns


def proposal_of_everything(broker_epoch: int) -> AlterPartitionRequest:
    """Proposes the in-sync replicas that all partitions have already."""
    topics = [
        AlterPartitionRequest.TopicData(
            topic_name=f"t{number}",
            partitions=[
                AlterPartitionRequest.PartitionData(partition_index=partition, new_isr=[BROKER_ID])
                for partition in range(1000)
            ],
        )
        for number in range(PARTITIONS // 1000)
    ]
    return AlterPartitionRequest(broker_id=BROKER_ID, broker_epoch=broker_epoch, topics=topics)


@pytest.mark.long
@pytest.mark.soak("a controller of 10,000 partitions", minutes=1)
async def test_a_controller_of_very_many_partitions_lets_others_run() -> None:
    harness, broker = measured_harness()
    await harness.start()
    wishes = [NewTopic(f"t{number}", 1000, 1) for number in range(PARTITIONS // 1000)]
    assert (await turns_of(harness.controller.topics.create(wishes, timeout_ms=60_000))).are_short()
    proposal = proposal_of_everything(harness.broker.broker_epoch)
    altering = asyncio.ensure_future(harness.controller.answer(proposal))
    assert (await turns_of(asyncio.wait_for(altering, None))).are_short()
    assert sum(len(topic.partitions) for topic in altering.result().topics) == PARTITIONS
    again, broker = measured_harness(harness.files.crash())
    await again.open()
    assert (await turns_of(again.start_controller())).are_short()
    assert broker.led == again.controller.terms.numbers().partitions == PARTITIONS
    await again.store.delete(znodes.broker_path(BROKER_ID))  # all leaders are lost, and elected again
    assert (await turns_of(turns_while(lambda: broker.led < 2 * PARTITIONS))).are_short()
    await again.stop()
    await harness.stop()


@pytest.mark.long
@pytest.mark.soak("10,000 partitions are created and deleted", minutes=1)
async def test_a_topic_of_very_many_partitions_is_created_extended_and_deleted_in_steps() -> None:
    """Each of these is several transactions."""
    harness, broker = measured_harness()
    await harness.start()
    topics = harness.controller.topics
    wishes = [NewTopic("t", PARTITIONS, 1)]
    assert (await turns_of(topics.create(wishes, timeout_ms=60_000))).are_short()
    more = [NewPartitions("t", 2 * PARTITIONS)]
    assert (await turns_of(topics.add_partitions(more, timeout_ms=60_000))).are_short()
    assert broker.led == 2 * PARTITIONS
    assert (await turns_of(topics.delete(["t"], timeout_ms=60_000))).are_short()
    assert await harness.store.children(znodes.TOPICS) == []
    await harness.stop()


OTHER_ID = BROKER_ID + 1


class TwoBrokers:
    """A controller of a topic with very many partitions, whose replicas are on another broker and on this one, and both
    are in sync. The other broker comes and goes.
    """

    def __init__(self) -> None:
        self.harness, self.broker = measured_harness()
        self.keys = [TopicPartition("t", number) for number in range(PARTITIONS)]

    async def start(self) -> None:
        await self.harness.start()
        await self.other_starts()
        wish = NewTopic("t", assignments={key.partition: [OTHER_ID, BROKER_ID] for key in self.keys})
        await self.harness.controller.topics.create([wish], timeout_ms=60_000)

    async def other_starts(self) -> None:
        info = BrokerInfo(OTHER_ID, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9093)})
        await self.harness.store.multi([Create(znodes.broker_path(OTHER_ID), znodes.encode_broker(info, 0))])
        await turns_while(lambda: self.harness.controller.terms.numbers().active_brokers < 2)

    async def other_restarts(self) -> None:
        """This broker leads all partitions when the other one is in sync again."""
        await self.harness.store.delete(znodes.broker_path(OTHER_ID))
        await turns_while(lambda: self.harness.controller.terms.numbers().preferred_replica_imbalance < PARTITIONS)
        await self.other_starts()
        controller = self.harness.controller
        await controller.replicas.reassign(dict.fromkeys(self.keys))  # comes after the events before
        states: list[PartitionState] = [await self.state(key) for key in self.keys]
        proposals = [
            AlterPartitionRequest.PartitionData(
                partition_index=state.partition,
                leader_epoch=state.leader_epoch,
                new_isr=[BROKER_ID, OTHER_ID],
                partition_epoch=state.partition_epoch,
            )
            for state in states
        ]
        topic = AlterPartitionRequest.TopicData(topic_name="t", partitions=proposals)
        epoch = self.harness.broker.broker_epoch
        await controller.answer(AlterPartitionRequest(broker_id=BROKER_ID, broker_epoch=epoch, topics=[topic]))

    async def state(self, key: TopicPartition) -> PartitionState:
        entry = await self.harness.store.get(znodes.state_path(*key))
        return znodes.parse_state("t", key.partition, (OTHER_ID, BROKER_ID), entry.data, entry.version)


@pytest.mark.soak("leaders of 10,000 partitions", minutes=1)
async def test_leaders_of_very_many_partitions_are_elected_in_steps() -> None:
    cluster = TwoBrokers()
    await cluster.start()
    await cluster.other_restarts()
    controller = cluster.harness.controller
    electing = asyncio.ensure_future(controller.replicas.elect(ElectionType.PREFERRED, cluster.keys, timeout_ms=0))
    assert (await turns_of(asyncio.wait_for(electing, None))).are_short()
    assert {(await cluster.state(key)).leader for key in cluster.keys} == {OTHER_ID}
    await cluster.harness.stop()


@pytest.mark.long
@pytest.mark.soak("10,000 partitions are reassigned", minutes=1)
async def test_very_many_partitions_are_reassigned_in_steps_and_their_topic_is_deleted_in_steps() -> None:
    cluster = TwoBrokers()
    await cluster.start()
    controller, broker = cluster.harness.controller, cluster.broker
    targets = {key: [BROKER_ID] for key in cluster.keys}
    assert (await turns_of(controller.replicas.reassign(targets))).are_short()
    assert broker.stopped == PARTITIONS
    context = controller.terms.current().context
    finishing = turns_while(lambda: bool(context.finishing))
    assert (await turns_of(finishing)).are_short()
    assert (await turns_of(controller.topics.delete(["t"], timeout_ms=60_000))).are_short()
    assert broker.stopped == 2 * PARTITIONS
    assert await cluster.harness.store.children(znodes.TOPICS) == []
    await cluster.harness.stop()
