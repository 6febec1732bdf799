"""What members are told: each wrong answer is found at once, and the nearest one that is right is accepted."""

from __future__ import annotations

from uuid import UUID

import pytest

from odradek.protocol.errors import ErrorCode
from tests.simulation.consumer_group_invariants import groups_settle, stray_beats_are_refused
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome
from tests.simulation.membership_history import StrayBeat
from tests.simulation.memberships import Membership, Memberships
from tests.simulation.missteps import Misstep

TOPIC = UUID(int=1)
P, Q = (TOPIC, 0), (TOPIC, 1)
S = 1_000_000


class Group:
    """A group at a time that the test sets. `term`: that of its coordinator."""

    def __init__(self) -> None:
        self.now_us = 0
        self.term: object = "first"
        self.history = History(lambda: self.now_us)
        self.memberships = Memberships(self.history, "g", lambda: self.now_us, lambda: self.term)

    def member(self, name: str) -> Membership:
        return Membership(name, name, patience_us=3 * S, rebalance_us=3 * S)

    def found(self) -> list[str]:
        return [each.finding.invariant for each in self.history.of(Misstep)]


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_partition_of_another_member_is_not_given_away(group: Group) -> None:
    one, other = group.member("one"), group.member("other")
    group.memberships.told(one, 2, [P, Q], 0)
    group.memberships.told(other, 3, [P], 0)
    assert group.found() == ["owners"]


def test_a_partition_that_was_given_up_may_be_given_away(group: Group) -> None:
    one, other = group.member("one"), group.member("other")
    group.memberships.told(one, 2, [P, Q], 0)
    group.memberships.gives_up(one, [P], "told to")
    group.memberships.told(other, 3, [P], 0)
    assert group.found() == []
    assert group.memberships.owners == {P: other, Q: one}


@pytest.mark.parametrize(("after_us", "found"), [(3 * S - 1, ["owners"]), (3 * S, [])])
def test_who_was_not_heard_may_have_been_removed(group: Group, after_us: int, found: list[str]) -> None:
    one, other = group.member("one"), group.member("other")
    group.memberships.told(one, 2, [P], 0)
    group.now_us = after_us
    group.memberships.told(other, 3, [P], after_us)
    assert group.found() == found


@pytest.mark.parametrize(("after_us", "found"), [(3 * S - 1, ["owners"]), (3 * S, [])])
def test_who_does_not_give_up_in_time_may_have_been_removed(group: Group, after_us: int, found: list[str]) -> None:
    one, other = group.member("one"), group.member("other")
    group.memberships.told(one, 2, [P, Q], 0)
    group.now_us = after_us
    group.memberships.told(one, 2, [Q], after_us)
    group.memberships.told(other, 3, [Q], after_us)
    assert group.found() == found


def test_who_does_not_give_up_in_time_may_have_been_removed_although_it_was_heard(group: Group) -> None:
    one = group.member("one")
    group.memberships.told(one, 2, [P, Q], 1 * S)
    group.memberships.told(one, 2, [Q], 2 * S)
    assert one.there_until_us == 4 * S
    group.memberships.gives_up(one, [P], "told to")
    assert one.there_until_us == 4 * S
    group.memberships.told(one, 2, None, 3 * S)
    assert one.there_until_us == 6 * S


@pytest.mark.parametrize("is_heard", [True, False])
def test_who_does_not_say_in_time_that_it_has_given_up_may_have_been_removed(group: Group, is_heard: bool) -> None:
    one, other = group.member("one"), group.member("other")
    group.memberships.told(one, 2, [P, Q], 0)
    group.memberships.told(one, 2, [Q], 1 * S)
    group.memberships.gives_up(one, [P], "told to")
    if is_heard:
        group.memberships.told(one, 2, None, 1 * S)
    group.now_us = 3 * S
    group.memberships.told(other, 3, [Q], 3 * S)
    assert group.found() == (["owners"] if is_heard else [])


def test_an_epoch_does_not_fall(group: Group) -> None:
    one = group.member("one")
    group.memberships.told(one, 5, [], 0)
    group.memberships.told(one, 5, None, 0)
    assert group.found() == []
    group.memberships.told(one, 4, None, 0)
    assert group.found() == ["member epochs"]


def test_who_joins_anew_may_get_a_lower_epoch(group: Group) -> None:
    one = group.member("one")
    group.memberships.told(one, 5, [], 0)
    group.memberships.joins(one)
    group.memberships.told(one, 4, [], 0)
    assert group.found() == []


@pytest.mark.parametrize("term", ["first", "second"])
def test_who_keeps_what_it_must_give_up_is_a_member_no_longer(group: Group, term: str) -> None:
    """A new coordinator begins to wait anew."""
    one = group.member("one")
    group.memberships.told(one, 2, [P, Q], 0)
    group.memberships.told(one, 2, [P], 0)
    group.now_us = 4 * S
    group.memberships.told(one, 2, None, 4 * S)
    assert group.found() == []
    group.term = term
    group.now_us = 5 * S
    group.memberships.told(one, 2, None, 5 * S)
    assert group.found() == (["obeyed"] if term == "first" else [])


def test_an_answer_that_took_long_does_not_show_that_a_member_is_still_there(group: Group) -> None:
    one = group.member("one")
    group.memberships.told(one, 2, [P, Q], 0)
    group.memberships.told(one, 2, [P], 0)
    group.now_us = 9 * S
    group.memberships.told(one, 2, None, 5 * S)
    assert group.found() == []


def test_commits_in_the_epoch_before(group: Group) -> None:
    """They are accepted of what the member has had since then, or before."""
    one = group.member("one")
    memberships = group.memberships
    memberships.told(one, 2, [P], 0)
    memberships.told(one, 3, [P, Q], 0)
    assert not memberships.must_be_refused(one, 2, [P])
    assert not memberships.may_be_refused(one, 2, [P])
    assert memberships.must_be_refused(one, 2, [P, Q])
    assert not memberships.must_be_refused(one, 3, [P, Q])
    assert memberships.may_be_refused(one, 4, [P])
    memberships.gives_up(one, [P], "told to")
    assert memberships.must_be_refused(one, 2, [P])


def test_wrong_answers_to_commits(group: Group) -> None:
    one = group.member("one")
    group.memberships.stale_was_accepted(one, 2, [P])
    group.memberships.good_was_refused(one, 2, [P], ErrorCode.STALE_MEMBER_EPOCH)
    assert group.found() == ["stale", "stale"]


@pytest.mark.parametrize(("outcome", "found"), [(Outcome.OK, 1), (Outcome.FAILED, 0), (Outcome.UNKNOWN, 0)])
def test_stray_heartbeats_are_refused(group: Group, outcome: Outcome, found: int) -> None:
    beat = group.history.begin(StrayBeat(process="stray", group="g", what="a heartbeat of nobody"))
    group.history.end(beat, outcome)
    assert len(list(stray_beats_are_refused(group.history, FinalState()))) == found


def test_groups_settle(group: Group) -> None:
    assert not list(groups_settle(group.history, FinalState()))
    (violation,) = groups_settle(group.history, FinalState(unsettled=["group g is Assigning"]))
    assert str(violation) == "settled: group g is Assigning in the end"
