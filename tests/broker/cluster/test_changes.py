"""Control requests: what a broker makes of LeaderAndIsr, StopReplica and UpdateMetadata, and which it refuses."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.background.background import Background
from odradek.broker.cluster.deltas import TopicNews
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.metadata.metadata_cache import BrokerInfo, PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import SessionState
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.start_up import open_store
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LeaderAndIsrType,
    SecurityProtocol,
)
from odradek.storage.checkpoint import read_partition_metadata
from odradek.storage.files import OsFiles
from odradek.timer import SystemClock
from tests.broker.cluster.configs_harness import to
from tests.patience import until

ID = UUID(int=77)
T0 = TopicPartition("t", 0)
OTHER = 2


class Controlled:
    """Broker 1, which the test controls as controller 9 of epoch 50. Its own controller is never asked."""

    shared: SharedStore

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.epoch = 50
        self.changes = broker.cluster.changes

    @property
    def broker_epoch(self) -> int:
        return self.broker.links.registration.broker_epoch()

    async def lead(
        self,
        leader: int = 1,
        *,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        replicas: tuple[int, ...] = (1, OTHER),
        topic_id: UUID = ID,
        broker_epoch: int | None = None,
        kind: LeaderAndIsrType = LeaderAndIsrType.INCREMENTAL,
    ) -> ErrorCode:
        state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=self.epoch,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=list(replicas),
            partition_epoch=partition_epoch,
            replicas=list(replicas),
        )
        response = await self.changes.send(
            LeaderAndIsrRequest(
                controller_id=9,
                controller_epoch=self.epoch,
                broker_epoch=self.broker_epoch if broker_epoch is None else broker_epoch,
                type=kind,
                topic_states=[
                    LeaderAndIsrRequest.LeaderAndIsrTopicState(
                        topic_name="t", topic_id=topic_id, partition_states=[state]
                    )
                ],
            )
        )
        return self.error_of(response)

    @staticmethod
    def error_of(response: LeaderAndIsrResponse) -> ErrorCode:
        """The error of the request or of its partition."""
        if response.error_code:
            return ErrorCode.of(response.error_code)
        return ErrorCode.of(response.topics[0].partition_errors[0].error_code)

    async def stop(self, leader_epoch: int, *, delete: bool = False, broker_epoch: int | None = None) -> ErrorCode:
        state = StopReplicaRequest.StopReplicaPartitionState(
            partition_index=0, leader_epoch=leader_epoch, delete_partition=delete
        )
        response = await self.changes.send(
            StopReplicaRequest(
                controller_id=9,
                controller_epoch=self.epoch,
                broker_epoch=self.broker_epoch if broker_epoch is None else broker_epoch,
                topic_states=[StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[state])],
            )
        )
        return ErrorCode.of(response.error_code or response.partition_errors[0].error_code)

    async def publish(
        self,
        leader: int,
        *,
        leader_epoch: int = 0,
        brokers: tuple[int, ...] = (1, OTHER),
        broker_epoch: int | None = None,
        topics: tuple[str, ...] = ("t",),
    ) -> ErrorCode:
        state = UpdateMetadataRequest.UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=self.epoch,
            leader=leader,
            leader_epoch=leader_epoch,
            isr=[1],
            zk_version=3,
            replicas=[1, OTHER],
            offline_replicas=[OTHER],
        )
        response = await self.changes.send(
            UpdateMetadataRequest(
                controller_id=9,
                controller_epoch=self.epoch,
                broker_epoch=self.broker_epoch if broker_epoch is None else broker_epoch,
                topic_states=[
                    UpdateMetadataRequest.UpdateMetadataTopicState(
                        topic_name=topic, topic_id=ID, partition_states=[state]
                    )
                    for topic in topics
                ],
                live_brokers=[
                    UpdateMetadataRequest.UpdateMetadataBroker(
                        id=broker,
                        endpoints=[
                            UpdateMetadataRequest.UpdateMetadataEndpoint(
                                port=9000 + broker,
                                host="127.0.0.1",
                                listener="PLAINTEXT",
                                security_protocol=SecurityProtocol.PLAINTEXT,
                            )
                        ],
                        rack="r",
                    )
                    for broker in brokers
                ],
            )
        )
        return ErrorCode.of(response.error_code)

    @property
    def partition(self) -> object:
        return self.broker.replica_manager.partitions.get(T0)

    @property
    def log_id(self) -> UUID | None:
        """The topic id of the log."""
        log = self.broker.log_manager.get(T0)
        return None if log is None else log.folder.topic_id

    def stray_ids(self) -> list[UUID | None]:
        """The topic ids of the folders that were moved aside."""
        strays = Path(self.broker.config.log_dirs[0]).glob("*-stray")
        return [read_partition_metadata(OsFiles(), f"{folder}/partition.metadata") for folder in strays]


def broker_on(store: SharedStore, tmp_path_factory: pytest.TempPathFactory) -> Broker:
    """Broker 1 on this store, not started."""
    settings = {
        "broker.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(tmp_path_factory.mktemp("data")),
        "controlled.shutdown.enable": "false",
    }
    return Broker(BrokerConfig.single_node(settings), new_metadata_store=lambda *_: store.session("1"))


@pytest.fixture
async def controlled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Controlled]:
    shared = SharedStore(session_timeout_ms=6000)
    broker = broker_on(shared, tmp_path_factory)
    await broker.start()
    controlled = Controlled(broker)
    controlled.shared = shared
    yield controlled
    await broker.stop()


async def test_a_broker_takes_the_role_that_it_is_given(controlled: Controlled) -> None:
    assert await controlled.lead(1) is ErrorCode.NONE
    partition = controlled.broker.replica_manager.partitions.get(T0)
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch, partition.isr.committed) == (True, 0, (1, OTHER))
    assert await controlled.lead(OTHER, leader_epoch=1, partition_epoch=1) is ErrorCode.NONE
    assert (partition.is_leader, partition.leader_id, partition.leader_epoch) == (False, OTHER, 1)
    assert controlled.broker.replica_manager.partitions.get(T0) is partition


@pytest.mark.parametrize("kind", ["lead", "stop", "publish"])
async def test_a_request_of_an_older_controller_changes_nothing(controlled: Controlled, kind: str) -> None:
    assert await controlled.lead(1, leader_epoch=4) is ErrorCode.NONE
    controlled.epoch = 49
    refusals = {
        "lead": lambda: controlled.lead(OTHER, leader_epoch=5, partition_epoch=9),
        "stop": lambda: controlled.stop(5, delete=True),
        "publish": lambda: controlled.publish(OTHER, leader_epoch=5),
    }
    assert await refusals[kind]() is ErrorCode.STALE_CONTROLLER_EPOCH
    partition = controlled.broker.replica_manager.partitions.get(T0)
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch) == (True, 4)
    assert controlled.broker.metadata.topic("t") is None


async def test_a_request_for_an_earlier_registration_changes_nothing(controlled: Controlled) -> None:
    earlier = controlled.broker_epoch - 1
    assert await controlled.lead(1, broker_epoch=earlier) is ErrorCode.STALE_BROKER_EPOCH
    assert controlled.partition is None
    assert await controlled.lead(1) is ErrorCode.NONE
    assert await controlled.stop(0, delete=True, broker_epoch=earlier) is ErrorCode.STALE_BROKER_EPOCH
    assert controlled.partition is not None


async def test_a_role_of_an_older_leader_epoch_is_refused_and_a_repeated_one_is_not(controlled: Controlled) -> None:
    assert await controlled.lead(1, leader_epoch=4, partition_epoch=7) is ErrorCode.NONE
    assert await controlled.lead(OTHER, leader_epoch=3, partition_epoch=8) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await controlled.lead(1, leader_epoch=4, partition_epoch=7) is ErrorCode.NONE
    partition = controlled.broker.replica_manager.partitions.get(T0)
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch) == (True, 4)


async def test_a_partition_of_other_brokers_is_refused(controlled: Controlled) -> None:
    assert await controlled.lead(OTHER, replicas=(OTHER, 3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert controlled.partition is None


async def test_a_role_in_another_topic_of_the_same_name_changes_nothing(controlled: Controlled) -> None:
    assert await controlled.lead(1) is ErrorCode.NONE
    partition = controlled.partition
    assert await controlled.lead(1, leader_epoch=5, topic_id=UUID(int=78)) is ErrorCode.INCONSISTENT_TOPIC_ID
    assert controlled.partition is partition
    assert controlled.log_id == ID
    assert await controlled.lead(OTHER, leader_epoch=5) is ErrorCode.NONE


@pytest.mark.parametrize("is_still_served", [True, False])
async def test_the_log_of_a_deleted_topic_makes_room_for_a_new_one(
    controlled: Controlled, is_still_served: bool
) -> None:
    """The topic was deleted and created again while the broker was away."""
    assert await controlled.lead(1) is ErrorCode.NONE
    if not is_still_served:
        assert await controlled.stop(0) is ErrorCode.NONE
    kind = LeaderAndIsrType.FULL if is_still_served else LeaderAndIsrType.INCREMENTAL
    assert await controlled.lead(1, topic_id=UUID(int=78), kind=kind) is ErrorCode.NONE
    assert controlled.log_id == UUID(int=78)
    assert controlled.stray_ids() == [ID]


async def test_a_failed_flush_of_a_deleted_partition_takes_nothing_offline(controlled: Controlled) -> None:
    assert await controlled.lead(1) is ErrorCode.NONE
    deleted = controlled.broker.replica_manager.partitions.find(T0)
    assert await controlled.stop(EPOCH_DURING_DELETE, delete=True) is ErrorCode.NONE
    controlled.broker.replica_manager.log_failed(deleted, OSError(errno.EIO, "the disk"))
    assert await controlled.lead(1, topic_id=UUID(int=78)) is ErrorCode.NONE
    assert controlled.partition is not None


async def test_a_stopped_replica_keeps_its_log_unless_it_is_deleted(controlled: Controlled) -> None:
    await controlled.lead(1, leader_epoch=4)
    assert await controlled.stop(3) is ErrorCode.FENCED_LEADER_EPOCH
    assert controlled.partition is not None
    assert await controlled.stop(4) is ErrorCode.NONE
    assert controlled.partition is None
    assert controlled.broker.log_manager.get(T0) is not None
    assert await controlled.stop(EPOCH_DURING_DELETE, delete=True) is ErrorCode.NONE
    assert controlled.broker.log_manager.get(T0) is None


async def test_metadata_has_the_live_brokers_and_the_partitions(controlled: Controlled) -> None:
    assert await controlled.publish(OTHER, leader_epoch=6) is ErrorCode.NONE
    metadata = controlled.broker.metadata
    state = metadata.partition("t", 0)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (OTHER, 6, (1,), 3)
    assert state.offline == (OTHER,)
    assert metadata.topic_id("t") == ID
    assert metadata.controller_id == 9
    assert list(metadata.brokers) == [1, OTHER]
    endpoint = metadata.brokers[OTHER].endpoint("PLAINTEXT")
    assert endpoint is not None
    assert (endpoint.host, endpoint.port, metadata.brokers[OTHER].rack) == ("127.0.0.1", 9002, "r")
    assert await controlled.publish(OTHER, leader_epoch=6, brokers=(1,)) is ErrorCode.NONE
    assert list(metadata.brokers) == [1]


async def test_a_deleted_topic_is_forgotten_with_its_settings(controlled: Controlled) -> None:
    await controlled.publish(1)
    controlled.broker.metadata.put_topic_config("t", {"retention.ms": "5"})
    await controlled.publish(LEADER_DURING_DELETE)
    assert controlled.broker.metadata.topic("t") is None
    assert controlled.broker.metadata.topic_config("t") == {}


async def test_topics_stay_when_a_controller_of_apache_kafka_takes_office_and_sends_the_brokers_first(
    controlled: Controlled,
) -> None:
    """For a new registration, too, its first UpdateMetadata may have no partitions; the next one has all."""
    metadata, store = controlled.broker.metadata, controlled.broker.links.store
    for name in ("t", "gone"):
        await store.create(znodes.topic_path(name))
    await controlled.publish(1, topics=("t", "gone"))
    await store.delete(znodes.topic_path("gone"))
    controlled.epoch += 1
    later = controlled.broker_epoch + 1
    assert await controlled.publish(1, topics=(), broker_epoch=later) is ErrorCode.NONE
    assert metadata.topic_names() == ["t"]
    assert await controlled.publish(OTHER, leader_epoch=7, broker_epoch=later) is ErrorCode.NONE
    assert metadata.leader_of(T0) == OTHER


async def test_the_first_metadata_of_each_controller_removes_topics_that_have_gone_from_the_store(
    controlled: Controlled,
) -> None:
    metadata, store = controlled.broker.metadata, controlled.broker.links.store
    for name in ("t", "gone"):
        await store.create(znodes.topic_path(name))
    await controlled.publish(1, topics=("t", "gone"))
    await store.delete(znodes.topic_path("gone"))
    await controlled.publish(1, topics=("t",))
    assert metadata.topic_names() == ["gone", "t"], "this controller may still report it"
    controlled.epoch += 1
    await controlled.publish(1, topics=("t",))
    assert metadata.topic_names() == ["t"]


async def test_metadata_without_partitions_is_complete_only_if_the_store_has_no_topics(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = SharedStore(session_timeout_ms=6000)
    broker = broker_on(store, tmp_path_factory)
    await broker.start()
    assert broker.metadata.is_complete
    await broker.links.store.create(znodes.topic_path("t"))  # of which its own controller makes nothing
    await broker.stop()
    broker = broker_on(store, tmp_path_factory)
    await broker.start()
    again = Controlled(broker)
    try:
        await again.publish(1, topics=())
        assert not broker.metadata.is_complete
        await again.publish(1)
        assert broker.metadata.is_complete
    finally:
        await broker.stop()


async def test_requests_are_applied_in_the_order_of_their_arrival(controlled: Controlled) -> None:
    leads = [controlled.lead(1 if n % 2 else OTHER, leader_epoch=n, partition_epoch=n) for n in range(10)]
    assert await asyncio.gather(*leads) == [ErrorCode.NONE] * 10
    partition = controlled.broker.replica_manager.partitions.get(T0)
    assert partition is not None
    assert (partition.is_leader, partition.leader_epoch) == (True, 9)


async def test_a_broker_that_is_not_registered_yet_carries_out_no_requests_for_its_predecessor(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    store = SharedStore(session_timeout_ms=6000)
    predecessor = store.session("predecessor")
    await open_store(predecessor, None, Random(1))
    spawn = Background().spawn
    registration = BrokerRegistration(
        predecessor, clock=SystemClock(), session_timeout_ms=6000, spawn=spawn, on_registered=lambda _: None
    )
    epoch = (await registration.register(BrokerInfo(1, {}))).epoch
    registration.stop()
    broker = broker_on(store, tmp_path_factory)
    starting = asyncio.create_task(broker.start())
    await until(lambda: broker.endpoints)
    controlled = Controlled(broker)
    leading = asyncio.create_task(controlled.lead(1, broker_epoch=epoch))
    publishing = asyncio.create_task(controlled.publish(1, broker_epoch=epoch))
    await asyncio.sleep(0.05)
    assert not leading.done()
    assert controlled.partition is None
    assert not controlled.broker.metadata.is_complete
    store.expire("predecessor")
    await starting
    assert await leading is ErrorCode.STALE_BROKER_EPOCH
    assert await publishing is ErrorCode.STALE_BROKER_EPOCH
    assert controlled.partition is None
    assert await controlled.lead(1) is ErrorCode.NONE
    await controlled.broker.stop()


async def test_a_full_list_of_roles_stops_the_replicas_that_it_does_not_have(controlled: Controlled) -> None:
    """Their logs stay: the topic may come back, and only a deletion removes data."""
    await controlled.lead(1)
    request = LeaderAndIsrRequest(
        controller_id=9,
        controller_epoch=controlled.epoch,
        broker_epoch=controlled.broker_epoch,
        type=LeaderAndIsrType.FULL,
        topic_states=[],
    )
    await controlled.changes.send(request)
    assert controlled.partition is None
    assert controlled.broker.log_manager.get(T0) is not None
    assert await controlled.lead(1, leader_epoch=1, kind=LeaderAndIsrType.FULL) is ErrorCode.NONE
    assert controlled.partition is not None


async def test_the_first_metadata_after_a_registration_has_all_topics(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = controlled.broker.metadata
    await controlled.publish(1)
    registration = controlled.broker.links.registration
    await registration.register(controlled.broker._registration())
    metadata.put_partitions("deleted meanwhile", UUID(int=5), {0: PartitionState(0, 1, 0, (1,), (1,))})
    await controlled.publish(1)
    assert metadata.topic_names() == ["deleted meanwhile", "t"], "the registration is the same"
    heard: list[tuple[str, TopicNews]] = []

    def topic_changed(name: str, news: TopicNews) -> Iterator[None]:
        heard.append((name, news))
        yield

    monkeypatch.setattr(controlled.broker.coordinators.groups, "topic_changed", topic_changed)
    await controlled.publish(1, broker_epoch=controlled.broker_epoch + 1)
    assert metadata.topic_names() == ["t"]
    assert heard == [("deleted meanwhile", TopicNews.VANISHED)]
    await controlled.publish(LEADER_DURING_DELETE)
    assert heard[1:] == [("t", TopicNews.DELETED)]


async def test_a_broker_that_learns_of_its_registration_late_has_all_metadata_already(controlled: Controlled) -> None:
    """The answer to the registration is lost; the controller sees it, and sends everything."""
    metadata, registration = controlled.broker.metadata, controlled.broker.links.registration
    metadata.put_partitions("other", UUID(int=5), {0: PartitionState(0, 1, 0, (1,), (1,))})
    later = controlled.broker_epoch + 1
    await controlled.lead(1)
    await controlled.lead(1, kind=LeaderAndIsrType.FULL, broker_epoch=later)
    await controlled.publish(1, broker_epoch=later)
    assert metadata.topic_names() == ["t"]
    metadata.put_partitions("new", UUID(int=6), {0: PartitionState(0, 1, 0, (1,), (1,))})
    assert registration._broker is not None
    registration._broker = registration._broker._replace(epoch=later)
    await controlled.publish(1, leader_epoch=1)
    assert metadata.topic_names() == ["new", "t"]


async def test_a_replica_whose_disk_failed_stays_offline_when_it_is_stopped(controlled: Controlled) -> None:
    """The controller stops it as soon as it knows."""
    assert await controlled.lead(1) is ErrorCode.NONE
    manager = controlled.broker.replica_manager
    manager.log_failed(manager.partitions.find(T0), OSError(errno.EIO, "the disk"))
    assert await controlled.stop(0) is ErrorCode.NONE
    assert await controlled.lead(1, leader_epoch=1, partition_epoch=1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await controlled.stop(EPOCH_DURING_DELETE, delete=True) is ErrorCode.NONE
    assert await controlled.lead(1, leader_epoch=0, topic_id=UUID(int=78)) is ErrorCode.NONE


async def test_a_partition_is_deleted_only_with_what_is_left_of_a_log_that_could_not_be_created(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = controlled.broker.log_manager
    (directory,) = logs.directories

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk")

    with monkeypatch.context() as failing:
        failing.setattr(OsFiles, "sync_file", fail)
        failing.setattr(OsFiles, "rename", fail)
        assert await controlled.lead(1) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await controlled.stop(EPOCH_DURING_DELETE, delete=True) is ErrorCode.KAFKA_STORAGE_ERROR
    assert logs.files.exists(f"{directory}/{T0}")
    assert await controlled.stop(EPOCH_DURING_DELETE, delete=True) is ErrorCode.NONE
    assert not logs.files.exists(f"{directory}/{T0}")
    assert await controlled.lead(1, topic_id=UUID(int=78)) is ErrorCode.NONE


async def test_an_append_that_waits_fails_although_the_broker_leads_again_at_once(controlled: Controlled) -> None:
    manager = controlled.broker.replica_manager
    answers: list[ErrorCode] = []
    assert await controlled.lead(1) is ErrorCode.NONE
    batch = build_batch([Record(0, 1, None, b"v")])
    manager.appends.await_acks(T0, manager.appends.append_one(T0, batch, -1, 9), answers.append, 30_000)
    assert manager.produce_purgatory.delayed == 1
    await asyncio.gather(
        controlled.lead(OTHER, leader_epoch=1, partition_epoch=1),
        controlled.lead(1, leader_epoch=2, partition_epoch=2, replicas=(1,)),
    )
    partition = manager.partitions.get(T0)
    assert partition is not None
    assert (partition.is_leader, partition.log.state.high_watermark) == (True, 1)
    await until(lambda: answers)
    assert answers == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_when_the_session_has_ended_leaderships_lapse_until_a_role_for_the_new_registration(
    controlled: Controlled,
) -> None:
    """Roles for the registration before change nothing, whenever they arrive."""
    broker, earlier = controlled.broker, controlled.broker_epoch
    assert await controlled.lead(1, leader_epoch=3, partition_epoch=2) is ErrorCode.NONE
    partition = broker.replica_manager.partitions.find(T0)
    late: list[asyncio.Future[ErrorCode]] = []

    def send_late(state: SessionState) -> None:
        if state is SessionState.LOST:
            role = controlled.lead(1, leader_epoch=3, partition_epoch=2, broker_epoch=earlier)
            late.append(asyncio.ensure_future(role))

    broker.metadata_store.add_session_listener(send_late)
    controlled.shared.expire("1")
    await until(lambda: late)
    assert await late[0] is ErrorCode.STALE_BROKER_EPOCH
    assert controlled.broker_epoch > earlier
    assert (partition.is_leader, partition.has_lapsed) == (False, True)
    assert await controlled.lead(1, leader_epoch=2, partition_epoch=9) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await controlled.lead(1, leader_epoch=3, partition_epoch=1) is ErrorCode.NONE
    assert (partition.is_leader, partition.has_lapsed) == (False, True), "an outdated assignment says nothing"
    assert await controlled.lead(1, leader_epoch=3, partition_epoch=2) is ErrorCode.NONE
    assert (partition.is_leader, partition.has_lapsed, partition.isr.committed) == (True, False, (1, OTHER))


async def test_a_lapsed_leader_that_becomes_a_follower_may_be_read_from(controlled: Controlled) -> None:
    await controlled.lead(1)
    partition = controlled.broker.replica_manager.partitions.find(T0)
    controlled.shared.expire("1")
    await until(lambda: not partition.is_leader)
    with pytest.raises(ProtocolError) as refused:
        partition.local_log(require_leader=False)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await controlled.lead(OTHER, leader_epoch=1, partition_epoch=1) is ErrorCode.NONE
    assert partition.local_log(require_leader=False) is partition.log


async def test_roles_that_are_being_taken_when_the_session_ends_are_refused(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, earlier = controlled.broker, controlled.broker_epoch
    make_logs = broker.replica_manager.make_logs

    async def ending(new_logs: Any) -> Any:
        monkeypatch.undo()
        controlled.shared.expire("1")
        await until(lambda: controlled.broker_epoch > earlier)
        return await make_logs(new_logs)

    monkeypatch.setattr(broker.replica_manager, "make_logs", ending)
    assert await controlled.lead(1) is ErrorCode.STALE_BROKER_EPOCH
    assert controlled.partition is None
    assert await controlled.lead(1) is ErrorCode.NONE


@pytest.mark.parametrize("leader", [1, OTHER])
async def test_roles_that_are_being_taken_when_the_disk_fails_leave_the_replica_offline(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    """The controller hears of it from the answer, and elects another leader. If the broker led again in the same epoch,
    it would not know what it has proposed before, and the controller may still apply that."""
    assert await controlled.lead(1) is ErrorCode.NONE
    manager = controlled.broker.replica_manager
    make_logs = manager.make_logs

    async def failing(new_logs: Any) -> Any:
        manager.log_failed(manager.partitions.find(T0), OSError(errno.ENOSPC, "the disk is full"))
        return await make_logs(new_logs)

    monkeypatch.setattr(manager, "make_logs", failing)
    epoch = 0 if leader == 1 else 1
    assert await controlled.lead(leader, leader_epoch=epoch, partition_epoch=epoch) is ErrorCode.KAFKA_STORAGE_ERROR
    assert controlled.partition is None
    assert list(manager.partitions.offline) == [T0]


async def test_settings_that_change_while_a_log_is_opened_apply_to_it(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = controlled.broker
    state = PartitionState(0, 1, 0, (1, OTHER), (1, OTHER))
    await broker.links.store.create(znodes.topic_path("t"), znodes.encode_topic(ID, [state]))
    await controlled.publish(1)
    make_logs = broker.replica_manager.make_logs

    async def slowly(new_logs: Any) -> Any:
        failures = await make_logs(new_logs)
        await broker.cluster.configs.alter_topic_config("t", to({"max.message.bytes": "2000000"}))
        return failures

    monkeypatch.setattr(broker.replica_manager, "make_logs", slowly)
    assert await controlled.lead() is ErrorCode.NONE
    partition = broker.replica_manager.partitions.get(T0)
    assert partition is not None
    assert partition.log.config.max_message_bytes == 2_000_000


async def test_a_log_that_was_opened_before_its_settings_changed_gets_them_with_its_role(
    controlled: Controlled,
) -> None:
    """A start opens all logs of the disk, and the roles may come much later."""
    broker = controlled.broker
    log = broker.log_manager.get_or_create(T0, ID, broker.cluster.settings.log_config("t"))
    state = PartitionState(0, 1, 0, (1, OTHER), (1, OTHER))
    await broker.links.store.create(znodes.topic_path("t"), znodes.encode_topic(ID, [state]))
    await controlled.publish(1)
    await broker.cluster.configs.alter_topic_config("t", to({"max.message.bytes": "2000000"}))
    assert await controlled.lead() is ErrorCode.NONE
    assert log.config.max_message_bytes == 2_000_000
