"""Transactions across two brokers, with a kill, a move or a cut between any two steps of the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.transaction.two_brokers import (
    BOTH,
    LED_BY,
    ORDERS,
    RETURNS,
    Cluster,
    Producer,
    code_of,
    two_brokers,
)
from tests.storage.small_logs import truncate

MOST_STEPS = 200


def check(cluster: Cluster, coordinator: int, acknowledged: bool | None = None) -> bool:
    """Checks that the transaction has ended in both partitions in the same way, and as it was acknowledged. Returns
    whether it was committed.
    """
    shard = cluster.nodes[coordinator].shard
    assert shard is not None
    for transaction in shard.transactions.values():
        assert (transaction.state.is_idle, transaction.pending) == (True, None)
    outcomes = set()
    for key, broker_id in LED_BY.items():
        leader = cluster.nodes[broker_id]
        assert not leader.is_open(key)
        outcomes.add(tuple(leader.outcomes_in(key)))
        epochs = [marker.coordinator_epoch for marker in leader.markers_in(key)]
        assert epochs == sorted(epochs), "a marker of an older coordinator was written after one of a newer one"
    ((committed,),) = outcomes
    assert acknowledged in (None, committed)
    return committed


def ended(cluster: Cluster, producer: Producer, coordinator: int, committed: bool) -> None:
    """The producer sends EndTxn again until it is answered."""
    for _ in range(3):
        cluster.settle()
        answers = producer.end(cluster.nodes[coordinator], committed)
        cluster.settle()
        if code_of(answers) is ErrorCode.NONE:
            return
        assert code_of(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    raise AssertionError("the transaction does not end")


def replaced(cluster: Cluster, producer: Producer, coordinator: int) -> None:
    """Another producer takes the transactional id, which aborts an open transaction."""
    for _ in range(3):
        cluster.settle()
        answers = producer.init(cluster.nodes[coordinator])
        cluster.settle()
        if code_of(answers) is ErrorCode.NONE:
            return
        assert code_of(answers) is ErrorCode.CONCURRENT_TRANSACTIONS
    raise AssertionError("the id is never free")


def test_the_transaction_of_two_brokers_is_complete_when_both_have_their_marker(tmp_path: Path) -> None:
    with two_brokers(tmp_path) as cluster:
        producer = Producer(cluster)
        producer.begin()
        answers = producer.end(cluster.nodes[1], True)
        cluster.run()
        assert code_of(answers) is ErrorCode.NONE
        check(cluster, 1, acknowledged=True)
        assert [len(cluster.nodes[broker_id].markers_in(key)) for key, broker_id in LED_BY.items()] == [1, 1]


Fault = Callable[[Cluster], int]
"""What goes wrong. Returns the id of the broker that is the coordinator afterwards."""


def kill_coordinator(cluster: Cluster) -> int:
    cluster.kill(1)
    cluster.elect(2)
    cluster.settle()
    cluster.start(1)
    return 2


def kill_coordinator_and_restart_it_at_once(cluster: Cluster) -> int:
    cluster.kill(1)
    cluster.start(1)
    cluster.elect(1)
    return 1


def kill_other_broker(cluster: Cluster) -> int:
    cluster.kill(2)
    cluster.nodes[1].lead_state(isr=(0,))
    cluster.settle()
    cluster.start(2)
    return 1


def kill_both(cluster: Cluster) -> int:
    for broker_id in (1, 2):
        cluster.kill(broker_id)
    for broker_id in (1, 2):
        cluster.start(broker_id)
    cluster.elect(2)
    return 2


def move_coordinator(cluster: Cluster) -> int:
    cluster.elect(2)
    return 2


def move_coordinator_there_and_back(cluster: Cluster) -> int:
    cluster.elect(2)
    cluster.run(5)
    cluster.elect(1)
    return 1


def elect_another_beside_a_zombie(cluster: Cluster) -> int:
    cluster.elect(2, leaves_a_zombie=True)
    cluster.settle()
    cluster.nodes[1].follow_state()
    cluster.nodes[2].lead_state()
    return 2


def pause_a_zombie(cluster: Cluster) -> int:
    """The zombie goes on only after its successor has completed the transaction."""
    zombie = cluster.nodes[1]
    cluster.elect(2, leaves_a_zombie=True)
    cluster.pause(1)
    cluster.settle()
    cluster.go_on(1)
    cluster.settle()
    zombie.follow_state()
    cluster.nodes[2].lead_state()
    return 2


def cut_connections(cluster: Cluster) -> int:
    cluster.is_cut = True
    cluster.settle()
    cluster.is_cut = False
    return 1


def killed(cluster: Cluster, coordinator: int) -> int:
    other = 3 - coordinator
    cluster.kill(coordinator)
    cluster.elect(other)
    cluster.settle()
    cluster.start(coordinator)
    cluster.elect(other)
    return other


def moved(cluster: Cluster, coordinator: int) -> int:
    cluster.elect(3 - coordinator)
    return 3 - coordinator


def other_killed(cluster: Cluster, coordinator: int) -> int:
    other = 3 - coordinator
    cluster.kill(other)
    cluster.elect(coordinator)
    cluster.run(10)
    cluster.start(other)
    cluster.elect(coordinator)
    return coordinator


def left_a_zombie(cluster: Cluster, coordinator: int) -> int:
    other = 3 - coordinator
    cluster.elect(other, leaves_a_zombie=True)
    cluster.settle()
    cluster.elect(other)
    return other


FAULTS_OF_ANY = [killed, moved, other_killed, left_a_zombie]


FAULTS = [
    kill_coordinator,
    kill_coordinator_and_restart_it_at_once,
    kill_other_broker,
    kill_both,
    move_coordinator,
    move_coordinator_there_and_back,
    elect_another_beside_a_zombie,
    pause_a_zombie,
    cut_connections,
]


def after_each_step(root: Path, fault: Fault, committed: bool) -> Iterator[tuple[Cluster, Producer, int, bool]]:
    """Yields (cluster, producer, coordinator, whether EndTxn was answered) with the fault after each step of the end
    of a transaction.
    """
    seen = set()
    for steps in range(MOST_STEPS):
        with two_brokers(root / f"after {steps} steps") as cluster:
            producer = Producer(cluster)
            producer.begin()
            answers = producer.end(cluster.nodes[1], committed)
            is_over = cluster.run(steps) < steps
            is_answered = code_of(answers) is ErrorCode.NONE
            seen.add((is_answered, *(len(cluster.nodes[LED_BY[key]].markers_in(key)) for key in (ORDERS, RETURNS))))
            yield cluster, producer, fault(cluster), is_answered
        if is_over:
            break
    assert seen >= {(False, 0, 0), (True, 0, 0), (True, 1, 0), (True, 1, 1)}
    assert is_over


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_ends_as_decided_whatever_happens_between_its_steps(
    tmp_path: Path, fault: Fault, committed: bool
) -> None:
    for cluster, producer, coordinator, _ in after_each_step(tmp_path, fault, committed):
        ended(cluster, producer, coordinator, committed)
        assert check(cluster, coordinator) is committed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_transaction_is_committed_everywhere_or_nowhere_if_its_producer_gives_up(
    tmp_path: Path, fault: Fault
) -> None:
    for cluster, producer, coordinator, is_answered in after_each_step(tmp_path, fault, True):
        replaced(cluster, producer, coordinator)
        check(cluster, coordinator, True if is_answered else None)


@pytest.mark.parametrize("request_kind", ["InitProducerId", "AddPartitionsToTxn", "EndTxn"])
def test_requests_that_wait_for_replication_are_answered_when_the_coordinator_moves(
    tmp_path: Path, request_kind: str
) -> None:
    with two_brokers(tmp_path) as cluster:
        producer, first = Producer(cluster), cluster.nodes[1]
        if request_kind != "InitProducerId":
            producer.begin()
        if request_kind == "AddPartitionsToTxn":
            ended(cluster, producer, 1, True)
        cluster.is_cut = True
        ask = {
            "InitProducerId": lambda: producer.init(first),
            "AddPartitionsToTxn": lambda: producer.add(first),
            "EndTxn": lambda: producer.end(first, True),
        }
        answers = ask[request_kind]()
        cluster.run()
        assert code_of(answers) is None
        cluster.elect(2)
        cluster.run()
        assert code_of(answers) is ErrorCode.NOT_COORDINATOR


def test_a_decision_that_the_next_coordinator_may_not_have_is_not_carried_out(tmp_path: Path) -> None:
    """A third replica, which is in sync, has not fetched the decision. The coordinators that have it fail."""
    with two_brokers(tmp_path) as cluster:
        producer = Producer(cluster)
        producer.begin()
        first, second = cluster.nodes[1], cluster.nodes[2]
        before = first.state_partition.log.state.log_end_offset
        answers = producer.end(first, True)
        while second.state_partition.log.state.log_end_offset == before:
            assert cluster.replicate()
        cluster.kill(1)
        second.lead_state(isr=BOTH)
        cluster.settle()
        assert second.markers_in(RETURNS) == []
        cluster.start(1)
        cluster.kill(2)
        truncate(cluster.nodes[1].state_partition.log, before)
        cluster.elect(1)
        cluster.start(2)
        assert code_of(answers) is None
        replaced(cluster, producer, 1)
        assert check(cluster, 1) is False


@pytest.mark.parametrize("seed", range(6))
def test_transactions_are_atomic_in_random_histories(tmp_path: Path, seed: int) -> None:
    """One transaction after the other, with faults between any two steps."""
    random = Random(seed)
    with two_brokers(tmp_path) as cluster:
        producer, coordinator = Producer(cluster), 1
        expected: list[bool] = []
        for _ in range(12):
            producer.begin(coordinator)
            committed = random.random() < 0.7
            answers = producer.end(cluster.nodes[coordinator], committed)
            for _ in range(random.randrange(3)):
                cluster.run(random.randrange(25))
                coordinator = random.choice(FAULTS_OF_ANY)(cluster, coordinator)
            cluster.run(random.randrange(25))
            if code_of(answers) is not ErrorCode.NONE:
                ended(cluster, producer, coordinator, committed)
            cluster.settle()
            expected.append(committed)
        for key, broker_id in LED_BY.items():
            assert cluster.nodes[broker_id].outcomes_in(key) == expected
            assert not cluster.nodes[broker_id].is_open(key)
