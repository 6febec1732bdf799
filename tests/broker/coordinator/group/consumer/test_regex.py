"""Subscriptions by regular expression: when they are resolved, what they match, and what their results lead to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.coordinator.group.consumer import regex as regex_module
from odradek.broker.coordinator.group.consumer.regex import check_regex, resolve_steps
from odradek.protocol.errors import ErrorCode, ProtocolError
from tests.broker.coordinator.group.consumer.group_at_work import SETTINGS, FakeTopics, GroupAtWork, assigned

MOST_BYTES = 1 << 20
NAMES = ["foo", "food", "bar", "f.o", "Foo"]


def everyone(_name: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("foo", {"foo"}),
        ("fo.*", {"foo", "food"}),
        ("f\\.o", {"f.o"}),
        ("(?i)foo", {"foo", "Foo"}),
        ("bar|food?", {"bar", "foo", "food"}),
        (".*", set(NAMES)),
        ("oo", set()),
        ("^bar$", {"bar"}),
    ],
)
def test_an_expression_matches_whole_names(regex: str, matched: set[str]) -> None:
    assert finished(resolve_steps([regex], NAMES, everyone, MOST_BYTES)) == {regex: matched}


def test_topics_that_the_client_may_not_describe_are_left_out() -> None:
    found = finished(resolve_steps([".*", "b.*"], NAMES, lambda name: name != "bar", MOST_BYTES))
    assert found == {".*": set(NAMES) - {"bar"}, "b.*": set()}


@pytest.mark.parametrize("regex", ["[", "(?=x)", "(a)\\1", "a{1001}", "*", "(", "a" * 3 + "\\"])
def test_what_re2_does_not_compile_is_refused_and_matches_nothing(regex: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        check_regex(regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert finished(resolve_steps([regex], NAMES, everyone, MOST_BYTES)) == {regex: frozenset()}


@pytest.mark.parametrize("regex", ["(a?){1000}a{1000}", "(a*)*b", "(x+x+)+y", "|".join("abcdefghij" * 500)])
def test_no_expression_takes_long(regex: str) -> None:
    names = ["a" * 249, "x" * 249] * 100
    begin = time.thread_time()
    try:
        check_regex(regex)
    except ProtocolError:
        pass
    finished(resolve_steps([regex], names, everyone, MOST_BYTES))
    assert time.thread_time() - begin < 5


def test_one_expression_after_the_other_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a group has members would take too much memory together."""
    events = []
    for name in ("compile_regex", "matches"):
        known = getattr(regex_module, name)

        def noted(*arguments: Any, name: str = name, known: Any = known) -> Any:
            events.append(name)
            return known(*arguments)

        monkeypatch.setattr(regex_module, name, noted)
    finished(resolve_steps(["a", "b"], NAMES, everyone, MOST_BYTES))
    assert events == ["compile_regex", *["matches"] * len(NAMES)] * 2


def test_no_step_matches_a_large_expression_against_many_names() -> None:
    steps = resolve_steps(["a*b*" * 8000], ["a" * 249] * 20, everyone, MOST_BYTES)
    assert sum(1 for _ in steps) >= 20


def test_the_topics_that_a_client_may_describe_are_asked_for_once() -> None:
    asked: list[str] = []

    def is_visible(name: str) -> bool:
        asked.append(name)
        return True

    finished(resolve_steps(["f.*", ".*"], NAMES, is_visible, MOST_BYTES))
    assert sorted(asked) == sorted(NAMES)


def test_expressions_whose_results_do_not_fit_together_are_left_to_the_next_run() -> None:
    names = ["a" * 98, "b" * 98]
    for most_bytes, resolved in ((99, 1), (100, 1), (199, 1), (299, 1), (300, 2), (400, 3)):
        found = finished(resolve_steps(["a*|b*", "a*", ".*b"], names, everyone, most_bytes))
        assert list(found) == ["a*|b*", "a*", ".*b"][:resolved]
        assert found["a*|b*"] == set(names), "the first one is resolved, however large"


def test_many_names_are_matched_in_steps() -> None:
    steps = resolve_steps([".*1", "x"], [f"t{number}" for number in range(10_000)], everyone, MOST_BYTES)
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Mapping[str, frozenset[str]] = end.value
            break
        count += 1
    assert count > 50
    assert len(found[".*1"]) == 1000


# --- in a group -----------------------------------------------------------------------------------------------------


def test_a_new_expression_is_assigned_when_it_is_resolved() -> None:
    group = GroupAtWork()
    response = group.join("m", regex="f.*")
    assert (response.member_epoch, assigned(response), group.kinds) == (1, {}, [5, 8])
    assert group.last.resolve == {"f.*"}
    group.resolve()
    assert group.kinds == [16, 3]
    assert group.last.assign
    response = group.beat("m", 1)
    assert (response.member_epoch, assigned(response)) == (2, {1: set(range(6))})
    assert group.kinds == [7, 6, 8]


