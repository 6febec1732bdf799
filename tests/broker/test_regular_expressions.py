"""Expressions that clients choose take neither long nor much memory, whatever they are."""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path

import pytest

from odradek.broker.regular_expressions import (
    MOST_BYTES,
    MOST_COSTLY_PARTS,
    MOST_WORK,
    compiled,
    items_of_match,
    matches,
)
from odradek.protocol.errors import ErrorCode, ProtocolError

LONGEST = 32_767
"""Of a string of Kafka's protocol."""
LONGEST_NAME = 249
"""Of a topic."""
PROMISED_S = 0.1


def filled(unit: str, prefix: str = "") -> str:
    return prefix + unit * ((LONGEST - len(prefix)) // len(unit))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("unit", [r"\PL", r"\p{L}*", r"[^\pL\pN]", "a{0,1000}", "(?:a{9}){9}", "a{1000}?", r"\W{999}"])
@pytest.mark.parametrize("prefix", ["", "(?i)"])
def test_what_would_take_long_to_compile_is_refused_without_it(unit: str, prefix: str) -> None:
    regex = filled(unit, prefix)
    begin = time.thread_time()
    with pytest.raises(ProtocolError) as refused:
        compiled(regex)
    assert time.thread_time() - begin < PROMISED_S / 10
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("part", [r"\PL", "a{0,1000}"])
def test_as_many_costly_parts_as_are_allowed_are_left_to_re2(part: str) -> None:
    with pytest.raises(ProtocolError, match="too large"):
        compiled("(?i)" + part * MOST_COSTLY_PARTS)
    assert matches(compiled("a{1}" * MOST_COSTLY_PARTS), "a" * MOST_COSTLY_PARTS)


def test_names_of_many_topics_are_an_expression() -> None:
    names = [f"a-topic-of-mine-{number}" for number in range(1500)]
    expression = compiled("|".join(names))
    assert [matches(expression, name) for name in (names[0], names[-1], "another")] == [True, True, False]


def test_compiled_expressions_are_not_kept() -> None:
    compiled("a")
    before = resident_bytes()
    for number in range(130):
        matches(compiled(r"\pL" * 30 + str(number)), "a" * LONGEST_NAME)
    gc.collect()
    assert resident_bytes() - before < 20 * MOST_BYTES


@pytest.mark.parametrize("regex", [filled("a*b*"), "(?:.?){1000}.{100}", r"(?:\w?){900}z", "(?:[ab]*[ac]*[ad]*){900}z"])
def test_a_match_counts_as_the_time_that_it_takes_at_worst(regex: str) -> None:
    expression = compiled(regex)
    for name in ("a" * LONGEST_NAME, "ab" * (LONGEST_NAME // 2)):
        begin = time.thread_time()
        matches(expression, name)
        took_s = time.thread_time() - begin
        assert took_s < 2 * PROMISED_S
        assert took_s < 1e-3 + 50e-6 * items_of_match(expression, name)


def test_a_large_expression_is_not_matched_against_an_endless_text() -> None:
    expression = compiled(filled("a?b?"))
    assert not matches(expression, "x" * LONGEST_NAME)
    with pytest.raises(ProtocolError) as refused:
        matches(expression, "x" * (MOST_WORK // expression.programsize + 1))
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert matches(compiled("prefix-.*"), "prefix-" + "x" * LONGEST)
