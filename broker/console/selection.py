"""One page of many rows: what a request asks for of ten thousand topics, in steps of a millisecond or two.

The names are searched and sorted in pieces, and the pieces merged as far as the page goes: no step looks at all of
them. Texts come from clients and may have 32 KB: what is shown and searched is their beginning.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.console.queries import Query

T = TypeVar("T")
Row = dict[str, Any]

LONGEST_TEXT = 256
SORTED_PER_STEP = 1000
ITEMS_PER_ROW = 10
"""How many items of a step a row counts as."""


class Selection(NamedTuple, Generic[T]):
    """`found` are the things of the page, `matching` how many match the search, `total` how many there are."""

    found: list[T]
    matching: int
    total: int


def shown(text: str) -> str:
    """Returns a client's text, cut if it is very long."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"


def select(items: Iterable[T], name_of: Callable[[T], str], query: Query) -> Steps[Selection[T]]:
    """Returns the page of `items` by name. They must not change while they are iterated over: pass copies."""
    wanted = query.search.casefold()
    pieces: list[list[tuple[str, int, T]]] = [[]]
    pace = Pace()
    total = 0
    for item in items:
        total += 1
        name = name_of(item)[:LONGEST_TEXT]
        if wanted in name.casefold():
            pieces[-1].append((name, total, item))
            if len(pieces[-1]) == SORTED_PER_STEP:
                pieces[-1].sort(key=_by_name)
                pieces.append([])
        if pace.step_ends():
            yield
    pieces[-1].sort(key=_by_name)
    merged = heapq.merge(*pieces, key=_by_name)
    for _ in islice(merged, query.offset):
        if pace.step_ends():
            yield
    found = [item for _, _, item in islice(merged, query.limit)]
    return Selection(found, sum(map(len, pieces)), total)


def _by_name(entry: tuple[str, int, object]) -> tuple[str, int]:
    return entry[:2]


def listing(query: Query, selection: Selection[Any], rows: list[Row]) -> Row:
    """Returns the JSON of a page. `left_off`: how many rows match behind it."""
    behind = selection.matching - query.offset - len(rows)
    return {
        "total": selection.total,
        "matching": selection.matching,
        "offset": query.offset,
        "left_off": max(behind, 0),
        "rows": rows,
    }


def rows_of(selection: Selection[T], row: Callable[[T], Row]) -> Steps[list[Row]]:
    """Makes the rows in steps."""
    pace = Pace()
    rows = []
    for item in selection.found:
        rows.append(row(item))
        if pace.step_ends(ITEMS_PER_ROW):
            yield
    return rows
