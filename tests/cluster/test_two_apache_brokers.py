"""Two Apache Kafka brokers and one of ours in one cluster, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Position

from odradek.broker.coordinator.runtime.runtime import partition_for
from odradek.protocol.records import Record, build_batch
from odradek.protocol.topic_partition import TopicPartition
from tests.clients.transactions import read_committed
from tests.cluster.administration import delete_topic, let_control, let_lead, reassign
from tests.cluster.agreement import assert_replicas_agree, stored
from tests.cluster.cluster import TRANSACTION
from tests.cluster.kafka_tools.stage import FIRST_TIMESTAMP
from tests.cluster.mixed_cluster import OF_THE_CLUSTER, MixedCluster, mixed_cluster
from tests.cluster.test_mixed_cluster import leaders, producer_id
from tests.cluster.writer import Writer
from tests.patience import block_until
from tests.wire.blocking_client import Client
from tests.wire.coordinators import field_of
from tests.wire.requests import produce
from tests.zookeeper.stores import new_chroot

ONE, TWO, OURS = BROKERS = (1, 2, 3)
"""The first two are Apache's."""
PARTITIONS = 3
SETTINGS = {
    **OF_THE_CLUSTER,
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "1500",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
}
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"
LOST, KEPT = 10, 4
"""Records."""

