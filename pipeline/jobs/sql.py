"""`odradek pipeline sql`: queries the tables of a pipeline, without Spark, and prints the result.

The tables are `rows`, `dead_letters`, `late`, `windows`, `redriven` and `ledger`. deltalake's QueryBuilder reads them,
in a directory and in an object store alike, so the language is that of DataFusion. Each query reads the newest
versions.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.places import Places

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS = 1000
READING = ("SELECT", "WITH")
"""The first words of queries. DataFusion could also insert rows, which no ledger would count."""


def run(settings: Settings, query: str, out: TextIO | None = None) -> int:
    """Prints at most MOST_ROWS rows of the result. Raises PipelineError."""
    from odradek.pipeline.jobs.one_line import one_line
    from odradek.pipeline.report.text_table import print_table

    out = sys.stdout if out is None else out
    with one_line("the query failed"):
        found = queried(settings, query, MOST_ROWS + 1)
        shown = found.slice(0, MOST_ROWS)
        columns = [_values(column) for column in shown.columns]
        print_table(out, found.column_names, list(zip(*columns, strict=True)))
        if found.num_rows > MOST_ROWS:
            print(f"  ... the result has more than {MOST_ROWS:,} rows: set a LIMIT, or aggregate", file=out)
    return 0


def queried(settings: Settings, query: str, most_rows: int | None = None) -> pa.Table:
    """Returns the result of a query of the pipeline's tables, or its first rows. Raises PipelineError."""
    with tempfile.TemporaryDirectory(prefix="odradek-") as scratch:
        return _queried(settings, query, most_rows, Path(scratch))


def _queried(settings: Settings, query: str, most_rows: int | None, scratch: Path) -> pa.Table:
    import pyarrow as pa
    from deltalake import QueryBuilder

    from odradek.pipeline.sinks.iceberg_tables import iceberg_place
    from odradek.pipeline.state.delta_tables import table_at

    if not query.split() or query.split()[0].upper() not in READING:
        raise PipelineError(f"the query begins with none of {', '.join(READING)}", "`sql` changes no table")
    builder, there, plain = QueryBuilder(), list[str](), list[str]()
    for name, place in Places.of(settings).tables.items():
        shown = "ledger" if name == "batches" else name
        table = table_at(place)
        if table is None and (iceberg := iceberg_place(place, settings)) is not None:
            from odradek.pipeline.sinks.iceberg.delta_view import delta_view

            if not re.search(rf"\b{shown}\b", query, re.IGNORECASE):
                there.append(shown)
                continue
            table = delta_view(iceberg, scratch / shown)
        if table is not None:
            builder.register(shown, table)
            there.append(shown)
        elif place.is_there():
            plain.append(f"{place} is plain Parquet, which `sql` does not read")
    if not there:
        raise PipelineError(
            f"the pipeline {settings.name!r} has no tables in {settings.lake}",
            "run `odradek pipeline ingest` first, or set its lake, state and name",
        )
    try:
        batches, count = [], 0
        reader = pa.RecordBatchReader.from_stream(builder.execute(query))
        for batch in reader:
            batches.append(batch)
            count += batch.num_rows
            if most_rows is not None and count >= most_rows:
                break
        return pa.Table.from_batches(batches, reader.schema)
    except Exception as error:  # deltalake raises the errors of a query as various types.
        problem = (f"{error}".strip().splitlines() or [type(error).__name__])[0]
        raise PipelineError(
            f"the query failed: {problem}", "; ".join([*plain, f"the tables are {', '.join(there)}"])
        ) from error


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Returns the values; times as text, because Python has no years after 9999."""
    import pyarrow as pa

    if pa.types.is_temporal(column.type) and not pa.types.is_duration(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values
