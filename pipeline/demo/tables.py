"""Prints the demo's tables, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from odradek.pipeline.jobs.sql import queried
from odradek.pipeline.report.text_table import print_table
from odradek.pipeline.settings import Settings

LINES = 8


ROWS = f"SELECT id, customer, country, item, quantity, amount, at FROM rows ORDER BY id LIMIT {LINES}"
WINDOWS = f"SELECT * FROM windows ORDER BY window_start DESC, country LIMIT {LINES}"
REASONS = """SELECT reason, count(*) AS letters, min(detail) AS "for example"
FROM dead_letters GROUP BY reason ORDER BY reason"""


def show_tables(settings: Settings, out: TextIO) -> None:
    """Prints some rows of each table."""

    def rows_of(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = queried(settings, query).to_pylist()
        return found

    counts = {
        name: rows_of(f"SELECT count(*) AS n FROM {name}")[0]["n"] for name in ("rows", "windows", "dead_letters")
    }
    _table(out, f"orders: {counts['rows']:,} good rows", rows_of(ROWS))
    _table(out, f"orders_windows: {counts['windows']:,} windows of five minutes and countries", rows_of(WINDOWS))
    _table(out, f"orders_dead_letters: {counts['dead_letters']:,} records by reason", rows_of(REASONS))
    print(f"\nnewest order: {rows_of('SELECT max(at) AS at FROM rows')[0]['at']}", file=out, flush=True)


def _table(out: TextIO, title: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}", file=out)
    if rows:
        print_table(out, list(rows[0]), [list(row.values()) for row in rows])
