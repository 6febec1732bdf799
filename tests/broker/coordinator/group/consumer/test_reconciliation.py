"""A member gives up, moves to the target's epoch, and gets what is free: each row of the tables of reconciliation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from random import Random
from uuid import UUID

import pytest

from odradek.broker.coordinator.group.consumer.member import ConsumerMember, Owned, Partitions
from odradek.broker.coordinator.group.consumer.member_state import TRANSITIONS, MemberState
from odradek.broker.coordinator.group.consumer.partition_owners import FREE, PartitionOwners
from odradek.broker.coordinator.group.consumer.reconciliation import reconcile
from odradek.protocol.errors import ErrorCode, ProtocolError

A, B = UUID(int=1), UUID(int=2)
STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS
UNKNOWN = MemberState.UNKNOWN


def since(epoch: int, **topics: Iterable[int]) -> Owned:
    return {{"A": A, "B": B}[name]: dict.fromkeys(numbers, epoch) for name, numbers in topics.items()}


def some(**topics: Iterable[int]) -> Partitions:
    return {{"A": A, "B": B}[name]: frozenset(numbers) for name, numbers in topics.items()}


def member(epoch: int, state: MemberState = STABLE, *, assigned: Owned = {}, revoking: Owned = {}) -> ConsumerMember:  # noqa: B006
    return ConsumerMember("m", epoch=epoch, previous_epoch=epoch - 1, state=state, assigned=assigned, revoking=revoking)


def step(
    who: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    *,
    subscribed: Collection[UUID] = (A, B),
    owned: Partitions | None = None,
    taken: Mapping[tuple[UUID, int], int] = {},
    anew: bool = False,
) -> ConsumerMember:
    return reconcile(
        who,
        target_epoch,
        target,
        subscribed=subscribed,
        owned=owned,
        owner_epoch=lambda topic_id, partition: taken.get((topic_id, partition), FREE),
        has_new_subscription=anew,
    )


def test_a_new_member_gets_all_that_is_free() -> None:
    after = step(ConsumerMember("m", epoch=0), 2, some(A=(0, 1)), owned={})
    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 2, 0)
    assert after.assigned == since(2, A=(0, 1))


def test_a_new_member_waits_in_the_target_s_epoch_for_what_others_own() -> None:
    after = step(ConsumerMember("m", epoch=0), 3, some(A=(0, 1)), owned={}, taken={(A, 0): 2})
    assert (after.state, after.epoch) == (UNRELEASED, 3)
    assert after.assigned == since(3, A=(1,))
    nothing = step(ConsumerMember("m", epoch=0), 3, some(A=(0,)), owned={}, taken={(A, 0): 2})
    assert (nothing.state, nothing.epoch, nothing.assigned) == (UNRELEASED, 3, {})


def test_a_member_without_a_part_of_the_target_is_stable_in_its_epoch() -> None:
    after = step(ConsumerMember("m", epoch=0), 3, {}, owned={})
    assert (after.state, after.epoch, after.assigned) == (STABLE, 3, {})


def test_a_member_keeps_its_epoch_until_it_has_given_up_what_it_must() -> None:
    before = member(2, assigned=since(2, A=(0, 1, 2)))
    told = step(before, 3, some(A=(0,), B=(5,)))
    assert (told.state, told.epoch, told.previous_epoch) == (UNREVOKED, 2, 2)
    assert (told.assigned, told.revoking) == (since(2, A=(0,)), since(2, A=(1, 2)))
    assert step(told, 3, some(A=(0,), B=(5,))) is told, "without a word it may still own all"
    assert step(told, 3, some(A=(0,), B=(5,)), owned=some(A=(0, 2))) is told, "it owns one of them"
    done = step(told, 3, some(A=(0,), B=(5,)), owned=some(A=(0,)))
    assert (done.state, done.epoch, done.previous_epoch) == (STABLE, 3, 2)
    assert done.assigned == {**since(2, A=(0,)), **since(3, B=(5,))}, "what it kept, it has since epoch 2"
    assert not done.revoking


def test_a_member_that_does_not_own_what_it_must_give_up_moves_on_at_once() -> None:
    after = step(member(2, assigned=since(2, A=(0, 1))), 3, some(A=(0,)), owned=some(A=(0,)))
    assert (after.state, after.epoch, after.assigned) == (STABLE, 3, since(2, A=(0,)))


def test_a_member_that_has_reached_the_target_changes_no_more() -> None:
    before = member(3, assigned=since(2, A=(0,)))
    assert step(before, 3, some(A=(0, 1))) is before


def test_a_waiting_member_gets_what_becomes_free() -> None:
    waits = member(3, UNRELEASED, assigned=since(3, A=(1,)))
    still = step(waits, 3, some(A=(0, 1)), taken={(A, 0): 2})
    assert (still.state, still.epoch, still.previous_epoch) == (UNRELEASED, 3, 3)
    assert step(still, 3, some(A=(0, 1)), taken={(A, 0): 2}) == still, "nothing to write a second time"
    assert step(still, 3, some(A=(0, 1))).state is STABLE
    moved_on = step(still, 4, some(B=(0,)))
    assert (moved_on.state, moved_on.epoch, moved_on.revoking) == (UNREVOKED, 3, since(3, A=(1,)))


def test_what_the_member_itself_must_give_up_is_free_for_it_if_a_later_target_gives_it_back() -> None:
    told = member(2, UNREVOKED, assigned=since(2, A=(0,)), revoking=since(2, A=(1,)))
    after = step(told, 4, some(A=(0, 1)), owned=some(A=(0,)), taken={(A, 0): 2, (A, 1): 2})
    assert (after.state, after.epoch) == (STABLE, 4)
    assert after.assigned == {A: {0: 2, 1: 4}}


def test_a_topic_that_is_not_subscribed_is_not_given_whatever_the_target() -> None:
    after = step(ConsumerMember("m", epoch=0), 2, some(A=(0,), B=(0,)), subscribed={A}, owned={})
    assert after.assigned == since(2, A=(0,))
    assert step(ConsumerMember("m", epoch=0), 2, some(B=(0,)), subscribed=(), owned={}).assigned == {}


def test_who_unsubscribes_gives_up_without_a_new_target() -> None:
    before = member(2, assigned=since(2, A=(0,), B=(1,)))
    told = step(before, 2, some(A=(0,), B=(1,)), subscribed={A}, anew=True)
    assert (told.state, told.epoch) == (UNREVOKED, 2)
    assert (told.assigned, told.revoking) == (since(2, A=(0,)), since(2, B=(1,)))
    more = step(told, 3, some(A=(0,)), subscribed=(), anew=True)
    assert (more.assigned, more.revoking) == ({}, since(2, A=(0,), B=(1,)))
    silent = step(before, 2, some(A=(0,), B=(1,)), subscribed={A}, owned=some(A=(0,)), anew=True)
    assert (silent.state, silent.epoch) == (STABLE, 2)
    assert (silent.assigned, silent.revoking) == (since(2, A=(0,)), {})
    assert step(before, 2, some(A=(0,), B=(1,)), anew=True) is before


def test_who_has_nothing_and_unsubscribes_from_everything_has_no_previous_epoch_any_more() -> None:
    after = step(member(2), 2, {}, subscribed=(), anew=True)
    assert (after.state, after.epoch, after.previous_epoch) == (STABLE, 2, 2)


@pytest.mark.parametrize("owned", [None, some(A=(0,)), some(A=())])
def test_a_member_in_a_state_of_a_later_release_must_rejoin_without_partitions(owned: Partitions | None) -> None:
    with pytest.raises(ProtocolError) as refused:
        step(member(2, UNKNOWN, assigned=since(2, A=(0,))), 3, some(A=(0,)), owned=owned)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_in_a_state_of_a_later_release_that_owns_nothing_goes_on_from_the_target_s_epoch() -> None:
    after = step(member(2, UNKNOWN, assigned=since(2, A=(0,))), 3, some(A=(1,)), owned={})
    assert (after.state, after.epoch, after.assigned) == (STABLE, 3, since(3, A=(1,)))


class Client:
    """A member, and what its client owns by what it was told last."""

    def __init__(self, name: str) -> None:
        self.member = ConsumerMember(name, epoch=0, previous_epoch=0)
        self.owned: Partitions = {}

    def beat(self, epoch: int, target: Partitions, owners: PartitionOwners, *, says: bool) -> None:
        before = self.member
        after = reconcile(
            before,
            epoch,
            target,
            subscribed=(A, B),
            owned=self.owned if says else None,
            owner_epoch=owners.epoch,
            has_new_subscription=False,
        )
        assert before.state is after.state or (before.state, after.state) in TRANSITIONS
        owners.release(before)
        owners.claim(after)
        self.member = after
        self.owned = {topic_id: frozenset(given) for topic_id, given in after.assigned.items()}

    def held(self) -> list[tuple[UUID, int]]:
        parts = self.member.assigned, self.member.revoking
        return [(topic_id, each) for part in parts for topic_id in part for each in part[topic_id]]


def test_random_targets_never_give_a_partition_to_two_and_members_come_to_rest() -> None:
    random = Random(5)
    for _ in range(300):
        clients = {name: Client(name) for name in "pqrs"}
        owners = PartitionOwners()
        target: dict[str, Partitions] = {}
        epoch = 1
        for _ in range(40):
            if random.random() < 0.3:
                epoch += 1
                target = random_target(random, list(clients))
            name = random.choice(list(clients))
            clients[name].beat(epoch, target.get(name, {}), owners, says=random.random() < 0.7)
            held = [each for client in clients.values() for each in client.held()]
            assert len(held) == len(set(held))
        for _ in range(3):
            for name, client in clients.items():
                client.beat(epoch, target.get(name, {}), owners, says=True)
        for name, client in clients.items():
            assert client.member.has_reached(epoch)
            assert client.owned == target.get(name, {})


def random_target(random: Random, names: list[str]) -> dict[str, Partitions]:
    parts: dict[str, dict[UUID, set[int]]] = {name: {} for name in names}
    for topic_id in (A, B):
        for partition in range(4):
            parts[random.choice(names)].setdefault(topic_id, set()).add(partition)
    return {name: {topic_id: frozenset(each) for topic_id, each in part.items()} for name, part in parts.items()}
