"""Prints the demo's tables, read without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from odradek.pipeline.jobs.sql import queried
from odradek.pipeline.report.text_table import print_table
from odradek.pipeline.settings import Settings

LINES = 8


def show_tables(settings: Settings, out: TextIO) -> None:
    """Prints some rows of each table."""
    from pyarrow import compute

    rows, windows, dead = (queried(settings, f"SELECT * FROM {name}") for name in ("rows", "windows", "dead_letters"))
    named = rows.select(["id", "customer", "country", "item", "quantity", "amount", "at"])
    _table(out, f"orders: {rows.num_rows:,} good rows", named.sort_by("id").slice(0, LINES).to_pylist())
    last = windows.sort_by([("window_start", "descending"), ("country", "ascending")]).slice(0, LINES)
    _table(out, f"orders_windows: {windows.num_rows:,} windows of five minutes and countries", last.to_pylist())
    by_reason = dead.group_by("reason").aggregate([("reason", "count"), ("detail", "min")])
    by_reason = by_reason.rename_columns(["reason", "letters", "for example"]).sort_by("reason")
    _table(out, f"orders_dead_letters: {dead.num_rows:,} records by reason", by_reason.to_pylist())
    newest = compute.max(rows["at"]).as_py()
    print(f"\nnewest order: {newest}", file=out, flush=True)


def _table(out: TextIO, title: str, rows: Sequence[dict[str, Any]]) -> None:
    print(f"\n{title}", file=out)
    if rows:
        print_table(out, list(rows[0]), [list(row.values()) for row in rows])
