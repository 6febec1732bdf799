"""Faults of brokers, each with the time that partitions had no leader (leaderless.py). After each, all brokers run and
all replicas are in sync again.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import pytest

from odradek.broker.metadata_store import znodes
from tests.cluster.cluster import Cluster
from tests.cluster.leaderless import Loss
from tests.cluster.load import NUMBERS, Load
from tests.cluster.process_cluster import ProcessCluster
from tests.cluster.zookeeper_client import ZooKeeperClient
from tests.patience import block_until


class Stage(NamedTuple):
    """What a fault is applied to."""

    cluster: Cluster
    zookeeper: ZooKeeperClient
    load: Load
    leaderless: defaultdict[str, list[float]]
    """Seconds without a leader, by the name of the fault."""

    def a_leader(self) -> int:
        """A leader that is not the controller, unless the controller leads everything."""
        view = self.cluster.view(self.cluster.running[0])
        leaders = [part.leader for key, part in view.partitions.items() if key.topic == NUMBERS]
        return next((leader for leader in leaders if leader != view.controller), leaders[0])

    def losing(self, broker_id: int) -> Loss:
        """Measures how long the partitions of a broker have no leader, from now on."""
        return Loss(self.cluster, self.zookeeper, broker_id)

    def whole(self) -> None:
        """Waits until all brokers are in sync and all clients get on; then the preferred brokers lead."""
        self.cluster.until_whole()
        self.load.until_all_work()
        self.cluster.elect_preferred_leaders()


Fault = Callable[[Stage], None]


def kill_a_leader(stage: Stage) -> None:
    """kill -9 of a leader; it is back when another one leads."""
    _kill(stage, stage.a_leader(), "kill -9 of a leader")


def kill_the_controller(stage: Stage) -> None:
    """kill -9 of the controller, which leads partitions, too."""
    _kill(stage, stage.cluster.controller(), "kill -9 of the controller")


def _kill(stage: Stage, broker_id: int, name: str) -> None:
    loss = stage.losing(broker_id)
    stage.cluster.kill(broker_id)
    stage.leaderless[name].append(loss.seconds())
    stage.cluster.until_replaced(broker_id)
    stage.load.until_all_work()
    stage.cluster.launch(broker_id)


def restart_all(stage: Stage) -> None:
    """SIGTERM to one broker after the other; each is in sync before the next one stops."""
    for broker_id in stage.cluster.nodes:
        loss = stage.losing(broker_id)
        stage.cluster.terminate(broker_id)
        stage.leaderless["a rolling restart"].append(loss.seconds())
        stage.cluster.launch(broker_id)
        stage.cluster.until_whole()


def expire_a_session(stage: Stage) -> None:
    """SIGSTOP of a leader until its session has ended and others lead; then SIGCONT."""
    _stop_and_go_on(stage, stage.a_leader(), "an expired session of a leader")


def expire_the_controllers_session(stage: Stage) -> None:
    """SIGSTOP of the controller until another one is in office; then SIGCONT. What it had in mind is void: no entry
    gets its epoch any more.
    """
    zookeeper = stage.zookeeper
    old_epoch = int(zookeeper.get(znodes.CONTROLLER_EPOCH).data or b"")
    _stop_and_go_on(stage, stage.cluster.controller(), "an expired session of the controller")
    stage.cluster.until_whole()
    elected = zookeeper.get(znodes.CONTROLLER_EPOCH)
    assert int(elected.data or b"") > old_epoch
    for topic in zookeeper.children(znodes.TOPICS):
        for partition in zookeeper.children(znodes.partitions_path(topic)):
            state = zookeeper.get(znodes.state_path(topic, int(partition)))
            epoch = json.loads(state.data or b"")["controller_epoch"]
            assert epoch > old_epoch or state.modified < elected.modified, f"{topic}-{partition} has epoch {epoch}"


def _stop_and_go_on(stage: Stage, broker_id: int, name: str) -> None:
    loss = stage.losing(broker_id)
    stage.cluster.stop(broker_id)
    stage.leaderless[name].append(loss.seconds())
    stage.cluster.until_replaced(broker_id)
    stage.load.writer.until_acknowledged(20)
    stage.cluster.go_on(broker_id)


def kill_and_restart_at_once(stage: Stage) -> None:
    """kill -9, and a new process before the session of the old one has ended: it waits for that, and registers then."""
    broker_id = stage.a_leader()
    loss = stage.losing(broker_id)
    stage.cluster.kill(broker_id)
    stage.cluster.launch(broker_id)
    stage.leaderless["kill -9 and an immediate restart"].append(loss.seconds())


def empty_a_disk(stage: Stage) -> None:
    """A broker is killed, loses all that it has stored, and copies it again."""
    broker_id = stage.a_leader()
    loss = stage.losing(broker_id)
    stage.cluster.kill(broker_id)
    shutil.rmtree(stage.cluster.nodes[broker_id].data)
    stage.leaderless["an empty disk"].append(loss.seconds())
    stage.cluster.until_replaced(broker_id)
    stage.cluster.launch(broker_id)


def start_whom_nobody_wants(stage: Stage) -> None:
    """A second broker with the id of a living one, and a broker with the disk of another cluster, do not start."""
    cluster = stage.cluster
    assert isinstance(cluster, ProcessCluster)
    broker_id = stage.a_leader()
    data = cluster.nodes[broker_id].data
    second = data.with_name("second")
    with pytest.raises(RuntimeError, match=f"Another broker with id {broker_id} is registered"):
        cluster.launch_another(broker_id, second)
    shutil.rmtree(second)
    cluster.kill(broker_id)
    identity = data / "meta.properties"
    text = identity.read_text()
    identity.write_text(text.replace("cluster.id=", "cluster.id=not-"))
    with pytest.raises(RuntimeError, match="has cluster id not-"):
        cluster.launch(broker_id)
    identity.write_text(text)
    cluster.launch(broker_id)


def kill_a_replica_of_a_deleted_topic(stage: Stage) -> None:
    """A topic is deleted while one of its brokers is stopped, and then killed: it cannot answer. The deletion ends when
    the broker is back, and the name is free for a topic with another id.
    """
    cluster, zookeeper = stage.cluster, stage.zookeeper
    cluster.create_topic("deleted", 3)
    old = topic_id(stage, "deleted")
    broker_id = stage.a_leader()
    loss = stage.losing(broker_id)
    cluster.stop(broker_id)
    cluster.delete_topic("deleted")
    block_until(lambda: zookeeper.exists(znodes.deletion_path("deleted")))
    cluster.kill(broker_id)
    stage.leaderless["a replica of a deleted topic is killed"].append(loss.seconds())
    assert zookeeper.exists(znodes.topic_path("deleted")), "its log is still on the disk of the broker"
    cluster.launch(broker_id)
    block_until(lambda: not zookeeper.exists(znodes.topic_path("deleted")))
    cluster.until_whole()
    cluster.create_topic("deleted", 3)
    assert topic_id(stage, "deleted") != old
    cluster.delete_topic("deleted")
    block_until(lambda: not zookeeper.exists(znodes.topic_path("deleted")))


def topic_id(stage: Stage, topic: str) -> uuid.UUID | None:
    return znodes.parse_topic(topic, stage.zookeeper.get(znodes.topic_path(topic)).data).topic_id


IN_CI: tuple[Fault, ...] = (kill_a_leader, kill_the_controller, restart_all, expire_a_session)
OF_BROKERS: tuple[Fault, ...] = (
    *IN_CI,
    expire_the_controllers_session,
    kill_and_restart_at_once,
    empty_a_disk,
    start_whom_nobody_wants,
    kill_a_replica_of_a_deleted_topic,
)
