"""Why replicas count as in sync, or do not, where a test waits for another ISR.

The leader of a partition decides, and the controller must agree. A follower leaves the ISR when it has lacked records
for replica.lag.time.max.ms: one that has them all stays, however long it fetches nothing.

So some cuts make acks=all wait until they heal: a leader that is cut off from a follower asks the controller to take it
out of the ISR, and is cut off from the controller, too. Broker 1, which people cut off first, often is the controller.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from odradek.broker.logging.quiet_logs import OF_KIT
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.replica.partition.partition import Partition
from odradek.testing.cluster_view import BrokerStatus, ClusterView

SHOWN = 3

log = structlog.get_logger(OF_KIT)


def why_another_isr(cluster: ClusterView, topic: str, state: PartitionState, expected: set[int]) -> str:
    """Returns why each broker is in the ISR that should not be, or is not that should be."""
    led = cluster.led(topic, state)
    if led is None:
        return f"{_why_not_led(cluster, state.leader)}, and only a leader changes the ISR"
    isr = set(state.isr)
    reasons = [f"broker {each} counts as in sync: {_why_in(cluster, state, led, each)}" for each in isr - expected]
    reasons += [f"broker {each} does not count: {_why_out(cluster, state, led, each)}" for each in expected - isr]
    return "; ".join(reasons)


def _why_not_led(cluster: ClusterView, leader: int) -> str:
    member = cluster.members.get(leader)
    if member is None:
        return "it has no leader"
    if member.status is not BrokerStatus.RUNNING:
        return f"its leader, broker {leader}, is {member.status.value}"
    if member.is_cut_from_store:
        return f"its leader, broker {leader}, is cut off from the metadata store"
    return f"broker {leader} does not lead it yet"


def _why_in(cluster: ClusterView, state: PartitionState, led: Partition, broker_id: int) -> str:
    if broker_id == state.leader:
        return "it is the leader"
    status = cluster.status(broker_id)
    if status is not BrokerStatus.RUNNING and cluster.store.entry(znodes.broker_path(broker_id)) is not None:
        return f"it is {status.value}, and its session has not ended yet (zookeeper.session.timeout.ms)"
    if led.isr.proposal is not None:
        return _unanswered(cluster, state, led)
    broker, follower = cluster.brokers[state.leader], led.remote_replicas.get(broker_id)
    end, lag_ms = led.log.state.log_end_offset, broker.config.replica_lag_time_max_ms
    if follower is None or follower.log_end_offset == end:
        return (
            f"it has all records up to {end}, and leaves the ISR only when it lacks some for {lag_ms} ms: produce one"
        )
    since_ms = broker.clock.now_ms() - follower.last_caught_up_ms
    return f"it had all records {since_ms} ms ago, and may lag for {lag_ms} ms (replica.lag.time.max.ms)"


def _why_out(cluster: ClusterView, state: PartitionState, led: Partition, broker_id: int) -> str:
    if broker_id not in state.replicas:
        return f"the replicas are {list(state.replicas)}"
    if cluster.status(broker_id) is not BrokerStatus.RUNNING:
        return f"it is {cluster.status(broker_id).value}"
    if led.isr.proposal is not None:
        return _unanswered(cluster, state, led)
    if state.leader in cluster.network.cuts_of(broker_id):
        return f"it is cut off from the leader, broker {state.leader}"
    if cluster.network.is_frozen(broker_id):
        return "its replication is frozen"
    follower = led.remote_replicas.get(broker_id)
    reached = -1 if follower is None else follower.log_end_offset
    where = "has not fetched from it yet" if reached < 0 else f"has fetched up to {reached}"
    return f"the leader, broker {state.leader}, ends at {led.log.state.log_end_offset}, and it {where}"


def _unanswered(cluster: ClusterView, state: PartitionState, led: Partition) -> str:
    """The leader has asked the controller, and waits."""
    assert led.isr.proposal is not None
    controller = cluster.controller
    asked = f"the leader, broker {state.leader}, asks for the ISR {sorted(led.isr.proposal.isr)}"
    if controller is None:
        return f"{asked}, and there is no controller"
    if controller in cluster.network.cuts_of(state.leader):
        return f"{asked}, and is cut off from the controller, broker {controller}"
    return f"{asked}, and the controller, broker {controller}, has not answered yet"


class Stuck(NamedTuple):
    """A partition whose ISR nobody can change."""

    topic: str
    state: PartitionState

    def __str__(self) -> str:
        return f"{self.topic}-{self.state.partition}"


def warn_of_stuck(cluster: ClusterView, leader: int) -> None:
    """Says which partitions of a leader are stuck after a cut, and which cut is probably wanted."""
    controller = cluster.controller
    stuck = [] if controller not in cluster.network.cuts_of(leader) else _stuck(cluster, leader)
    if not stuck or controller is None:
        return
    stuck.sort(key=lambda each: each.topic.startswith("__"))
    names = [str(each) for each in stuck[:SHOWN]]
    log.warning(
        "cut keeps ISR as it is, acks=all waits until it heals",
        leader=leader,
        controller=controller,
        partitions=names if len(stuck) <= SHOWN else [*names, f"and {len(stuck) - SHOWN} more"],
        why=f"broker {leader} leads, and is cut off from broker {controller}, the controller, which changes the ISR",
        instead=_instead(stuck[0], controller),
    )


def _stuck(cluster: ClusterView, leader: int) -> list[Stuck]:
    cuts, broker = cluster.network.cuts_of(leader), cluster.brokers.get(leader)
    names = [] if broker is None else broker.metadata.topic_names()
    found = [Stuck(name, state) for name in names for state in cluster.states(name)]
    return [each for each in found if each.state.leader == leader and set(cuts) & set(each.state.isr)]


def _instead(stuck: Stuck, controller: int) -> str:
    """Returns the cut after which the ISR shrinks: between a leader and a follower that is not the controller."""
    topic, state = stuck
    followers = [each for each in state.replicas if each not in (state.leader, controller)]
    if followers:
        return f"cut({state.leader}, {followers[0]})"
    return f"move_leader({topic!r}, {state.partition}, {controller}), then cut({controller}, {state.leader})"
