"""Opening a Delta table that may be missing, or broken, and reading it.

deltalake's `to_pyarrow_table` and `to_pandas` are not used. They let pyarrow read through a file system that is written
in Python, and pyarrow's threads release what they have read ahead when the call has returned already. A thread that
does so while the interpreter ends wants the interpreter's lock, and the process is aborted (apache/arrow#34314: up to
a fifth of all short scripts). A query of deltalake's reads by Rust alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.location import Location


class BrokenTable(PipelineError):
    """A table that is there and cannot be read; in one line."""

    def __init__(self, place: Location, error: Exception) -> None:
        said = f"{error}".strip().splitlines() or [type(error).__name__]
        super().__init__(f"the table {place} cannot be read: {said[0]}", "put it back as it was; nothing was changed")


def table_at(place: Location) -> DeltaTable | None:
    """The newest version of the table; None where there is none. Raises BrokenTable and PipelineError."""
    if place.is_local and place.path.is_file():
        raise PipelineError(f"{place} is a file, where a table is to be", "move it, or set lake or name")
    try:
        return DeltaTable(place.url, storage_options=dict(place.options))
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise BrokenTable(place, error) from error


def open_table(place: Location) -> DeltaTable:
    """The newest version of a table that must be there. Raises BrokenTable and PipelineError."""
    table = table_at(place)
    if table is None:
        raise PipelineError(f"{place} is no Delta table", "put the table back as it was")
    return table


def read_table(table: DeltaTable, columns: Sequence[str] | None = None, where: str = "") -> pa.Table:
    """These columns of a table, by default all; `where`: which rows, as SQL says it. In no order.

    Raises DeltaError, OSError and ValueError where it cannot be read."""
    whole = pa.schema(table.schema())
    wanted = whole if columns is None else pa.schema([whole.field(name) for name in columns])
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in wanted.names)
    query = f"SELECT {names} FROM content" + (f" WHERE {where}" if where else "")
    # The query's texts are views, which not everything takes.
    return pa.table(QueryBuilder().register("content", table).execute(query)).cast(wanted)


def has_batch(table: DeltaTable, app: str, number: int) -> bool:
    """Whether this version of a table has the batch: its log names the last one of each application."""
    last = table.transaction_version(app)
    return last is not None and last >= number
