"""What must always hold of a group and of a transaction: each broken invariant is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.transaction.transaction import Transaction
from odradek.broker.coordinator.transaction.transaction_state import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    PREPARE_EPOCH_FENCE,
)
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.coordinator.group.harness import new_group


def stable_group() -> ClassicGroup:
    group = new_group()
    for number in range(2):
        member = Member(
            f"m{number}", f"i{number}", "client", "/127.0.0.1", 60_000, 10_000, "consumer", (("range", b""),)
        )
        group.add(member)
    group.transition_to(GroupState.PREPARING_REBALANCE, "a test")
    group.begin_generation("a test")
    group.transition_to(GroupState.STABLE, "a test")
    return group


@pytest.mark.parametrize(
    "damage",
    [
        lambda group: setattr(group.member("m0"), "member_id", "m2"),
        lambda group: setattr(group.member("m0"), "group_instance_id", "i2"),
        lambda group: setattr(group.member("m0"), "awaiting_join", lambda response: None),
        lambda group: setattr(group, "awaiting", 1),
        lambda group: setattr(group.member("m0"), "protocols", (("roundrobin", b""),)),
        lambda group: group.pending_sync.add("m2"),
        lambda group: setattr(group, "leader_id", "m2"),
        lambda group: [group.remove(f"m{number}") for number in range(2)],
    ],
    ids=["key", "instance", "parked", "count", "support", "sync", "leader", "state"],
)
def test_a_broken_invariant_of_a_group_is_found(damage: Callable[[ClassicGroup], object]) -> None:
    group = stable_group()
    group.check()
    damage(group)
    with pytest.raises(AssertionError):
        group.check()


@pytest.mark.parametrize(
    "damage",
    [
        lambda transaction: setattr(transaction, "state", PREPARE_EPOCH_FENCE),
        lambda transaction: setattr(transaction, "pending", COMPLETE_COMMIT),
        lambda transaction: setattr(transaction, "state", EMPTY),
        lambda transaction: setattr(transaction, "start_ms", -1),
        lambda transaction: setattr(transaction, "producer_id", -1),
        lambda transaction: setattr(transaction, "producer_epoch", -1),
    ],
    ids=["state", "pending", "partitions", "beginning", "producer", "epoch"],
)
def test_a_broken_invariant_of_a_transaction_is_found(damage: Callable[[Transaction], object]) -> None:
    transaction = Transaction("id", 7, 1000, 1)
    transaction.complete(transaction.prepare_epoch(0, -1, 1000, 1))
    transaction.complete(transaction.prepare_add({TopicPartition("t", 0)}, 2))
    transaction.check()
    damage(transaction)
    with pytest.raises(AssertionError):
        transaction.check()


def test_a_fence_is_of_an_open_transaction() -> None:
    transaction = Transaction("id", 7, 1000, 1)
    transaction.complete(transaction.prepare_epoch(0, -1, 1000, 1))
    transaction.complete(transaction.prepare_add({TopicPartition("t", 0)}, 2))
    transaction.prepare_fence(3)
    transaction.check()
    transaction.state = COMPLETE_ABORT
    with pytest.raises(AssertionError):
        transaction.check()
