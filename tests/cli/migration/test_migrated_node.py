"""A node that was used for everything is migrated, starts on ZooKeeper as it was, and becomes a cluster of two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewPartitions, NewTopic

from odradek.broker.metadata_store import znodes
from odradek.broker.server import Broker
from odradek.cli.__main__ import main
from odradek.clients.admin.client import AdminClient
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from odradek.testing import in_process_broker
from tests.patience import until
from tests.wire.records import connect
from tests.zookeeper.model import ZooKeeperModel
from tests.zookeeper.stores import new_chroot

NODE, OTHER = 5, 6
SMALL = {"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2, "num.partitions": 1}
SETTINGS = {**SMALL, "broker.id": NODE}
ORDERS, COPIES, DOOMED = "orders", "copies", "doomed"
PARTITIONS, RECORDS = 4, 30
WAIT_S = 30
"""How long a client may take, on a machine that is busy."""


@pytest.fixture(params=["model", pytest.param("ZooKeeper", marks=pytest.mark.programs)])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """The value of zookeeper.connect."""
    if request.param == "ZooKeeper":
        yield request.getfixturevalue("zookeeper") + new_chroot()
    else:
        async with ZooKeeperModel().served() as address:
            yield address + new_chroot()


async def test_a_node_becomes_a_cluster_and_loses_nothing(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    async with in_process_broker(SETTINGS, data_dir=data) as broker:
        await use(broker)
        before = known(broker)
        producer_id = await new_producer_id(broker)
        epoch = await controller_epoch(broker)
        assert await asyncio.to_thread(migrate, data, place) == 1
        assert f"{data} is in use by another broker" in capsys.readouterr().err
    assert await asyncio.to_thread(migrate, data, place) == 0
    assert "compared: all" in capsys.readouterr().out

    async with contextlib.AsyncExitStack() as node:
        broker = await node.enter_async_context(in_process_broker(on(place, NODE), data_dir=data))
        assert known(broker) == before
        assert await controller_epoch(broker) == epoch + 1
        assert await new_producer_id(broker) > producer_id
        await asyncio.to_thread(go_on, broker.bootstrap)
        async with in_process_broker(on(place, OTHER), data_dir=tmp_path / "other") as other:
            await reassign(broker, [NODE, OTHER])
            await until(lambda: in_sync(other) == in_sync(broker) == {frozenset({NODE, OTHER})})
            await node.aclose()
            await until(lambda: leaders(other) == {OTHER})
            await asyncio.to_thread(check_records, other.bootstrap)
            await new_producer_id(other)


@pytest.mark.programs
async def test_kafkas_tool_describes_a_migrated_node_as_before(
    zookeeper: str, java_tools: list[str], tmp_path: Path
) -> None:
    data, place = tmp_path / "data", zookeeper + new_chroot()

    async def described(broker: Broker) -> str:
        command = [*java_tools, "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", broker.bootstrap]
        options = {**os.environ, "KOPTS": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
        ended = await asyncio.to_thread(
            subprocess.run, [*command, "--describe"], check=True, capture_output=True, text=True, env=options
        )
        return ended.stdout

    async with in_process_broker(SETTINGS, data_dir=data) as broker:
        await use(broker)
        before = await described(broker)
    assert await asyncio.to_thread(migrate, data, place) == 0
    async with in_process_broker(on(place, NODE), data_dir=data) as broker:
        assert await described(broker) == before
    assert f"Topic: {ORDERS}\tTopicId: " in before


def migrate(data: Path, place: str) -> int:
    """The command's status."""
    return main(["cluster", "migrate", "--data-dir", str(data), "--zookeeper-connect", place])


def on(place: str, broker_id: int) -> dict[str, object]:
    return {**SMALL, "zookeeper.connect": place, "broker.id": broker_id, "zookeeper.connection.timeout.ms": 20_000}


# What is done


async def use(broker: Broker) -> None:
    """Topics, settings, records, a group, transactions."""
    await asyncio.to_thread(use_as_client, broker.bootstrap)
    async with AdminClient(broker.bootstrap) as admin:
        for name, setting in (("", "message.max.bytes"), (str(NODE), "log.cleaner.threads")):
            value = "2" if name else "2000000"
            await admin.alter_configs(ConfigResourceType.BROKER, name, [(setting, ConfigOperation.SET, value)])
        await admin.delete_topic(DOOMED)


