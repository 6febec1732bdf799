"""What is seen of the demo: the state of its one partition, time and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from odradek.testing.cluster import Cluster
from odradek.testing.cluster_view import BrokerStatus

LEADER, IN_SYNC, BEHIND, DOWN = "leader", "in sync", "out of sync", "down"
"""What a broker is to the partition."""


class Sample(NamedTuple):
    """One look. `end` and `high_watermark` are the leader's, None if there is no leader; `read` is the consumer's
    position. `purgatory_size` is that of the leader's Produce purgatory: the requests that wait for replicas.
    """

    at_s: float
    leader: int | None
    isr: tuple[int, ...]
    roles: Mapping[int, str]
    end: int | None
    high_watermark: int | None
    read: int
    purgatory_size: int


class Acknowledgement(NamedTuple):
    """A record was acknowledged at `at_s`, `waited_s` after it was offered."""

    at_s: float
    waited_s: float


class Event(NamedTuple):
    """Something was done to a broker, or has happened as a consequence."""

    at_s: float
    text: str
    is_done_to_it: bool


class Recording(NamedTuple):
    """All that was seen."""

    brokers: Sequence[int]
    samples: Sequence[Sample]
    acknowledgements: Sequence[Acknowledgement]
    events: Sequence[Event]


def sample(cluster: Cluster, topic: str, at_s: float, read: int) -> Sample:
    """Looks at partition 0 of the topic."""
    state = cluster.partition(topic, 0)
    isr = () if state is None else tuple(sorted(state.isr))
    leader = cluster.leader(topic, 0)
    led = None if leader is None else cluster.replica(leader, topic, 0)
    roles = {broker_id: _role(cluster, broker_id, leader, isr) for broker_id in cluster.ids}
    if led is None or leader is None:
        return Sample(at_s, leader, isr, roles, None, None, read, 0)
    purgatory = cluster.brokers[leader].replica_manager.produce_purgatory
    return Sample(
        at_s, leader, isr, roles, led.log.state.log_end_offset, led.log.state.high_watermark, read, purgatory.watched
    )


def _role(cluster: Cluster, broker_id: int, leader: int | None, isr: Sequence[int]) -> str:
    if cluster.status(broker_id) is not BrokerStatus.RUNNING:
        return DOWN
    if broker_id == leader:
        return LEADER
    return IN_SYNC if broker_id in isr else BEHIND


def consequences(before: Sample, after: Sample) -> Iterator[str]:
    """Yields what has happened between two looks."""
    if before.leader != after.leader:
        yield f"broker {after.leader} leads" if after.leader is not None else "there is no leader"
    if before.isr != after.isr:
        yield f"in sync: {', '.join(map(str, after.isr))}"


def seconds_without_leader(samples: Sequence[Sample]) -> float:
    """Returns how long there was no leader."""
    return sum(after.at_s - before.at_s for before, after in pairwise(samples) if before.leader is None)
