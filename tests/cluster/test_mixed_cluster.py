"""One Apache Kafka broker and two of ours in one cluster, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import kafka
import pytest

from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.producers import InitProducerIdRequest
from tests.cluster.agreement import assert_replicas_agree
from tests.cluster.cluster import View
from tests.cluster.mixed_cluster import APACHE, JVM, MixedCluster, mixed_cluster
from tests.cluster.writer import Writer
from tests.patience import block_until
from tests.wire.blocking_client import Client
from tests.zookeeper.stores import new_chroot, store_at

BROKERS = (APACHE, 2, 3)
PARTITIONS = 3
TOOL_S = 60

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[MixedCluster]:
    with mixed_cluster(kafka_control, zookeeper + new_chroot(), tmp_path, brokers=len(BROKERS)) as cluster:
        yield cluster


def topic_command(java_tools: Sequence[str], bootstrap: str, *arguments: str) -> str:
    """What Kafka's TopicCommand prints."""
    command = [*java_tools, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, *arguments]
    environment = {**os.environ, "KOPTS": JVM}
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=TOOL_S, env=environment)
    return run.stdout


def create(java_tools: Sequence[str], cluster: MixedCluster, broker_id: int, topic: str) -> None:
    """Creates a topic through one broker."""
    sizes = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
    printed = topic_command(java_tools, cluster.nodes[broker_id].address, "--create", "--topic", topic, *sizes)
    assert printed.strip() == f"Created topic {topic}."
    cluster.until(lambda view: sum(key.topic == topic for key in view.partitions) == PARTITIONS and view.is_whole(3))


def producer_id(cluster: MixedCluster, broker_id: int) -> int:
    """A new producer id of a broker, which asks the controller for a block of them. Apache's broker does not wait for
    the controller.
    """
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    found: list[int] = []

    def is_given() -> bool:
        with Client(cluster.nodes[broker_id].address) as connection:
            answer = connection.ask(request)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        found.append(answer.producer_id)
        return bool(answer.error_code == ErrorCode.NONE)

    block_until(is_given)
    return found[-1]


def leaders(view: View) -> set[int]:
    """The brokers that lead partitions that all brokers have."""
    return {state.leader for state in view.partitions.values() if len(state.replicas) == len(BROKERS)}


def read_with_a_group(cluster: MixedCluster, topic: str, count: int) -> None:
    """Reads so many records as a member of a group, whose offsets are replicated by all brokers."""
    consumer = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=cluster.bootstrap.split(","),
        group_id="readers",
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        found = sum(1 for _, _ in zip(range(count), consumer, strict=False))
        consumer.commit()
    finally:
        consumer.close()
    assert found == count


async def assert_entries_are_as_we_write_them(zookeeper: str) -> None:
    """Apache's controller has written these entries. Ours would write them byte for byte."""
    store = store_at(zookeeper)
    await store.open()

    async def data(path: str) -> bytes:
        return (await store.get(path)).data or b""

    for broker_id in BROKERS:
        registration = await data(znodes.broker_path(broker_id))
        broker = znodes.parse_broker(broker_id, registration, 0)
        assert registration == znodes.encode_broker(broker, int(json.loads(registration)["timestamp"]))
    for topic in ("of-apache", "of-ours"):
        entry = await data(znodes.topic_path(topic))
        topic_id, replicas, _, _ = znodes.parse_topic(topic, entry)
        assert topic_id is not None
        states = []
        for partition, brokers in replicas.items():
            stored = await data(znodes.state_path(topic, partition))
            states.append(znodes.parse_state(topic, partition, brokers, stored, 0))
            assert stored == znodes.encode_state(states[-1])
        assert entry == znodes.encode_topic(topic_id, states)
        assert await data(znodes.topic_config_path(topic)) == znodes.encode_config({})
    controller = await data(znodes.CONTROLLER)
    assert controller == znodes.encode_controller(APACHE, int(json.loads(controller)["timestamp"]))
    assert await data(znodes.FEATURE) == znodes.encode_features({})
    await store.close()


def test_brokers_of_both_kinds_replace_each_other(cluster: MixedCluster, java_tools: list[str]) -> None:
    for broker_id, topic in ((APACHE, "of-apache"), (2, "of-ours")):
        create(java_tools, cluster, broker_id, topic)
    assert leaders(cluster.view(APACHE)) == set(BROKERS)
    asyncio.run(assert_entries_are_as_we_write_them(cluster.zookeeper))
    ids = [producer_id(cluster, broker_id) for broker_id in cluster.nodes]
    writers = [Writer(cluster.bootstrap, topic, PARTITIONS, per_second=300) for topic in ("of-apache", "of-ours")]
    try:
        for writer in writers:
            writer.until_acknowledged(50)

        cluster.terminate(APACHE)
        controller = cluster.until_replaced(APACHE).controller
        create_without_apache(cluster)
        for writer in writers:
            writer.until_acknowledged(50)
        cluster.launch(APACHE)
        cluster.until_whole()
        assert cluster.controller() == controller
        cluster.elect_preferred_leaders()
        ids += [producer_id(cluster, broker_id) for broker_id in cluster.nodes]

        other = next(broker_id for broker_id in cluster.ours if broker_id != controller)
        cluster.terminate(other)
        cluster.terminate(controller)
        cluster.until(lambda view: view.controller == APACHE and leaders(view) == {APACHE})
        for broker_id in cluster.ours:
            cluster.launch(broker_id)
        cluster.until_whole()
        for writer in writers:
            writer.until_acknowledged(50)
        cluster.elect_preferred_leaders()
        ids += [producer_id(cluster, broker_id) for broker_id in cluster.nodes]
    finally:
        for writer in writers:
            writer.finish()
    assert len(set(ids)) == len(ids)
    for writer in writers:
        writer.assert_written_once_and_in_order(cluster.bootstrap)
        read_with_a_group(cluster, writer.topic, writer.count * PARTITIONS)
    assert_replicas_agree(cluster, java_tools)


def create_without_apache(cluster: MixedCluster) -> None:
    """A topic that Apache's broker learns of when it starts, and whose settings a broker of ours has written."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        admin.create_topics([kafka.admin.NewTopic("later", 1, 2, topic_configs={"retention.ms": "86400000"})])
    finally:
        admin.close()
    cluster.until(lambda view: any(key.topic == "later" for key in view.partitions))
