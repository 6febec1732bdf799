"""`--rows=N`: of each parametrized test at most N rows, the first, the last and some between; every test stays.

For runs that repeat by another event loop, another Python or another PySpark what passes in all rows by the first one.
What is different there is different for the code that a test runs; its rows have the same code and other data. Tests of
the kinds `programs` and `long` are not repeated, so they keep their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.kinds import kinds_of

REPEATED = frozenset({"quick", "second_loop", "spark"})
T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", type=int, metavar="N", help="at most N rows of each parametrized test")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After the kinds have been chosen: what does not run is no row."""
    most = config.getoption("--rows")
    if most is None:
        return
    if most < 1:
        raise pytest.UsageError(f"--rows={most}: a test has at least one row")
    rows: dict[str, list[pytest.Item]] = {}
    for item in items:
        rows.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item.nodeid for of_a_test in rows.values() for item in _kept(of_a_test, most)}
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


def _kept(rows: list[pytest.Item], most: int) -> list[pytest.Item]:
    others = [item for item in rows if not kinds_of(item) <= REPEATED]
    return others + spread([item for item in rows if kinds_of(item) <= REPEATED], most)


def spread(rows: Sequence[T], most: int) -> list[T]:
    """Returns `most` of the rows, evenly from the first to the last, or all if there are no more."""
    if len(rows) <= most:
        return list(rows)
    if most == 1:
        return [rows[0]]
    return [rows[number * (len(rows) - 1) // (most - 1)] for number in range(most)]
