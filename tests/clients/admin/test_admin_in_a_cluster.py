"""An admin client of a cluster: it finds the controller and the coordinators, wherever they are and whatever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.groups import GroupAdmin
from odradek.clients.admin.transactions import TransactionAdmin
from odradek.clients.network_errors import Disconnected, NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType
from odradek.testing import Cluster, in_process_cluster
from tests.patience import until
from tests.wire.records import connect

SET = ConfigOperation.SET
T0 = TopicPartition("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with in_process_cluster() as cluster:
        yield cluster


def controller_of(cluster: Cluster) -> int:
    controller = cluster.controller
    assert controller is not None
    return controller


def another(cluster: Cluster) -> int:
    """A broker that is not the controller."""
    return next(broker_id for broker_id in cluster.running if broker_id != cluster.controller)


async def own_setting(admin: AdminClient, kind: ConfigResourceType, name: str, setting: str) -> str | None:
    configs = await admin.describe_configs(kind, name)
    return next(one.value for one in configs if one.name == setting)


async def test_changes_reach_the_controller_through_any_broker(cluster: Cluster) -> None:
    async with AdminClient(cluster.bootstrap_of(another(cluster))) as admin:
        await admin.create_topic(NewTopic("t", 2))
        await admin.create_partitions(NewPartitions("t", 3))
        await cluster.wait_for_leader("t", 2)
        assert len((await admin.topic("t")).partitions) == 3
        await admin.delete_topic("t")
        await until(lambda: all(broker.metadata.topic("t") is None for broker in cluster.brokers.values()))


async def test_another_broker_does_not_say_that_a_topic_to_delete_is_unknown(cluster: Cluster) -> None:
    """It may have started just now, and not know the topic yet."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(name="t"), DeleteTopicsRequest.DeleteTopicState(topic_id=uuid4())],
        timeout_ms=1000,
    )
    async with await connect(cluster.bootstrap_of(another(cluster))) as client:
        response = await client.send(request, version=6, timeout_ms=5000)
    assert [result.error_code for result in response.responses] == [ErrorCode.NOT_CONTROLLER] * 2


async def test_a_new_controller_is_found_after_the_old_one_was_killed(cluster: Cluster) -> None:
    first = controller_of(cluster)
    async with AdminClient(cluster.bootstrap_of(another(cluster))) as admin:
        await admin.create_topic(NewTopic("first"))
        cluster.kill(first)
        await asyncio.sleep(0.01)  # the client learns that its connection has ended
        await admin.create_topic(NewTopic("second", replication_factor=2))
        assert cluster.controller not in (None, first)
        await cluster.start(first)
        await cluster.wait_until_stable()
        assert [topic.name for topic in await admin.topics()] == ["first", "second"]


async def test_a_controller_that_has_moved_is_found_again(cluster: Cluster) -> None:
    first = controller_of(cluster)
    async with AdminClient(cluster.bootstrap_of(first)) as admin:
        await admin.create_topic(NewTopic("first"))
        cluster.store.expire(f"broker-{first}")
        await cluster.wait_until(lambda: cluster.controller not in (None, first))
        await admin.create_topic(NewTopic("second", replication_factor=1))


async def test_a_broker_that_is_cut_off_and_names_the_old_controller_is_not_asked_again(cluster: Cluster) -> None:
    first, cut_off = controller_of(cluster), another(cluster)
    third = next(broker_id for broker_id in cluster.ids if broker_id not in (first, cut_off))
    async with AdminClient(f"{cluster.bootstrap_of(cut_off)},{cluster.bootstrap_of(third)}") as admin:
        await admin.describe_cluster()
        cluster.cut_off(cut_off)
        cluster.kill(first)
        await cluster.wait_until(lambda: cluster.controller == third)
        await admin.create_topic(NewTopic("t", replication_factor=1))
        assert cluster.brokers[cut_off].metadata.controller_id == first
        assert cluster.brokers[third].metadata.topic("t") is not None


async def test_without_a_controller_changes_fail_at_the_timeout() -> None:
    async with in_process_cluster(settings={"zookeeper.session.timeout.ms": 60_000}) as cluster:
        cluster.kill(controller_of(cluster))
        async with AdminClient(cluster.bootstrap_of(another(cluster)), timeout_ms=300) as admin:
            with pytest.raises(NodeUnreachable, match="cannot connect to"):
                await admin.create_topic(NewTopic("t"))


async def test_queries_go_on_at_another_broker_when_one_is_lost(cluster: Cluster) -> None:
    lost = another(cluster)
    async with AdminClient(cluster.bootstrap_of(lost)) as admin:
        assert len(await admin.broker_ids()) == 3
        cluster.kill(lost)
        assert (await admin.describe_cluster()).controller_id == cluster.controller
    async with AdminClient(cluster.bootstrap_of(lost)) as admin:
        with pytest.raises(NodeUnreachable):
            await admin.describe_cluster()


