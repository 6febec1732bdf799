"""Prints rows as a table of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

LONGEST_CELL = 60


def print_table(out: TextIO, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints the rows below their column names, each column as wide as its longest cell."""
    cells = [list(names), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    for line in cells:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip(), file=out)


def _cell(value: object) -> str:
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value}"
    text = text.replace("\n", "\\n")
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 3] + "..."
