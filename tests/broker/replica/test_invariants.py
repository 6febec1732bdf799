"""What must always hold of a partition, its ISR and a fetch session: each broken invariant is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.broker.replica.fetch.fetch_session import FetchSession
from odradek.broker.replica.partition.isr import IsrProposal
from odradek.broker.replica.partition.partition import Partition
from tests.broker.replica.harness import T0, ReplicaHarness
from tests.broker.replica.test_fetch_sessions import open_session

T0_ISR = IsrProposal(T0, 0, (0, 1, 2), 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda partition: setattr(partition.isr, "maximal", (0, 1, 2)),
        lambda partition: setattr(partition.isr, "committed", (0, 1, 1)),
        lambda partition: setattr(partition.isr, "is_outdated", True),
        lambda partition: setattr(partition.isr, "is_overtaken", True),
        lambda partition: setattr(partition.isr, "proposal", T0_ISR),
        lambda partition: setattr(partition.isr, "proposal", T0_ISR._replace(isr=(0, 2))),
        lambda partition: partition.remote_replicas.pop(2),
        lambda partition: partition.isr.commit((1,)),
        lambda partition: setattr(partition, "leader_id", 1),
        lambda partition: setattr(partition, "has_lapsed", True),
        lambda partition: setattr(partition, "epoch_start_offset", 11),
        lambda partition: setattr(partition, "is_leader", False),
        lambda partition: setattr(partition.log.state, "high_watermark", 11),
    ],
    ids=[
        "maximal ISR",
        "ISR names one twice",
        "outdated",
        "overtaken",
        "growing ISR",
        "other ISR",
        "replicas",
        "ISR without the leader",
        "leader",
        "lapsed",
        "epoch",
        "follower",
        "log",
    ],
)
def test_a_broken_invariant_of_a_partition_is_found(
    harness: ReplicaHarness, damage: Callable[[Partition], object]
) -> None:
    partition = harness.lead(replicas=(0, 1, 2), isr=(0, 1))
    harness.produce(harness.batch(10))
    partition.check()
    damage(partition)
    with pytest.raises(AssertionError):
        partition.check()


@pytest.mark.parametrize(
    "damage",
    [
        lambda session, partition: partition.watchers.clear(),
        lambda session, partition: partition.log.state.replicated_to(2),
        lambda session, partition: session.targets.update(other=session.targets[T0]),
        lambda session, partition: setattr(session.targets[T0], "session", None),
        lambda session, partition: setattr(session.targets[T0], "hosted", None),
        lambda session, partition: session.pending.update({session.targets.pop(T0): None}),
    ],
    ids=["nothing wakes it", "news that woke nothing", "key", "session", "partition", "pending"],
)
def test_a_broken_invariant_of_a_fetch_session_is_found(
    harness: ReplicaHarness, damage: Callable[[FetchSession, Partition], object]
) -> None:
    partition = harness.lead(replicas=(0, 1))
    harness.produce(harness.batch(3))
    found = harness.sessions.get(open_session(harness, T0))
    assert found is not None
    harness.sessions.check()
    damage(found, partition)
    with pytest.raises(AssertionError):
        harness.sessions.check()
