"""Cuts that make acks=all wait until they heal: a leader that is cut off from a follower asks the controller to take it
out of the ISR, and is cut off from the controller, too. Broker 1, which people cut off first, often is the controller.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from odradek.broker.logging.quiet_logs import OF_KIT
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.testing.cluster_view import ClusterView

SHOWN = 3

log = structlog.get_logger(OF_KIT)


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
