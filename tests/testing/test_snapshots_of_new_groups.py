"""Snapshots and resets of brokers with groups whose assignments the broker makes, their settings, and features."""

from __future__ import annotations

from typing import Any

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.features.features import GROUP_VERSION, TRANSACTION_VERSION
from odradek.broker.server import Broker
from odradek.clients.admin.client import AdminClient
from odradek.clients.admin.described_groups import DescribedGroup
from odradek.clients.admin.features import FeatureAdmin
from odradek.clients.admin.groups import GroupAdmin
from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType, CoordinatorType, UpgradeType
from odradek.testing import in_process_broker, in_process_cluster
from tests.broker.replica.test_over_sockets import client_of
from tests.patience import until
from tests.testing.test_snapshots import FEW

SETTINGS: dict[str, Any] = {**FEW, "group_consumer_assignment_interval_ms": 0}
LONGER = "60000"


async def beat(broker: Broker, member_id: str, epoch: int, **fields: Any) -> Any:
    async with client_of(broker) as client:
        request = ConsumerGroupHeartbeatRequest(group_id="readers", member_id=member_id, member_epoch=epoch, **fields)
        response = await client.call(request, 1)
        assert response.error_code == 0, response
        return response


async def join(broker: Broker, member_id: str, **fields: Any) -> Any:
    joins = {"rebalance_timeout_ms": 300_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    return await beat(broker, member_id, 0, **{**joins, **fields})


async def committed_by(broker: Broker, member_id: str, epoch: int, offset: int) -> int:
    """Commits an offset of partition 0 by the topic's id; returns the error code."""
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(
        topic_id=broker.metadata.topic_id("orders"), partitions=[partition]
    )
    request = OffsetCommitRequest(
        group_id="readers", generation_id_or_member_epoch=epoch, member_id=member_id, topics=[topic]
    )
    async with client_of(broker) as client:
        return int((await client.call(request, 10)).topics[0].partitions[0].error_code)


async def offset(broker: Broker) -> int:
    """The committed offset of partition 0, by the topic's id."""
    topic = OffsetFetchRequest.OffsetFetchRequestTopics(
        topic_id=broker.metadata.topic_id("orders"), partition_indexes=[0]
    )
    group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="readers", topics=[topic])
    async with client_of(broker) as client:
        (found,) = (await client.call(OffsetFetchRequest(groups=[group]), 10)).groups
        return int(found.topics[0].partitions[0].committed_offset)


async def described(admin: AdminClient) -> DescribedGroup:
    await admin.coordinator(CoordinatorType.GROUP, "readers")
    return await GroupAdmin(admin).describe("readers")


async def levels(admin: AdminClient) -> dict[str, int]:
    return {feature.name: feature.finalized for feature in (await FeatureAdmin(admin).describe()).features}


async def amid_a_rebalance(broker: Broker, admin: AdminClient) -> None:
    """A static member must give up partitions, for which another one waits; one more resolves a regular expression."""
    await admin.coordinator(CoordinatorType.GROUP, "readers")
    await admin.alter_configs(
        ConfigResourceType.GROUP, "readers", [("consumer.session.timeout.ms", ConfigOperation.SET, LONGER)]
    )
    await join(broker, "a", instance_id="one", rack_id="r")
    assert await committed_by(broker, "a", 2, 7) == 0
    await join(broker, "b", subscribed_topic_names=None, subscribed_topic_regex="ord.*")

    async def is_assigned() -> bool:
        return (await described(admin)).state == "Reconciling"

    await until(is_assigned)
    await beat(broker, "a", 2, instance_id="one")


async def test_a_fork_goes_on_with_the_rebalance_of_a_group() -> None:
    async with in_process_broker(**SETTINGS) as broker, AdminClient(broker.bootstrap) as admin:
        await broker.seed({"orders": [b"an order"]}, partitions=4)
        await amid_a_rebalance(broker, admin)
        before = await described(admin)
        with await broker.snapshot() as snapshot:
            await beat(broker, "a", -1, instance_id="one")
            await beat(broker, "b", -1)
            await GroupAdmin(admin).delete("readers")
            async with in_process_broker(snapshot=snapshot, **SETTINGS) as fork, AdminClient(fork.bootstrap) as other:
                after = await described(other)
                assert after == before._replace(coordinator=fork.broker_id)
                first, second = after.members
                assert (first.gives_up, second.waits_for) == (second.waits_for, first.gives_up)
                assert len(first.gives_up) == 2
                assert (first.group_instance_id, second.subscribed_regex) == ("one", "ord.*")
                assert await offset(fork) == 7
                group = next(group for shard in fork.coordinators.groups.shards() for group in shard.groups.values())
                assert isinstance(group, ConsumerGroup)
                session = group.session_of("a")
                assert session is not None
                assert session.timeout_ms == int(LONGER)
                step = group.step_of("a")
                assert step is not None, "its rebalance timeout runs"

                await beat(fork, "a", 2, instance_id="one", topic_partitions=[])
                (given,) = (await beat(fork, "b", second.epoch or 0)).assignment.topic_partitions
                assert [f"orders-{number}" for number in given.partitions] == list(map(str, second.waits_for))
                assert (await described(other)).state == "Stable"
                assert await committed_by(fork, "a", 1, 8) != 0, "the epoch is fenced as before"


async def test_a_fork_has_the_levels_of_features_and_a_reset_brings_them_back() -> None:
    async with in_process_broker(**SETTINGS) as broker, AdminClient(broker.bootstrap) as admin:
        changed = {GROUP_VERSION: 0, TRANSACTION_VERSION: 1}
        await FeatureAdmin(admin).update(changed, UpgradeType.SAFE_DOWNGRADE)
        epoch = (await FeatureAdmin(admin).describe()).epoch
        with await broker.snapshot() as snapshot:
            await broker.reset()
            async with AdminClient(broker.bootstrap) as again:
                found = await levels(again)
                assert (found[GROUP_VERSION], found[TRANSACTION_VERSION]) == (1, 2), "those of a new broker"
            async with in_process_broker(snapshot=snapshot, **SETTINGS) as fork, AdminClient(fork.bootstrap) as other:
                assert changed.items() <= (await levels(other)).items()
                assert (await FeatureAdmin(other).describe()).epoch == epoch
                await FeatureAdmin(other).update({GROUP_VERSION: 1}, UpgradeType.UPGRADE)
                await fork.reset()
                async with AdminClient(fork.bootstrap) as again:
                    assert changed.items() <= (await levels(again)).items(), "those of the snapshot"


async def test_a_fork_of_a_cluster_has_its_groups_and_features() -> None:
    settings = {**SETTINGS, "offsets_topic_num_partitions": 1}
    async with in_process_cluster(**settings) as cluster, AdminClient(cluster.bootstrap) as admin:
        await cluster.create_topic("orders", 4)
        await FeatureAdmin(admin).update({TRANSACTION_VERSION: 1}, UpgradeType.SAFE_DOWNGRADE)
        coordinator = await admin.coordinator(CoordinatorType.GROUP, "readers")
        await amid_a_rebalance(cluster.brokers[coordinator], admin)
        before = await described(admin)
        snapshot = await cluster.snapshot()
        async with in_process_cluster(snapshot=snapshot, **settings) as fork, AdminClient(fork.bootstrap) as other:
            assert await described(other) == before
            assert (await levels(other))[TRANSACTION_VERSION] == 1
            assert await offset(fork.brokers[coordinator]) == 7
