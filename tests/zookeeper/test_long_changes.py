"""A controller of a topic with very many partitions, over ZooKeeper: the model, and Apache's."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from odradek.broker.controller.topic_planner import PlannedTopic
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, PartitionState
from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import SessionState
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import AlterPartitionRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.harness import BROKER_ID, ControllerHarness
from tests.patience import until
from tests.soak import rounds
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot, store_at

pytestmark = pytest.mark.usefixtures("logging_as_when_served")
PARTITIONS, MORE = rounds(2_400, in_soak=8_000), rounds(3_000, in_soak=10_000)
TOPIC = "t" * 249
"""Any change of all its partitions at once is above ZooKeeper's limit of a megabyte."""
OTHER_ID = BROKER_ID + 1
TIMEOUT_MS = 120_000


@pytest.fixture(params=["model", pytest.param("ZooKeeper", marks=pytest.mark.programs)])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[ZooKeeperStore]:
    if request.param == "ZooKeeper":
        yield store_at(request.getfixturevalue("zookeeper") + new_chroot())
    else:
        async with ZooKeeperModel().served() as address:
            yield store_at(address + new_chroot())


class Room:
    """A controller on BROKER_ID, over the store, and the registration of another broker, which comes and goes."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self.store = store
        self.session: list[SessionState] = []
        store.add_session_listener(self.session.append)
        self.harness = ControllerHarness(store=store)

    async def start(self) -> Room:
        await self.harness.start()
        await self.other_starts()
        return self

    async def other_starts(self) -> None:
        info = BrokerInfo(OTHER_ID, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9093)})
        await self.store.create(znodes.broker_path(OTHER_ID), znodes.encode_broker(info, 0), ephemeral=True)
        await until(lambda: self.harness.controller.terms.numbers().active_brokers == 2)

    async def create(self) -> None:
        (created,) = await self.harness.controller.topics.create(
            [NewTopic(TOPIC, PARTITIONS, 2)], timeout_ms=TIMEOUT_MS
        )
        assert isinstance(created, PlannedTopic), created
        assert self.harness.topics == {TOPIC: PARTITIONS}

    async def states(self) -> list[PartitionState]:
        """What is stored about the partitions of the topic."""
        topic = await self.store.get(znodes.topic_path(TOPIC))
        replicas = znodes.parse_topic(TOPIC, topic.data).replicas
        assert len(await self.store.children(znodes.partitions_path(TOPIC))) == len(replicas)
        entries = await self.store.entries([znodes.state_path(TOPIC, number) for number in replicas])
        return [
            znodes.parse_state(TOPIC, number, replicas[number], entry.data, entry.version)
            for number, entry in enumerate(entries)
            if entry is not None
        ]

    async def stop(self) -> None:
        assert self.session == [SessionState.CONNECTED], "the connection was never lost"
        await self.harness.stop()


@pytest.mark.long
@pytest.mark.soak("10,000 partitions are created, reassigned and deleted over ZooKeeper", minutes=1)
async def test_a_topic_of_thousands_of_partitions_is_created_extended_reassigned_and_deleted(
    store: ZooKeeperStore,
) -> None:
    room = await Room(store).start()
    controller = room.harness.controller
    await room.create()
    assert len(await room.states()) == PARTITIONS
    assert await controller.topics.add_partitions([NewPartitions(TOPIC, MORE)], timeout_ms=TIMEOUT_MS) == [None]
    assert room.harness.topics == {TOPIC: MORE}
    assert len(await room.states()) == MORE

    keys = [TopicPartition(TOPIC, number) for number in range(MORE)]
    assert await controller.replicas.reassign({key: [BROKER_ID] for key in keys}) == dict.fromkeys(keys)
    await until(lambda: not controller.replicas.reassignments(None))

    async def are_stored() -> bool:  # the last write may be on its way
        return {(state.replicas, state.isr) for state in await room.states()} == {((BROKER_ID,), (BROKER_ID,))}

    await until(are_stored)

    assert await controller.topics.delete([TOPIC], timeout_ms=TIMEOUT_MS) == [None]
    for parent in (znodes.TOPICS, znodes.TOPIC_CONFIGS, znodes.DELETE_TOPICS):
        assert await store.children(parent) == []
    await room.stop()


@pytest.mark.soak("leaders of 8,000 partitions over ZooKeeper", minutes=1)
async def test_thousands_of_leaders_and_in_sync_replicas_change_together(store: ZooKeeperStore) -> None:
    room = await Room(store).start()
    await room.create()
    await store.delete(znodes.broker_path(OTHER_ID))
    await until(lambda: room.harness.controller.terms.numbers().active_brokers == 1)
    await room.other_starts()
    before = await room.states()
    assert {(state.leader, state.isr) for state in before} == {(BROKER_ID, (BROKER_ID,))}
    topic = AlterPartitionRequest.TopicData(topic_name=TOPIC, partitions=[proposal(state) for state in before])
    epoch = room.harness.broker.broker_epoch
    request = AlterPartitionRequest(broker_id=BROKER_ID, broker_epoch=epoch, topics=[topic])
    response = await room.harness.controller.answer(request)
    assert {each.error_code for each in response.topics[0].partitions} == {ErrorCode.NONE}
    assert {state.isr for state in await room.states()} == {(BROKER_ID, OTHER_ID)}
    await room.stop()


def proposal(state: PartitionState) -> AlterPartitionRequest.PartitionData:
    """Both brokers are in sync."""
    return AlterPartitionRequest.PartitionData(
        partition_index=state.partition,
        leader_epoch=state.leader_epoch,
        new_isr=[BROKER_ID, OTHER_ID],
        partition_epoch=state.partition_epoch,
    )