def use_as_client(bootstrap: str) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 3, 1, config={"retention.ms": "100000000"}) for name in (ORDERS, COPIES, DOOMED)]
    for future in admin.create_topics(topics).values():
        future.result(WAIT_S)
    admin.create_partitions([NewPartitions(ORDERS, PARTITIONS)])[ORDERS].result(WAIT_S)
    produce(bootstrap, "first")
    assert read_by_group(bootstrap) == texts("first")
    producer = transactional(bootstrap)
    for text, ends in (("committed", True), ("aborted", False)):
        producer.begin_transaction()
        producer.produce(COPIES, text)
        producer.flush(WAIT_S)
        (producer.commit_transaction if ends else producer.abort_transaction)(WAIT_S)
    producer.begin_transaction()
    producer.produce(COPIES, "left open")
    producer.flush(WAIT_S)


def go_on(bootstrap: str) -> None:
    """The group goes on behind what it has committed, and the transactional id takes over what was left open."""
    produce(bootstrap, "second")
    assert read_by_group(bootstrap) == texts("second")
    producer = transactional(bootstrap)
    producer.begin_transaction()
    producer.produce(COPIES, "committed later")
    producer.commit_transaction(WAIT_S)
    check_records(bootstrap)


def check_records(bootstrap: str) -> None:
    assert read(bootstrap, ORDERS, 2 * RECORDS) == {*texts("first"), *texts("second")}
    assert read(bootstrap, COPIES, 2) == {"committed", "committed later"}
    group = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    committed = group.committed([confluent_kafka.TopicPartition(ORDERS, n) for n in range(PARTITIONS)], WAIT_S)
    group.close()
    assert sum(each.offset for each in committed) == 2 * RECORDS


def texts(prefix: str) -> set[str]:
    return {f"{prefix}-{number}" for number in range(RECORDS)}


def produce(bootstrap: str, prefix: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number, text in enumerate(sorted(texts(prefix))):
        producer.produce(ORDERS, text, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def transactional(bootstrap: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "copier"})
    producer.init_transactions(WAIT_S)
    return producer


def read_by_group(bootstrap: str) -> set[str]:
    """What a member of the group reads, and commits."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    consumer.subscribe([ORDERS])
    found = consumed(consumer, RECORDS)
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def read(bootstrap: str, topic: str, count: int) -> set[str]:
    """The first records that are committed; there must be so many."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "nobody", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(PARTITIONS if topic == ORDERS else 3)])
    found = consumed(consumer, count)
    consumer.close()
    return found


def consumed(consumer: confluent_kafka.Consumer, count: int) -> set[str]:
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"nothing after {found}"
        assert message.error() is None, message.error()
        found.append((message.value() or b"").decode())
    return set(found)


# What is found


def known(broker: Broker) -> dict[str, Any]:
    """Everything about topics and settings, with the leader epochs; not the epochs of controllers, which grow."""
    metadata = broker.metadata
    names = sorted(metadata.topic_names())
    assert {ORDERS, COPIES, "__consumer_offsets", "__transaction_state"} == set(names)
    topics = {}
    for name in names:
        topic = metadata.topic(name)
        assert topic is not None
        states = {
            number: (state.leader, state.leader_epoch, state.replicas, state.isr)
            for number, state in topic.partitions.items()
        }
        topics[name] = (topic.topic_id, states, dict(metadata.topic_config(name)))
    settings = {broker_id: dict(metadata.broker_config(broker_id)) for broker_id in (None, NODE)}
    assert all(settings.values())
    return {"cluster": metadata.cluster_id, "topics": topics, "settings": settings}


async def controller_epoch(broker: Broker) -> int:
    entry = await broker.metadata_store.get(znodes.CONTROLLER_EPOCH)
    return znodes.parse_epoch(znodes.CONTROLLER_EPOCH, entry.data)


async def new_producer_id(broker: Broker) -> int:
    async with await connect(broker.bootstrap) as client:
        response = await client.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
    assert response.error_code == ErrorCode.NONE
    return int(response.producer_id)


async def reassign(broker: Broker, replicas: list[int]) -> None:
    """All partitions, those of internal topics, too."""
    topics = [
        AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=name,
            partitions=[
                AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=number, replicas=replicas)
                for number in topic.partitions
            ],
        )
        for name in broker.metadata.topic_names()
        if (topic := broker.metadata.topic(name)) is not None
    ]
    async with await connect(broker.bootstrap) as client:
        response = await client.send(AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=20_000))
    assert response.error_code == ErrorCode.NONE
    assert {each.error_code for topic in response.responses for each in topic.partitions} == {0}


def in_sync(broker: Broker) -> set[frozenset[int]]:
    metadata = broker.metadata
    topics = [metadata.topic(name) for name in metadata.topic_names()]
    return {frozenset(state.isr) for topic in topics if topic is not None for state in topic.partitions.values()}


def leaders(broker: Broker) -> set[int]:
    metadata = broker.metadata
    topics = [metadata.topic(name) for name in metadata.topic_names()]
    return {state.leader for topic in topics if topic is not None for state in topic.partitions.values()}
