"""Long loops: a few rounds by default, all of them in `make soak` (ODRADEK_SOAK=1), which runs nothing else.

    STEPS = rounds(10_000, in_soak=100_000)

    @pytest.mark.soak("100,000 steps of each of 20 seeds", minutes=2)
    def test_...

Random runs have more rows in the long tests (tests/kinds.py): SEEDS = seeds(4, of=12, in_soak=600).

`minutes` is the duration of all rounds on one core. `pytest --plan` prints what a soak would run; a soak prints at its
end how long each test took.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

SOAK = os.environ.get("ODRADEK_SOAK") == "1"
PROPERTY = "soak"


def rounds(few: int, *, in_soak: int) -> int:
    return in_soak if SOAK else few


def seeds(few: int, *, of: int, in_soak: int = 0) -> list[Any]:
    """Rows of random runs: the first `few` of them are quick, the others are long; in a soak, there are `in_soak`."""
    if SOAK:
        return list(range(in_soak or of))
    return [*range(few), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(few, of))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--plan", action="store_true", help="print what a soak runs and how long it takes; run nothing")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak(what, minutes=): all that a soak does, and its minutes on one core")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not SOAK:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("soak") is None])
    items[:] = [item for item in items if item.get_closest_marker("soak") is not None]
    for item in items:
        item.user_properties.append((PROPERTY, _what(item)))


def _what(item: pytest.Item) -> str:
    mark = item.get_closest_marker("soak")
    return str(mark.args[0]) if mark is not None and mark.args else "all rounds"


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.getoption("--plan"):
        return None
    print("\n".join(plan(session.items)))
    return True


def plan(items: Iterable[pytest.Item]) -> list[str]:
    """A line for each test, and the total."""
    minutes: dict[str, float] = {}
    whats: dict[str, str] = {}
    for item in items:
        if (mark := item.get_closest_marker("soak")) is not None:
            minutes[_function(item.nodeid)] = float(mark.kwargs.get("minutes", 0))
            whats[_function(item.nodeid)] = _what(item)
    lines = [f"{minutes[name]:6.1f} min  {whats[name]}: {name}" for name in minutes]
    return ["", *lines, f"{sum(minutes.values()):6.1f} min  in all, on one core"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    took: dict[str, float] = {}
    whats: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and PROPERTY in dict(report.user_properties):
                name = _function(report.nodeid)
                took[name] = took.get(name, 0) + report.duration
                whats[name] = str(dict(report.user_properties)[PROPERTY])
    if took:
        terminalreporter.section("soak")
        for name, seconds in took.items():
            terminalreporter.line(f"{seconds / 60:6.1f} min  {whats[name]}: {name}")
