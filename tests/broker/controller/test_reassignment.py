"""The decisions on reassignments."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from odradek.broker.controller.partition_states import unled
from odradek.broker.controller.reassignment_decisions import (
    begun,
    cancelled,
    check_target,
    completed,
    is_being_reassigned,
    is_complete,
    origin_of,
    target_of,
)
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.protocol.errors import ErrorCode, ProtocolError

LIVE = {1, 2, 3, 4}


def state(replicas: tuple[int, ...], isr: tuple[int, ...] | None = None, leader: int | None = None) -> PartitionState:
    isr = replicas if isr is None else isr
    return PartitionState(0, replicas[0] if leader is None else leader, 5, replicas, isr, 1)


@dataclass
class Step:
    before: tuple[int, ...]
    target: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


@pytest.mark.parametrize(
    "step",
    [
        Step((1, 2, 3), (1, 2, 3), (1, 2, 3), (), ()),
        Step((1, 2, 3), (3, 2, 1), (3, 2, 1), (), ()),
        Step((1, 2, 3), (4, 2, 1), (4, 2, 1, 3), (4,), (3,)),
        Step((1, 2), (3, 4), (3, 4, 1, 2), (3, 4), (1, 2)),
        Step((1,), (1, 2), (1, 2), (2,), ()),
        Step((1, 2), (2,), (2, 1), (), (1,)),
    ],
    ids=lambda step: f"{step.before}-to-{step.target}",
)
def test_a_reassignment_begins_with_the_union_of_origin_and_target(step: Step) -> None:
    after = begun(state(step.before), step.target, LIVE, 9)
    assert (after.replicas, after.adding, after.removing) == (step.replicas, step.adding, step.removing)
    assert (target_of(after), set(origin_of(after))) == (step.target, set(step.before))
    assert is_being_reassigned(after) == bool(step.adding or step.removing)
    assert (after.leader_epoch, after.controller_epoch) == (6, 9)


def test_a_reassignment_that_replaces_another_starts_from_the_same_origin() -> None:
    first = begun(state((1, 2)), (3, 4), LIVE, 1)
    second = begun(first, (2, 4), LIVE, 1)
    assert (second.replicas, second.adding, second.removing) == ((2, 4, 1), (4,), (1,))


def test_replicas_that_are_dropped_leave_the_replicas_in_sync_and_the_leadership() -> None:
    first = begun(state((1, 2)), (3, 4), LIVE, 1)._replace(isr=(1, 3, 4), leader=3)
    second = begun(first, (2, 4), LIVE, 1)
    assert (second.replicas, second.isr, second.leader) == ((2, 4, 1), (1, 4), 4)
    only_dropped = first._replace(isr=(3,))
    for refused in (lambda: begun(only_dropped, (2, 4), LIVE, 1), lambda: cancelled(only_dropped, LIVE, 1)):
        with pytest.raises(ProtocolError) as caught:
            refused()
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_reassignment_is_complete_when_its_target_is_in_sync_and_may_be_led() -> None:
    under_way = begun(state((1, 2)), (3, 2), LIVE, 1)
    assert not is_complete(under_way, LIVE, LIVE)
    in_sync = under_way._replace(isr=(1, 2, 3))
    assert is_complete(in_sync, LIVE, LIVE)
    assert is_complete(in_sync, {3, 4}, {3, 4})
    assert not is_complete(in_sync, {1, 4}, {1, 4})
    after = completed(in_sync, {2, 3}, {2, 3}, 9)
    assert (after.replicas, after.adding, after.removing, after.isr) == ((3, 2), (), (), (2, 3))
    assert (after.leader, after.controller_epoch) == (3, 9)  # the old leader is not alive


def test_a_leader_that_is_in_the_target_stays_leader() -> None:
    after = completed(begun(state((1, 2)), (2, 1), LIVE, 1), LIVE, LIVE, 1)
    assert (after.leader, after.replicas, after.leader_epoch) == (1, (2, 1), 6)


def test_the_next_leader_must_be_electable() -> None:
    in_sync = begun(state((1, 2)), (3, 4), LIVE, 1)._replace(isr=(1, 2, 3, 4))
    assert completed(in_sync, LIVE, {1, 2, 4}, 1).leader == 4
    assert completed(in_sync, {1, 2}, {1, 2}, 1).leader == NO_LEADER


def test_a_cancellation_restores_the_origin() -> None:
    under_way = begun(state((1, 2)), (3, 2), LIVE, 1)
    after = completed(cancelled(under_way, LIVE, 1), LIVE, LIVE, 1)
    assert (set(after.replicas), after.adding, after.removing, after.leader) == ({1, 2}, (), (), 1)
    with pytest.raises(ProtocolError) as caught:
        cancelled(after, LIVE, 1)
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_partition_that_never_had_a_leader_has_no_epoch_yet() -> None:
    after = begun(unled(0, (1,), 1), (2,), LIVE, 1)
    assert (after.replicas, after.leader_epoch, after.leader) == ((2, 1), -1, NO_LEADER)


def test_thousands_of_replicas_are_refused_with_a_short_message() -> None:
    for target in (range(100_000), [1] * 100_000):
        with pytest.raises(ProtocolError) as caught:
            check_target(target, (), LIVE)
        assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert len(str(caught.value)) < 200


@pytest.mark.parametrize("target", [(), (-1,), (1, -1), (1, 1), (9,), (1, 9)])
def test_invalid_target_replicas_are_refused(target: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_target(target, (), LIVE)
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replicas_that_are_not_added_need_not_be_alive() -> None:
    check_target((9, 1), (9,), LIVE)
    with pytest.raises(ProtocolError):
        check_target((9, 1), (8,), LIVE)