def test_an_expression_that_matches_nothing_makes_no_new_epoch() -> None:
    group = GroupAtWork()
    group.join("m", regex="x.*")
    group.resolve()
    assert group.kinds == [16]
    assert group.beat("m", 1).member_epoch == 1


def test_an_invalid_expression_is_refused() -> None:
    group = GroupAtWork()
    assert group.refused(group.join, "m", regex="[") is ErrorCode.INVALID_REGULAR_EXPRESSION
    group.join("m", regex="f.*")
    assert group.refused(group.beat, "m", 1, regex="(") is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_second_member_with_a_resolved_expression_is_assigned_at_once() -> None:
    group = GroupAtWork()
    group.join("a", regex="f.*")
    group.resolve()
    group.beat("a", 1)
    response = group.join("b", regex="f.*")
    assert response.member_epoch == 3
    assert group.last.resolve == frozenset()
    assert group.kinds == [5, 3, 7, 7, 6, 8]


def test_names_and_an_expression_add_up_and_the_empty_expression_is_none() -> None:
    group = GroupAtWork()
    group.join("m", "bar", regex="f.*")
    group.resolve()
    assert assigned(group.beat("m", 2)) == {1: set(range(6)), 2: {0, 1, 2}}
    told = group.beat("m", 3, regex="")
    assert assigned(told) == {2: {0, 1, 2}}
    assert group.kinds == [5, -16, 3, 7, 6, 8]
    assert group.group.subscriptions.names() == {"bar"}


def test_topics_that_went_with_an_expression_do_not_stay_in_the_hash() -> None:
    group = GroupAtWork()
    group.join("a", regex=".*")
    group.resolve()
    group.beat("a", 1)
    group.join("b", "foo")
    group.beat("a", 2, regex="x.*")
    assert group.kinds == [5, -16, 8], "no new epoch before the expression is resolved"
    group.join("c", "foo")
    other = GroupAtWork()
    other.join("b", "foo")
    assert group.group.metadata_hash == other.group.metadata_hash


def test_the_last_member_takes_its_expression_with_it() -> None:
    group = GroupAtWork()
    group.join("a", regex="f.*")
    group.resolve()
    group.join("b", regex="f.*")
    group.leave("a")
    assert group.kinds == [-8, -7, -5, 3]
    group.leave("b")
    assert group.kinds == [-8, -7, -5, -16, 3, 6]
    assert group.group.subscriptions.names() == frozenset()


def test_a_result_for_an_expression_that_nobody_uses_any_more_is_dropped() -> None:
    group = GroupAtWork()
    group.join("a", regex="f.*")
    asked = group.last
    group.beat("a", 1, regex="b.*")
    group.last = asked
    group.resolve()
    assert (group.kinds, group.group.epoch) == ([], 1)


def test_expressions_are_resolved_again_for_new_topics_but_not_within_ten_seconds() -> None:
    group = GroupAtWork()
    group.join("m", regex="f.*")
    group.resolve()
    group.beat("m", 1)
    group.topics.create("fee", 1)
    group.now_ms += 10_000
    group.beat("m", 2)
    assert group.last.resolve == frozenset()
    group.now_ms += 1
    group.beat("m", 2)
    assert group.last.resolve == {"f.*"}
    group.resolve()
    assert group.kinds == [16, 3]
    assert assigned(group.beat("m", 2)) == {1: set(range(6)), 3: {0}}
    group.now_ms += 20_000
    group.beat("m", 3)
    assert group.last.resolve == frozenset(), "nothing is new"


def test_expressions_are_resolved_again_after_the_refresh_interval_and_the_record_says_when() -> None:
    group = GroupAtWork()
    group.join("m", regex="f.*")
    group.resolve()
    group.beat("m", 1)
    group.now_ms += SETTINGS.regex_refresh_interval_ms + 1
    group.beat("m", 2)
    group.resolve()
    assert group.kinds == [16]
    assert group.group.subscriptions.resolved["f.*"].timestamp_ms == group.now_ms


def test_one_run_resolves_all_expressions_of_a_group_and_a_second_does_not_begin_beside_it() -> None:
    group = GroupAtWork(FakeTopics(foo=1, bar=1))
    group.join("a", regex="f.*")
    group.resolve()
    group.now_ms += 10_001
    group.join("b", regex="b.*")
    assert group.last.resolve == {"f.*", "b.*"}
    group.group.is_resolving = True
    group.beat("a", 1)
    assert group.last.resolve == frozenset()


def test_a_coordinator_that_has_loaded_the_group_resolves_its_expressions_again() -> None:
    group = GroupAtWork()
    group.join("m", regex="f.*")
    group.resolve()
    group.beat("m", 1)
    group.topics.create("fee", 1)
    group.now_ms += 10_001
    other = group.restarted()
    other.beat("m", 2)
    assert other.last.resolve == {"f.*"}