LOADING = ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")
R = TypeVar("R")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(quick_zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[MixedCluster]:
    connect = quick_zookeeper + new_chroot()
    with mixed_cluster(kafka_control, connect, tmp_path, apache=(ONE, TWO), settings=SETTINGS) as cluster:
        yield cluster


def test_brokers_of_both_kinds_do_the_same(cluster: MixedCluster, java_tools: list[str]) -> None:
    cluster.create_topic("written", PARTITIONS)
    cluster.until_coordinator("any", TRANSACTION)
    writer = Writer(cluster.bootstrap, "written", PARTITIONS, per_second=300)
    try:
        writer.until_acknowledged(20)
        ids = [producer_id(cluster, broker_id) for broker_id in BROKERS]
        for controller, name in ((ONE, "apache"), (OURS, "ours")):
            asyncio.run(let_control(cluster, cluster.zookeeper, controller))
            topics_come_and_go(cluster, name)
            isrs_shrink_and_grow(cluster, name)
            ids += [producer_id(cluster, broker_id) for broker_id in BROKERS]
        groups_move(cluster)
        transactions_move(cluster)
        asyncio.run(let_control(cluster, cluster.zookeeper, TWO))
        tails_diverge(cluster, ONE, OURS)
        tails_diverge(cluster, OURS, ONE)
        writer.until_acknowledged(20)
    finally:
        writer.finish()
    assert len(set(ids)) == len(ids)
    writer.assert_written_once_and_in_order(cluster.bootstrap)
    assert_replicas_agree(cluster, java_tools)


def topics_come_and_go(cluster: MixedCluster, name: str) -> None:
    """The controller creates, reassigns and deletes."""
    cluster.create_topic(name, PARTITIONS)
    cluster.create_topic(f"gone-{name}", PARTITIONS)
    assert leaders(cluster.view(ONE)) == set(BROKERS)
    append(cluster, name, 0, KEPT)
    for brokers in ((ONE, TWO), (TWO, OURS), (OURS, ONE), (ONE, OURS, TWO)):
        reassign(cluster, name, 0, *brokers)
    delete_topic(cluster, f"gone-{name}")


def isrs_shrink_and_grow(cluster: MixedCluster, name: str) -> None:
    """A leader of each kind asks the controller to change its ISR."""
    for partition, leader in enumerate((ONE, OURS)):
        let_lead(cluster, name, partition, leader)
        cluster.stop(TWO)
        append(cluster, name, partition, KEPT, acks=1)
        until_in_sync(cluster, name, partition, ONE, OURS)
        cluster.go_on(TWO)
        until_in_sync(cluster, name, partition, *BROKERS)


def until_in_sync(cluster: MixedCluster, topic: str, partition: int, *brokers: int) -> None:
    """Waits until all running brokers know that these are in sync."""
    key = TopicPartition(topic, partition)
    cluster.until(lambda view: view.partitions[key].isr == set(brokers))


def groups_move(cluster: MixedCluster) -> None:
    """A member commits while the coordinator is of one kind, then of the other, and back; so does its offset."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "moving", "enable.auto.commit": False}
    member = confluent_kafka.Consumer({**settings, "auto.offset.reset": "earliest", "session.timeout.ms": 30_000})
    member.subscribe(["written"])
    block_until(lambda: member.consume(1, 1))
    position = Position("written", 0)
    partition = partition_for("moving", int(SETTINGS["offsets.topic.num.partitions"]))
    try:
        for offset, coordinator in enumerate((OURS, TWO, OURS, ONE), 1):
            let_lead(cluster, OFFSETS, partition, coordinator)
            assert cluster.until_coordinator("moving") == coordinator
            if offset > 1:
                assert until_answered(lambda: member.committed([position], 30)[0].offset) == offset - 1
            position.offset = offset
            until_answered(lambda: member.commit(offsets=[position], asynchronous=False))
    finally:
        member.close()


def until_answered(ask: Callable[[], R]) -> R:
    """Asks until the coordinator has loaded. Returns its answer."""
    answers: list[R] = []

    def is_answered() -> bool:
        try:
            answers.append(ask())
        except confluent_kafka.KafkaException as failure:
            if failure.args[0].name() not in LOADING:
                raise
        return bool(answers)

    block_until(is_answered)
    return answers[0]


def transactions_move(cluster: MixedCluster) -> None:
    """A transaction begins with a coordinator of one kind and ends with one of the other."""
    cluster.create_topic("sums", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "moving"})
    producer.init_transactions(60)
    partition = partition_for("moving", int(SETTINGS["transaction.state.log.num.partitions"]))
    for number, coordinator in enumerate((OURS, ONE, OURS, TWO)):
        producer.begin_transaction()
        producer.produce("sums", b"%d" % number)
        assert producer.flush(30) == 0
        let_lead(cluster, STATES, partition, coordinator)
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    block_until(lambda: read_committed(cluster.bootstrap, "sums", 1) == {0: ["1", "3"]})


def tails_diverge(cluster: MixedCluster, leader: int, follower: int) -> None:
    """The leader dies with records that its follower, which takes over, never had. It comes back and has those of the
    follower.
    """
    topic = f"of-{leader}"
    cluster.create_topic(topic, 1, min_insync_replicas=1)
    reassign(cluster, topic, 0, leader, follower)
    let_lead(cluster, topic, 0, leader)
    append(cluster, topic, 0, KEPT)
    append(cluster, topic, 0, LOST, acks=1, once_connected=lambda: cluster.stop(follower))
    cluster.kill(leader)  # before it can remove the follower from the ISR
    cluster.go_on(follower)
    cluster.until_led_by_another(topic, 0, leader)
    key = TopicPartition(topic, 0)
    before, taken_over = (stored(cluster.nodes[each].data, key) for each in (leader, follower))
    assert max(before) > max(taken_over)
    append(cluster, topic, 0, KEPT)
    cluster.launch(leader)
    cluster.until_whole()
    ends = [stored(cluster.nodes[each].data, key) for each in (leader, follower)]
    assert ends[0] == ends[1]
    assert len(ends[0]) == len(taken_over) + KEPT


def append(
    cluster: MixedCluster,
    topic: str,
    partition: int,
    count: int,
    acks: int = -1,
    once_connected: Callable[[], None] = lambda: None,
) -> None:
    """Appends so many batches of one record each."""
    records = [build_batch([Record(0, FIRST_TIMESTAMP + number, None, b"%d" % number)]) for number in range(count)]
    with Client(cluster.nodes[cluster.leader(topic, partition)].address) as connection:
        once_connected()
        for batch in records:
            answer = connection.ask(produce(topic, batch, partition, acks=acks))
            assert field_of(answer, "responses.partition_responses.error_code") == 0, answer