async def test_with_one_address_and_no_other_broker_a_lost_connection_is_an_error() -> None:
    async with in_process_cluster(brokers=1) as cluster, AdminClient(cluster.bootstrap) as admin:
        await admin.describe_cluster()
        cluster.kill(1)
        with pytest.raises((Disconnected, NodeUnreachable)):
            await admin.describe_cluster()


async def test_settings_of_a_broker_are_asked_of_that_broker_and_those_of_a_topic_of_any(cluster: Cluster) -> None:
    await cluster.create_topic("t")
    async with AdminClient(cluster.bootstrap) as admin:
        for broker_id in cluster.ids:
            change = ("log.cleaner.threads", SET, str(broker_id))
            await admin.alter_configs(ConfigResourceType.BROKER, str(broker_id), [change])
        for broker_id in cluster.ids:
            name = str(broker_id)
            assert await own_setting(admin, ConfigResourceType.BROKER, name, "broker.id") == name
            assert await own_setting(admin, ConfigResourceType.BROKER, name, "log.cleaner.threads") == name
        await admin.alter_configs(ConfigResourceType.TOPIC, "t", [("retention.ms", SET, "1000")])
        for broker_id in cluster.ids:
            known = cluster.brokers[broker_id].metadata
            await until(lambda known=known: known.topic_config("t") == {"retention.ms": "1000"})
        with pytest.raises(ProtocolError) as refusal:
            await admin.describe_configs(ConfigResourceType.BROKER, "one")
        assert refusal.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(NodeUnreachable, match="does not know broker 7"):
            await admin.describe_configs(ConfigResourceType.BROKER, "7")


async def test_log_directories_are_those_of_all_brokers(cluster: Cluster) -> None:
    await cluster.create_topic("t", assignments={0: [1, 2]})
    async with AdminClient(cluster.bootstrap) as admin:
        found = await admin.describe_log_dirs()
    assert {broker: [one.log_dir for one in logs] for broker, logs in found.items()} == {
        broker_id: [str(cluster.data_dir(broker_id))] for broker_id in cluster.ids
    }
    assert [[topic.name for topic in logs[0].topics] for logs in found.values()] == [["t"], ["t"], []]


async def test_reassignments_under_way_are_listed(cluster: Cluster) -> None:
    await cluster.create_topic("t", assignments={0: [1, 2]})
    cluster.freeze_replication(3)
    controller = controller_of(cluster)
    await cluster.run(controller, cluster.brokers[controller].controller.replicas.reassign({T0: [1, 3]}))
    async with AdminClient(cluster.bootstrap_of(another(cluster))) as admin:
        ((key, reassignment),) = (await admin.reassignments()).items()
        assert (key, reassignment.adding_replicas, reassignment.removing_replicas) == (T0, [3], [2])
        cluster.thaw(3)
        await cluster.wait_for_isr("t", 0, {1, 3})
        await cluster.wait_until_stable()
        assert await admin.reassignments() == {}


async def test_groups_are_found_at_their_coordinators_even_if_these_move(cluster: Cluster) -> None:
    await cluster.create_topic("t")
    names = [f"group-{number}" for number in range(6)]
    async with AdminClient(cluster.bootstrap_of(1)) as admin:
        groups = GroupAdmin(admin)
        for number, name in enumerate(names):
            await groups.commit(name, {T0: number})
        listed = await groups.list_groups()
        assert [group.group_id for group in listed] == names
        assert len({group.coordinator for group in listed}) > 1
        killed = next(group.coordinator for group in listed if group.coordinator != 1)
        cluster.kill(killed)
        for number, name in enumerate(names):
            assert await groups.committed(name) == {T0: number}
            assert (await groups.describe(name)).coordinator != killed
        await groups.delete(names[0])
        assert [group.group_id for group in await groups.list_groups()] == names[1:]


async def test_offsets_are_asked_of_the_leaders(cluster: Cluster) -> None:
    await cluster.create_topic("t", assignments={0: [1, 2], 1: [2, 3], 2: [3, 1]})
    async with AdminClient(cluster.bootstrap_of(1)) as admin:
        groups = GroupAdmin(admin)
        keys = await groups.partitions_of("t")
        assert await groups.offsets_at(keys, -1) == dict.fromkeys(keys, 0)


async def test_transactions_are_found_at_their_coordinators(cluster: Cluster) -> None:
    names = [f"transaction-{number}" for number in range(6)]
    async with AdminClient(cluster.bootstrap_of(1)) as admin:
        for name in names:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            _, response = await admin.ask_coordinator(CoordinatorType.TRANSACTION, name, request)
            assert response.error_code == ErrorCode.NONE
        transactions = TransactionAdmin(admin)
        listed = await transactions.list_transactions()
        assert [one.transactional_id for one in listed] == names
        assert len({one.coordinator for one in listed}) > 1
        for one in listed:
            assert (await transactions.describe(one.transactional_id)).coordinator == one.coordinator
