"""Opening a Delta table that may be missing, or broken."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from odradek.pipeline.errors import PipelineError


class BrokenTable(PipelineError):
    """A table that is there and cannot be read; in one line."""

    def __init__(self, path: Path, error: Exception) -> None:
        said = f"{error}".strip().splitlines() or [type(error).__name__]
        super().__init__(f"the table {path} cannot be read: {said[0]}", "put it back as it was; nothing was changed")


def table_at(path: Path) -> DeltaTable | None:
    """The newest version of the table; None where there is none. Raises BrokenTable and PipelineError."""
    if path.is_file():
        raise PipelineError(f"{path} is a file, where a table is to be", "move it, or set lake or name")
    try:
        return DeltaTable(path) if DeltaTable.is_deltatable(str(path)) else None
    except DeltaError as error:
        raise BrokenTable(path, error) from error


def open_table(path: Path) -> DeltaTable:
    """The newest version of a table that must be there. Raises BrokenTable and PipelineError."""
    table = table_at(path)
    if table is None:
        raise PipelineError(f"{path} is no Delta table", "put the table back as it was")
    return table
