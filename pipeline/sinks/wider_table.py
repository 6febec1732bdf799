"""Widens the columns of a Delta table, in one commit that rewrites its files.

Delta's own type widening is a table feature that deltalake does not write, and many readers do not read. A rewritten
table needs no feature. Nothing else changes: the rows, their order of batches in the log, and the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, QueryBuilder, Schema, write_deltalake

from odradek.pipeline.state.location import Location


def widen(table: DeltaTable, wider: Mapping[str, Field], place: Location) -> None:
    """Gives columns of the table wider types. Raises CommitFailedError if another writer has committed in between."""
    wanted = pa.schema(Schema([wider.get(one.name, one) for one in table.schema().fields]))
    names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in wanted.names)
    found = pa.RecordBatchReader.from_stream(
        QueryBuilder().register("content", table).execute(f"SELECT {names} FROM content")
    )
    write_deltalake(
        table,
        pa.RecordBatchReader.from_batches(wanted, _cast(found, wanted)),
        mode="overwrite",
        schema_mode="overwrite",
        partition_by=table.metadata().partition_columns or None,
        storage_options=dict(place.options),
    )


def _cast(batches: Any, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(index).cast(field.type) for index, field in enumerate(wanted)]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
