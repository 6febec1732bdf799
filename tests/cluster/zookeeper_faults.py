"""Faults of ZooKeeper and of the network, on brokers and a ZooKeeper in networks of their own. Each ends with what
`faults.py` promises: nobody has to lend a hand, unless the fault says so.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

from odradek.broker.metadata_store import znodes
from odradek.protocol.errors import ErrorCode
from tests.cluster.faults import Fault, Stage
from tests.cluster.load import NUMBERS
from tests.cluster.networked_cluster import NetworkedCluster
from tests.patience import block_until

GONE_S = 60
"""Much longer than sessions live."""
REFUSED_S = 10
SHORTLY_S = 3
REFUSED = "the login of kafka failed"
WIPED = "/cluster/id is missing"
LONG = bytes(100_000)


def networked(stage: Stage) -> NetworkedCluster:
    assert isinstance(stage.cluster, NetworkedCluster)
    return stage.cluster


def pass_by(seconds: float) -> None:
    """Lets the load go on for a while."""
    threading.Event().wait(seconds)


def lose_zookeeper_for_a_minute(stage: Stage) -> None:
    """kill -9 of ZooKeeper. Records are written and read meanwhile. When it is back, it gives each session its whole
    time again, so nobody is lost."""
    before = stage.zookeeper.registrations()
    cluster = networked(stage)
    cluster.zookeeper.kill()
    stage.load.until_all_work()
    pass_by(GONE_S)
    stage.load.until_all_work()
    cluster.zookeeper.start()
    until_connected(stage)
    assert stage.zookeeper.registrations() == before


def restart_zookeeper(stage: Stage) -> None:
    """ZooKeeper is killed and at once started again: sessions are renewed."""
    before = stage.zookeeper.registrations()
    cluster = networked(stage)
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    until_connected(stage)
    assert stage.zookeeper.registrations() == before


def until_connected(stage: Stage) -> None:
    """Waits until a topic can be created, and deletes it again. Until then, there may be no controller."""
    block_until(lambda: stage.cluster.try_to_create("probe") is ErrorCode.NONE)
    stage.cluster.delete_topic("probe", timeout_ms=20_000)
    block_until(lambda: not stage.zookeeper.exists(znodes.topic_path("probe")))


def fill_the_disk_of_zookeeper(stage: Stage) -> None:
    """ZooKeeper ends itself when it cannot write. A topic that is created then comes later, or not at all. With room
    on its disk it can be started again.
    """
    cluster = networked(stage)
    cluster.zookeeper.fill_disk()
    creating = threading.Thread(target=cluster.try_to_create, args=("unwritten",))
    creating.start()
    block_until(lambda: not (stage.zookeeper.write("/filling", LONG) or cluster.zookeeper.is_up))
    stage.load.until_all_work()
    cluster.zookeeper.free_disk()
    cluster.zookeeper.start()
    creating.join()
    until_connected(stage)
    cluster.delete_topic("unwritten", timeout_ms=20_000)


@contextlib.contextmanager
def all_say(cluster: NetworkedCluster, text: str) -> Iterator[None]:
    """Waits until all brokers have logged a text again."""
    before = {broker_id: cluster.has_said(broker_id, text) for broker_id in cluster.nodes}
    yield
    block_until(lambda: all(cluster.has_said(broker_id, text) > count for broker_id, count in before.items()))


def refuse_the_password(stage: Stage) -> None:
    """For ten seconds, ZooKeeper does not accept the password of the brokers, which have to connect again."""
    cluster = networked(stage)
    with all_say(cluster, REFUSED):
        cluster.zookeeper.kill()
        cluster.zookeeper.start("another")
    stage.load.until_all_work()
    pass_by(REFUSED_S)
    cluster.zookeeper.kill()
    cluster.zookeeper.start()
    until_connected(stage)


def wipe_zookeeper(stage: Stage) -> None:
    """All that ZooKeeper has stored is gone. The brokers say so, and records are written and read as before; a broker
    that starts refuses. When the data is restored, all is as it was.
    """
    cluster = networked(stage)
    with all_say(cluster, WIPED):
        cluster.zookeeper.kill()
        cluster.zookeeper.wipe()
        cluster.zookeeper.start()
    stage.load.until_all_work()
    broker_id = stage.a_leader()
    cluster.kill(broker_id)
    with pytest.raises(RuntimeError, match="but ZooKeeper has none"):
        cluster.launch(broker_id)
    cluster.zookeeper.kill()
    cluster.zookeeper.restore()
    cluster.zookeeper.start()
    cluster.launch(broker_id)
    until_connected(stage)


def cut_the_leader_from_zookeeper(stage: Stage) -> None:
    """A leader that all others reach loses its session. It leads no more as soon as it is told, and comes back."""
    _cut_from_zookeeper(stage, stage.a_leader(), "a leader is cut off from ZooKeeper")


def cut_the_controller_from_zookeeper(stage: Stage) -> None:
    """Another controller is elected. The old one is reached by all brokers, and obeyed by none."""
    _cut_from_zookeeper(stage, stage.cluster.controller(), "the controller is cut off from ZooKeeper")


def _cut_from_zookeeper(stage: Stage, broker_id: int, name: str) -> None:
    cluster = networked(stage)
    loss = stage.losing(broker_id)
    cluster.cut(broker_id)
    stage.leaderless[name].append(loss.seconds())
    stage.load.writer.until_acknowledged(20)
    cluster.heal(broker_id)


def cut_two_brokers(stage: Stage) -> None:
    """A leader and a follower hear nothing of each other. Both are alive, so the leader goes on leading, without the
    follower in its ISR."""
    cluster = networked(stage)
    controller = cluster.controller()
    view = cluster.view(controller)
    key, part = next(
        (key, part) for key, part in view.partitions.items() if key.topic == NUMBERS and part.leader != controller
    )
    follower = next(one for one in part.replicas if one not in (part.leader, controller))
    cluster.cut(part.leader, follower)
    cluster.until(lambda view: follower not in view.partitions[key].isr)
    stage.load.writer.until_acknowledged(20)
    assert cluster.leader(key.topic, key.partition) == part.leader
    cluster.heal(part.leader, follower)


def cut_the_controller_from_a_broker(stage: Stage) -> None:
    """The controller cannot tell a broker anything: what has changed reaches it when the network is whole again."""
    cluster = networked(stage)
    controller = cluster.controller()
    broker_id = next(one for one in cluster.nodes if one != controller)
    third = next(one for one in cluster.nodes if one not in (controller, broker_id))
    cluster.cut(controller, broker_id)
    loss = stage.losing(third)
    cluster.kill(third)
    pass_by(SHORTLY_S)
    cluster.heal(controller, broker_id)
    loss.seconds()
    cluster.launch(third)


OF_ZOOKEEPER: tuple[Fault, ...] = (
    lose_zookeeper_for_a_minute,
    restart_zookeeper,
    fill_the_disk_of_zookeeper,
    refuse_the_password,
    wipe_zookeeper,
    cut_the_leader_from_zookeeper,
    cut_the_controller_from_zookeeper,
    cut_two_brokers,
    cut_the_controller_from_a_broker,
)
