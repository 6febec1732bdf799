"""The target assignment that takes steps: what changed meanwhile is left out, and asks for another one."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.assignors.assignor import Target
from odradek.broker.coordinator.group.consumer.outcome import Outcome
from odradek.broker.coordinator.group.consumer.target import Assignment, due_in_ms
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics, GroupAtWork, assigned

BIG = UUID(int=1)


def large_group() -> GroupAtWork:
    """Returns a group of a, b and the static member s, whose target is not computed yet."""
    group = GroupAtWork(FakeTopics(big=3000))
    group.join("a", "big")
    group.join("b", "big")
    group.join("s", "big", instance_id="i")
    assert group.last.assign
    assert (group.group.epoch, group.group.target_epoch) == (4, 1)
    return group


def begun(group: GroupAtWork) -> tuple[Assignment, Target]:
    """Computes a target, which has not been written yet."""
    assignment = Assignment(group.group, group.group.epoch, group.topics, SETTINGS.assignors)
    return assignment, finished(assignment.steps())


def write(group: GroupAtWork, run: tuple[Assignment, Target]) -> None:
    group.write(*run)


def test_the_target_is_of_the_epoch_in_which_it_began() -> None:
    group = large_group()
    run = begun(group)
    group.join("late", "big")
    group.leave("b")
    write(group, run)
    assert group.kinds == [7, 7, 6]
    assert (group.group.epoch, group.group.target_epoch) == (6, 4)
    assert group.group.targets.keys() == {"a", "s"}, "no part for who has left or has come"
    assert due_in_ms(group.group, group.group.epoch, group.now_ms, 1000) == 1000


def test_the_order_of_topics_is_the_same_whatever_the_hashes_of_their_names_are() -> None:
    """Ids whose hashes collide are in a set in the order in which they were added."""
    names = [f"t{number}" for number in range(30)]
    topics = FakeTopics()
    for number, name in enumerate(names):
        topics.create(name, 1)
        topics.ids[name] = UUID(int=number << 40)
    group = GroupAtWork(topics)
    group.join("a", *names)
    _, target = begun(group)
    assert list(target["a"]) == list(frozenset(topics.ids[name] for name in sorted(names)))


def test_a_static_member_that_was_replaced_meanwhile_has_its_predecessor_s_part() -> None:
    group = large_group()
    run = begun(group)
    group.leave("s", instance="i", epoch=-2)
    group.join("s2", "big", instance_id="i")
    write(group, run)
    assert group.group.targets.keys() == {"a", "b", "s2"}
    assert group.group.target_of("s2") == run[1]["s"]
    assert assigned(group.beat("s2", group.member("s2").epoch, instance_id="i")) == {1: set(run[1]["s"][BIG])}


def test_each_batch_is_for_the_group_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.broker.coordinator.group.consumer.target.MOST_AT_ONCE", 1)
    group = large_group()
    assignment, target = begun(group)
    kinds = []
    for batch in assignment.batches(group.group, target, group.now_ms, most_bytes=1 << 20):
        group.carry_out(Outcome(batch))
        kinds.append(group.kinds)
        if len(kinds) == 1:
            group.leave("b")
            group.leave("s", instance="i", epoch=-2)
            group.join("s2", "big", instance_id="i")
    assert kinds == [[7], [7], [6]]
    assert group.group.targets.keys() == {"a", "s2"}
    assert group.group.target_of("s2") == target["s"]


def test_a_batch_has_no_more_bytes_than_it_may() -> None:
    group = large_group()
    assignment, target = begun(group)
    sizes = [len(batch) for batch in assignment.batches(group.group, target, group.now_ms, most_bytes=1)]
    assert sizes == [1, 1, 2], "the last has the epoch, too"


def test_a_topic_that_is_deleted_meanwhile_is_not_given() -> None:
    group = large_group()
    run = begun(group)
    group.topics.delete("big")
    write(group, run)
    assert not assigned(group.join("a", "big"))


def test_parts_that_did_not_change_are_not_written_again() -> None:
    group = large_group()
    write(group, begun(group))
    group.join("t", "big")
    run = begun(group)
    write(group, run)
    assert group.kinds.count(7) == sum(1 for name in run[1] if name == "t" or run[1][name] != {}), "range moves all"
    group.group.refresh_at_ms = 0
    group.topics.rack = "other"
    group.beat("a", group.member("a").epoch)
    write(group, begun(group))
    assert group.kinds == [6]
