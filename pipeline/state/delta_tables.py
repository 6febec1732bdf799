"""Opens and reads Delta tables, which may be missing or broken.

deltalake's `to_pyarrow_table` and `to_pandas` are not used. With them pyarrow reads through a file system written in
Python, and pyarrow's threads may release their read-ahead buffers after the call has returned. A thread that does so
while the interpreter shuts down needs the GIL, and the process aborts (apache/arrow#34314: up to a fifth of all short
scripts). deltalake's QueryBuilder reads in Rust alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.state.location import Location


class BrokenTable(PipelineError):
    """The table exists but cannot be read. The message is one line."""

    def __init__(self, place: Location, error: Exception) -> None:
        lines = f"{error}".strip().splitlines() or [type(error).__name__]
        super().__init__(f"the table {place} cannot be read: {lines[0]}", "restore it; nothing was changed")


def table_at(place: Location) -> DeltaTable | None:
    """Opens the newest version of a table. None if there is no table. Raises BrokenTable and PipelineError."""
    if place.is_local and place.path.is_file():
        raise PipelineError(f"{place} is a file, but should be a table", "move it, or set lake or name")
    try:
        return DeltaTable(place.url, storage_options=dict(place.options))
    except TableNotFoundError:
        return None
    except DeltaError as error:
        raise BrokenTable(place, error) from error


def open_table(place: Location) -> DeltaTable:
    """Opens the newest version of a table that must exist. Raises BrokenTable and PipelineError."""
    table = table_at(place)
    if table is None:
        raise PipelineError(f"{place} is not a Delta table", "restore the table")
    return table


def read_table(table: DeltaTable, columns: Sequence[str] | None = None, where: str = "") -> pa.Table:
    """Returns columns of a table, by default all. `where`: an SQL condition on the rows. The rows are not ordered.

    Raises DeltaError, OSError and ValueError if the table cannot be read."""
    whole = pa.schema(table.schema())
    wanted = whole if columns is None else pa.schema([whole.field(name) for name in columns])
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in wanted.names)
    query = f"SELECT {names} FROM content" + (f" WHERE {where}" if where else "")
    # The query returns strings as string views, which some consumers do not support.
    return pa.table(QueryBuilder().register("content", table).execute(query)).cast(wanted)


def has_batch(table: DeltaTable, app: str, number: int) -> bool:
    """Whether this version of a table contains the batch. The table's log has the last batch of each application."""
    last = table.transaction_version(app)
    return last is not None and last >= number
