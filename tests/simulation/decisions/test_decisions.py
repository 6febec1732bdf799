"""Which decisions are found in a module, how they are counted, and that the page has those of the code."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest

from tests.simulation.decisions.found import REPORT, Found, decisions_of
from tests.simulation.decisions.modules import ROOT, listed_decisions
from tests.simulation.decisions.page import PAGE, Counts, Page, read, text_of
from tests.simulation.decisions.unreachable import patterns_without_a_use
from tests.simulation.world import Scale, World

SHORT = Scale(seconds=2.0, faults=3)
TRACED = f"""
from tests.simulation.decisions.counting import TRACING, quieten
from tests.simulation.world import Scale, World
quieten(50)
print(World(1, scale={SHORT}).run().digest)
print(sum(all(outcomes) for outcomes in TRACING.taken().values()))
"""


def texts(source: str) -> list[str]:
    return [f"{decision.function}: {decision.text}" for decision in decisions_of("m.py", dedent(source))]


def outcomes(source: str, call: str) -> list[tuple[str, bool]]:
    """What the functions of `source` report when they are called."""
    found = Found("m.py")
    tree = found.visit(ast.parse(dedent(source)))
    seen: list[tuple[str, bool]] = []

    def report(number: int, outcome: Any) -> Any:
        seen.append((found.decisions[number].text, bool(outcome)))
        return outcome

    namespace: dict[str, Any] = {REPORT: report}
    exec(compile(tree, "m.py", "exec"), namespace)
    eval(call, namespace)
    return seen


def test_the_parts_of_a_condition_are_decisions() -> None:
    source = """
    def f(a, b, c):
        if a and not (b or c):
            return 1 if a else 2
        while b:
            pass
    """
    assert texts(source) == ["f: a", "f: b", "f: c", "f: a (2)", "f: b (2)"]


def test_the_last_operand_of_a_value_is_a_decision_if_it_is_a_comparison() -> None:
    assert texts("x = a or b") == [": a"]
    assert texts("x = a and b > 1") == [": a", ": b > 1"]


def test_comprehensions_and_any_and_all_decide_about_each_element() -> None:
    assert texts("x = [a for a in b if a if a > 1]") == [": a", ": a > 1"]
    assert texts("x = any(a > 1 for a in b if a)") == [": a", ": a > 1"]


def test_a_decision_is_known_by_its_function_and_its_text() -> None:
    source = "class A:\n    def f(self, a):\n        return 1 if (a\n            > 2) else 3"
    assert texts(source) == texts(f"import x\n\n{source}") == ["A.f: a > 2"]


def test_constants_and_assertions_are_no_decisions() -> None:
    assert texts("while True:\n    assert a and b\nif TYPE_CHECKING:\n    import c") == []


def test_outcomes_are_those_of_the_code_as_it_stands() -> None:
    source = "def f(a, b):\n    return 'x' if a and b else 'y'"
    assert outcomes(source, "f(1, 0)") == [("a", True), ("b", False)]
    assert outcomes(source, "f(0, 1)") == [("a", False)]


def test_an_exception_that_is_caught_is_a_decision() -> None:
    source = "def f(a):\n    try:\n        return 1 / a\n    except ZeroDivisionError:\n        return 0"
    text = "except ZeroDivisionError"
    assert outcomes(source, "f(1)") == [(text, False)]
    assert outcomes(source, "f(0)") == [(text, False), (text, True)]


def test_a_case_is_a_decision_unless_it_matches_everything() -> None:
    source = (
        "def f(a):\n    match a:\n        case 1:\n            return 1\n        case 2 if a:\n            return 2"
    )
    assert outcomes(source, "f(1)") == [("case 1", True)]
    assert outcomes(source, "f(2)") == [("a", True), ("case 1", False), ("case 2 if a", True)][1:]
    assert outcomes(source, "f(3)") == [("case 1", False), ("case 2 if a", False)]


def test_the_page_has_the_decisions_of_the_code() -> None:
    listed = [decision for part in listed_decisions().values() for of_file in part.values() for decision in of_file]
    assert list(read().counts) == listed, "python -m tests.simulation.decisions --refresh"


def test_the_page_is_as_the_command_writes_it() -> None:
    assert text_of(read()) == PAGE.read_text(), "python -m tests.simulation.decisions --refresh"


def test_a_page_has_a_mark_where_nothing_was_counted() -> None:
    first = next(iter(read().counts))
    text = text_of(Page("2 seeds", {first: Counts(1, 2, 1)}))
    rows = [line for line in text.splitlines() if line.endswith(f"  {first.function}: {first.text}")]
    assert rows[0].split()[:3] == ["1", "2", "1"]
    assert "   ?    ?    ?" in text


def test_every_reason_is_about_a_decision_that_is_not_taken_both_ways() -> None:
    counts = read().counts.items()
    assert patterns_without_a_use(decision for decision, each in counts if each is None or each.is_one_sided) == []


@pytest.mark.timeout(120)
def test_a_seed_is_the_same_with_calls_beside_its_decisions() -> None:
    command = [sys.executable, "-c", TRACED]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    digest, both = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert digest == World(1, scale=SHORT).run().digest
    assert int(both) > 100
