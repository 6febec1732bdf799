"""What an administrator does to a cluster: partitions are moved, topics deleted, and the controller changes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore, NoEntry
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.cluster.cluster import Cluster
from tests.patience import block_until, until
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of
from tests.zookeeper.stores import store_at

TIMEOUT_MS = 20_000


def of_controller(cluster: Cluster, request: Message) -> Any:
    """What the controller answers."""
    with Client(cluster.nodes[cluster.controller()].address) as connection:
        return connection.ask(request)


def reassign(cluster: Cluster, topic: str, partition: int, *brokers: int) -> None:
    """Moves a partition to these brokers; waits until it is there."""
    one = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=list(brokers))
    topics = [AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[one])]
    request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=topics)
    answer = of_controller(cluster, request)
    assert field_of(answer, "responses.partitions.error_code") == ErrorCode.NONE, answer
    key = TopicPartition(topic, partition)
    cluster.until(
        lambda view: view.partitions[key].replicas == brokers and view.partitions[key].isr == frozenset(brokers)
    )


def let_lead(cluster: Cluster, topic: str, partition: int, broker_id: int) -> None:
    """Makes a replica the preferred leader and elects it; waits until all brokers know it."""
    key = TopicPartition(topic, partition)
    others = [each for each in cluster.view(cluster.running[0]).partitions[key].replicas if each != broker_id]
    reassign(cluster, topic, partition, broker_id, *others)
    chosen = [ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])]
    request = ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=TIMEOUT_MS)
    of_controller(cluster, request)
    cluster.until(lambda view: view.partitions[key].leader == broker_id)


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Deletes a topic; waits until no broker knows it, or has more than folders that are to be removed later."""
    request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=TIMEOUT_MS)
    answer = of_controller(cluster, request)
    assert field_of(answer, "responses.error_code") == ErrorCode.NONE, answer
    cluster.until(lambda view: all(key.topic != topic for key in view.partitions))
    block_until(lambda: not any(path for node in cluster.nodes.values() for path in node.data.glob(f"{topic}-[0-9]")))


async def let_control(cluster: Cluster, zookeeper: str, *wanted: int) -> int:
    """Deletes the controller's entry until one of these brokers is elected. Returns it when all brokers know it."""
    store = store_at(zookeeper)
    await store.open()
    try:
        while (controller := await elected(store)) not in wanted:
            with contextlib.suppress(NoEntry):
                await store.delete(znodes.CONTROLLER)
    finally:
        await store.close()
    cluster.until(lambda view: view.controller == controller)
    return controller


async def elected(store: MetadataStore) -> int:
    """The controller that ZooKeeper names, as soon as there is one."""
    await until(lambda: store.exists(znodes.CONTROLLER))
    entry = await store.get(znodes.CONTROLLER)
    return int(json.loads(entry.data or b"")["brokerid"])
