"""A cluster in a thread of its own, for blocking clients."""

from __future__ import annotations

import threading

import kafka
import pytest

from odradek.testing import BrokerStatus, ClusterThread, NotReached
from odradek.testing.cluster import Cluster
from tests.patience import PATIENCE_S
from tests.testing.leftovers import left_behind

PARTITION = kafka.TopicPartition("t", 0)


def read(cluster: ClusterThread, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
    consumer.assign([PARTITION])
    values: list[bytes] = []

    def has_read() -> bool:
        values.extend(message.value for message in consumer.poll(100).get(PARTITION, []))
        return len(values) >= count

    cluster.wait_until(has_read)
    consumer.close()
    return values


@pytest.mark.long
def test_a_blocking_producer_survives_what_is_done_to_the_brokers() -> None:
    with ClusterThread(data_dir=None, num_partitions=1) as cluster:
        assert cluster.ids == cluster.running == [1, 2, 3]
        cluster.create_topic("t", replication_factor=3, configs={"min.insync.replicas": 1})
        impatient = {"acks": "all", "retries": 100, "request_timeout_ms": 2000}
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap, **impatient)
        sent: list[bytes] = []

        def send() -> None:
            sent.append(b"%d" % len(sent))
            producer.send("t", sent[-1]).get(timeout=PATIENCE_S)

        send()
        leader = cluster.wait_for_leader("t", 0)
        assert cluster.leader("t", 0) == leader
        cluster.kill(leader)
        assert cluster.status(leader) is BrokerStatus.KILLED
        send()
        cluster.start(leader)
        cluster.wait_for_isr("t", 0, {1, 2, 3})
        for broker_id in cluster.ids:
            cluster.restart(broker_id)
            cluster.wait_until_stable()
            send()
        second = cluster.wait_for_leader("t", 0)
        cluster.pause(second)
        send()
        cluster.resume(second)
        cluster.wait_until_stable()
        third = cluster.wait_for_leader("t", 0)
        cluster.cut_off(third)
        cluster.wait_until(lambda: cluster.leader("t", 0) not in (None, third))
        cluster.heal(third)
        cluster.wait_until_stable()
        cluster.cut_from_store(1)
        cluster.cut(1, 2)
        cluster.heal(1)
        cluster.freeze_replication(1)
        cluster.thaw(1)
        cluster.stop(1)
        assert cluster.running == [2, 3]
        send()
        assert cluster.controller in (2, 3)
        assert cluster.isr("t", 0) == {2, 3}
        assert "broker 1, stopped" in cluster.describe()
        assert list(cluster.data_dir(1).glob("t-0/*.log"))
        producer.close()
        assert read(cluster, len(sent)) == sent


def test_a_condition_runs_in_the_callers_thread_and_functions_of_the_cluster_in_its_own() -> None:
    with ClusterThread(brokers=1) as cluster:
        seen: list[threading.Thread] = []

        def note() -> bool:
            seen.append(threading.current_thread())
            return True

        cluster.wait_until(note)
        assert seen == [threading.current_thread()]
        assert cluster.call(threading.current_thread).name == "odradek-cluster"
        assert isinstance(cluster.cluster, Cluster)
        cluster.run(cluster.cluster.wait_until_stable())
        with pytest.raises(NotReached, match="zero: not in 0 s\nbroker 1, running, controller"):
            cluster.wait_until(lambda: 0, within=0, what="zero")


@pytest.mark.usefixtures("isolated")
def test_a_cluster_in_a_thread_leaves_no_file_socket_thread_or_directory_behind() -> None:
    def one() -> None:
        with ClusterThread() as cluster:
            cluster.create_topic("t")

    one()
    before = left_behind()
    one()
    assert left_behind() == before


def test_a_cluster_that_cannot_start_says_why() -> None:
    with pytest.raises(ValueError, match="at least one broker"), ClusterThread(brokers=0):
        pass
