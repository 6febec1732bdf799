"""The states of partitions and replicas, and the choice of leaders."""

from __future__ import annotations

from itertools import product

import pytest

from odradek.broker.controller.controller_context import ControllerContext, IllegalMove
from odradek.broker.controller.partition_states import (
    NO_EPOCH,
    PARTITION_MOVES,
    PartitionPhase,
    after_losses,
    first_state,
    is_led_by_preferred,
    is_new,
    needs_unclean_election,
    offline_election,
    preferred_election,
    shutdown_election,
    unled,
    without_replica,
)
from odradek.broker.controller.replica_states import REPLICA_MOVES, ReplicaPhase
from odradek.broker.metadata.metadata_cache import NO_LEADER, BrokerInfo, PartitionState, TopicMetadata
from odradek.protocol.schema import ZERO_UUID
from odradek.protocol.topic_partition import TopicPartition

EPOCH = 9
KEY = TopicPartition("t", 0)


def state(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionState:
    isr = replicas if isr is None else isr
    return PartitionState(0, replicas[0] if leader is None else leader, 5, replicas, isr, 1, 3)


Chosen = tuple[int, tuple[int, ...]] | None


def chosen(after: PartitionState | None) -> Chosen:
    """The leader and the in-sync replicas of a new state, whose leader epoch is the next one."""
    if after is None:
        return None
    assert (after.leader_epoch, after.controller_epoch, after.partition_epoch) == (6, EPOCH, 3)
    return after.leader, after.isr


def test_the_first_leader_is_the_first_replica_that_is_alive() -> None:
    new = unled(0, (1, 2, 3), EPOCH)
    assert is_new(new)
    assert (new.leader, new.leader_epoch, new.partition_epoch) == (NO_LEADER, NO_EPOCH, NO_EPOCH)
    assert first_state(new, [], EPOCH) is None
    after = first_state(new, [2, 3], EPOCH)
    assert after is not None
    assert not is_new(after)
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2, 3), 0, 0)


@pytest.mark.parametrize(
    ("before", "electable", "unclean", "outcome"),
    [
        (state((1, 2, 3)), [2, 3], False, (2, (2, 3))),
        (state((1, 2, 3), (3, 1)), [2, 3], False, (3, (3,))),
        (state((1, 2, 3), (1,)), [2, 3], False, None),
        (state((1, 2, 3), (1,)), [2, 3], True, (2, (2,))),
        (state((1, 2, 3), (1, 3)), [2, 3], True, (3, (3,))),  # an unclean election is not needed
        (state((1, 2, 3), (1,)), [], True, None),
    ],
)
def test_an_offline_partition_is_led_by_the_first_replica_in_sync(
    before: PartitionState, electable: list[int], unclean: bool, outcome: Chosen
) -> None:
    assert chosen(offline_election(before, electable, unclean, EPOCH)) == outcome


@pytest.mark.parametrize(
    ("before", "electable", "outcome"),
    [
        (state((1, 2), leader=2), [1, 2], (1, (1, 2))),
        (state((1, 2), leader=2), [2], None),
        (state((1, 2), (2,), 2), [1, 2], None),
    ],
)
def test_the_preferred_leader_must_be_alive_and_in_sync(
    before: PartitionState, electable: list[int], outcome: Chosen
) -> None:
    assert chosen(preferred_election(before, electable, EPOCH)) == outcome


@pytest.mark.parametrize(
    ("before", "electable", "shutting_down", "outcome"),
    [
        (state((1, 2, 3)), [2, 3], [1], (2, (2, 3))),
        (state((1, 2, 3)), [3], [1, 2], (3, (3,))),
        (state((1, 2), (1,)), [2], [1], None),
    ],
)
def test_a_shutdown_moves_the_leader_to_another_replica_in_sync(
    before: PartitionState, electable: list[int], shutting_down: list[int], outcome: Chosen
) -> None:
    assert chosen(shutdown_election(before, electable, shutting_down, EPOCH)) == outcome


@pytest.mark.parametrize(
    ("before", "present", "electable", "unclean", "outcome"),
    [
        (state((1, 2, 3)), [1, 2, 3], [1, 2, 3], False, None),
        (state((1, 2, 3)), [1, 2], [1, 2], False, (1, (1, 2))),  # a follower is lost
        (state((1, 2, 3)), [2, 3], [2, 3], False, (2, (2, 3))),  # the leader is lost
        (state((1, 2, 3), (1,)), [2, 3], [2, 3], False, (NO_LEADER, (1,))),  # the last one in sync is lost
        (state((1, 2, 3), (1,)), [2, 3], [2, 3], True, (2, (2,))),
        (state((1, 2, 3), (1, 2)), [3], [3], False, (NO_LEADER, (1, 2))),  # all of them are lost at once
        (state((1, 2), (1,), NO_LEADER), [2], [2], False, None),  # nothing new
        (state((1, 2), (1,), NO_LEADER), [1, 2], [1, 2], False, (1, (1,))),  # it is back
        (state((1, 2)), [1, 2], [2], False, None),  # the leader is shutting down, which is not lost
        (state((1, 2, 3)), [2, 3], [3], False, (3, (3,))),
        (state((1, 2)), [2], [], False, (NO_LEADER, (2,))),  # only one that is shutting down is left
    ],
)
def test_lost_replicas_leave_the_replicas_in_sync_except_the_last(
    before: PartitionState, present: list[int], electable: list[int], unclean: bool, outcome: Chosen
) -> None:
    after = after_losses(before, present=present, electable=electable, unclean=unclean, controller_epoch=EPOCH)
    assert chosen(after) == outcome
    if unclean:
        assert needs_unclean_election(before, present, electable)


