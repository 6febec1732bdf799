"""Tables as commands print them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from odradek.broker.logging.printable import printable

NOTHING = "-"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Prints columns as wide as their widest value; a dash stands for None."""
    for line in table_lines(columns, rows):
        print(line)


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yields the lines that `print_table` prints."""
    table = [list(columns), *([NOTHING if value is None else printable(str(value)) for value in row] for row in rows)]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        yield "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