def test_a_partition_with_a_replica_in_sync_needs_no_unclean_election() -> None:
    assert not needs_unclean_election(state((1, 2)), [2], [2])
    assert not needs_unclean_election(state((1, 2), (1,)), [1], [1])
    assert not needs_unclean_election(state((1, 2), (1,)), [], [])


@pytest.mark.parametrize(
    ("before", "broker", "outcome"),
    [
        (state((1, 2, 3)), 3, (1, (1, 2))),
        (state((1, 2, 3), (1, 2)), 3, None),
        (state((1, 2), (1,), NO_LEADER), 1, None),
    ],
)
def test_a_replica_leaves_the_replicas_in_sync_unless_it_is_the_last(
    before: PartitionState, broker: int, outcome: Chosen
) -> None:
    assert chosen(without_replica(before, broker, EPOCH)) == outcome


def test_a_preferred_leader_that_is_being_added_need_not_lead_once_it_is_in_sync() -> None:
    assert is_led_by_preferred(state((1, 2)))
    assert not is_led_by_preferred(state((2, 1), leader=1))
    adding = state((3, 1, 2), (1, 2), 1)._replace(adding=(3,))
    assert not is_led_by_preferred(adding)
    assert is_led_by_preferred(adding._replace(isr=(1, 2, 3)))


# ---- moves


def context() -> ControllerContext:
    context = ControllerContext(EPOCH)
    context.put_topic(TopicMetadata("t", ZERO_UUID, {0: state((1, 2))}))
    return context


def partition_in(phase: PartitionPhase) -> ControllerContext:
    found = context()
    found._partition_phases[KEY] = phase
    return found


def replica_in(phase: ReplicaPhase) -> ControllerContext:
    found = context()
    found._replica_phases[KEY] = {1: phase}
    return found


@pytest.mark.parametrize(("before", "after"), list(product(PartitionPhase, PartitionPhase)))
def test_a_partition_makes_the_moves_in_the_table_and_no_others(before: PartitionPhase, after: PartitionPhase) -> None:
    found = partition_in(before)
    if (before, after) in PARTITION_MOVES:
        found.move_partition(KEY, after)
        assert found.phase(KEY) is after
    else:
        with pytest.raises(IllegalMove, match=f"from {before.value} to {after.value}"):
            found.move_partition(KEY, after)


@pytest.mark.parametrize(("before", "after"), list(product(ReplicaPhase, ReplicaPhase)))
def test_a_replica_makes_the_moves_in_the_table_and_no_others(before: ReplicaPhase, after: ReplicaPhase) -> None:
    found = replica_in(before)
    if (before, after) in REPLICA_MOVES:
        found.move_replica(KEY, 1, after)
        assert found.replica_phase(KEY, 1) is after
    else:
        with pytest.raises(IllegalMove, match=f"from {before.value} to {after.value}"):
            found.move_replica(KEY, 1, after)


def test_every_phase_is_reached_and_left() -> None:
    for phases, moves in ((PartitionPhase, PARTITION_MOVES), (ReplicaPhase, REPLICA_MOVES)):
        assert {before for before, _ in moves} == {after for _, after in moves} == set(phases)


def test_phases_follow_the_brokers() -> None:
    found = context()
    found.put_broker(BrokerInfo(1, {}))
    found.load_phases(KEY, state((1, 2)))
    assert found.phase(KEY) is PartitionPhase.ONLINE
    assert [found.replica_phase(KEY, broker) for broker in (1, 2)] == [ReplicaPhase.ONLINE, ReplicaPhase.OFFLINE]
    found.remove_broker(1)
    found.update_phases(KEY, state((1, 2)))
    found.event_ended()
    assert found.phase(KEY) is PartitionPhase.OFFLINE
    assert found.numbers().offline_partitions == 1
    found.put_broker(BrokerInfo(2, {}))
    found.offline_replicas[2] = {KEY: None}
    found.update_phases(KEY, state((1, 2), leader=2))
    assert found.phase(KEY) is PartitionPhase.OFFLINE
    del found.offline_replicas[2]
    found.update_phases(KEY, state((1, 2), leader=2))
    found.event_ended()
    numbers = found.numbers()
    assert (numbers.offline_partitions, numbers.preferred_replica_imbalance, numbers.partitions) == (0, 0, 1)
