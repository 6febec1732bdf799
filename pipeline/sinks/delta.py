"""A Delta table to which each batch is added exactly once.

Spark's executors write the files, and deltalake registers them: one commit contains a batch's files, and its number
under the application id of the pipeline (`txn`). So the log shows which batches the table has, and two jobs cannot both
commit the same batch. Readers do not see unregistered files; vacuum removes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, types
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.widening import is_wider
from odradek.pipeline.sinks.file_statistics import statistics_of
from odradek.pipeline.sinks.known_events import DataFiles, Spans, files_around
from odradek.pipeline.sinks.table_files import Layout, TableFile, Written, partition_values, write_files
from odradek.pipeline.sinks.wider_table import widen
from odradek.pipeline.state.batch_id import BatchId
from odradek.pipeline.state.delta_tables import has_batch, open_table, table_at
from odradek.pipeline.state.location import Location

DELTA_TYPES = {
    types.BooleanType,
    types.ByteType,
    types.ShortType,
    types.IntegerType,
    types.LongType,
    types.FloatType,
    types.DoubleType,
    types.DecimalType,
    types.StringType,
    types.BinaryType,
    types.DateType,
    types.TimestampType,
    types.TimestampNTZType,
}
"""The types that both Spark and Delta have, besides arrays, maps and structs."""


def nothing(_point: str) -> None:
    """The default of `reached`: does nothing."""


class DeltaSink:
    """The table at `place`. `name` is the table's part of the application id. `reached` is called with the name of each
    step that a batch completes."""

    def __init__(
        self, place: Location, name: str, layout: Layout | None = None, reached: Callable[[str], None] = nothing
    ) -> None:
        self.place = place
        self.name = name
        self._layout = layout or Layout()
        self._reached = reached

    def last_batch(self, batch: BatchId) -> int | None:
        """Returns the number of the pipeline's last batch in the table. Raises PipelineError if it is not a table."""
        table = table_at(self.place)
        if table is None:
            self._refuse_other_files()
            return None
        return table.transaction_version(batch.app(self.name))

    def prepare(self, schema: StructType) -> None:
        """Creates the table, or adds the columns that it lacks and widens others. Raises PipelineError if it is
        incompatible."""
        wanted = delta_schema(schema, self.place)
        if table_at(self.place) is None:
            self._refuse_other_files()
            with suppress(CommitFailedError):  # If the store lost its response, the client's retry finds the table.
                DeltaTable.create(
                    self.place.url,
                    wanted,
                    mode="ignore",
                    partition_by=list(self._layout.partition_by),
                    storage_options=dict(self.place.options),
                )
        table = open_table(self.place)
        found = table.metadata().partition_columns
        if tuple(found) != self._layout.partition_by:
            raise PipelineError(
                f"the table {self.place} is partitioned by {', '.join(found) or 'nothing'}, not by "
                f"{', '.join(self._layout.partition_by) or 'nothing'}",
                "set partition-by to its old value, or set another name",
            )
        try:
            grown = grow(table, wanted, self.place)
        except CommitFailedError:  # As above, or another writer committed first.
            grown = grow(open_table(self.place), wanted, self.place)
        if grown:
            self._reached(f"{self.name}: columns grown")

    def write(self, rows: DataFrame, expected: int, batch: BatchId) -> Written:
        """Adds the rows, `expected` in number, unless the table has this batch.

        Raises errors of Spark and deltalake, and PipelineError; the table is then unchanged."""
        directory = self.aside(batch)
        if directory is None:
            return Written()
        return self.commit(write_files(rows, self.place, directory, self._layout, expected), batch)

    def aside(self, batch: BatchId) -> str | None:
        """Returns where the batch's files belong before they are committed. None if the table has the batch."""
        return None if has_batch(open_table(self.place), batch.app(self.name), batch.number) else ""

    def commit(self, files: Sequence[TableFile], batch: BatchId) -> Written:
        """Adds the files in `aside`, unless the table has this batch. Raises errors of deltalake; the table is then
        unchanged, and the files are removed."""
        app = batch.app(self.name)
        self._reached(f"{self.name}: files written")
        table = open_table(self.place)  # The commit fails if a later version has this batch.
        if has_batch(table, app, batch.number):
            return Written()
        try:
            table.create_write_transaction(
                [self._add(file) for file in files],
                "append",
                table.schema(),
                list(self._layout.partition_by),
                commit_properties=commit_of(app, batch.number),
            )
        except Exception:
            # The commit may have succeeded despite the error, so files are removed only if the log lacks them.
            table = open_table(self.place)
            if not has_batch(table, app, batch.number):
                self.place.remove(*(file.path for file in files))
                raise
            if not _has_files(table, files):
                raise
        self._reached(f"{self.name}: committed")
        return Written(len(files), sum(file.bytes for file in files), sum(file.rows for file in files))

    def discard(self, files: Sequence[TableFile]) -> None:
        """Removes files that were not committed."""
        self.place.remove(*(file.path for file in files))

    def files(self, column: str, spans: Spans) -> DataFiles:
        """Returns the data files of the newest version that may have rows whose time in `column` is in a span."""
        table = table_at(self.place)
        return DataFiles(self.place) if table is None else files_around(table, self.place, column, spans)

    def _refuse_other_files(self) -> None:
        if any(not one.startswith("_") for one in self.place.sizes()):
            raise PipelineError(f"{self.place} has files but is not a Delta table", "move them, or set lake or name")

    def _add(self, file: TableFile) -> AddAction:
        return AddAction(
            file.path,
            file.bytes,
            dict(partition_values(file.path, self._layout.partition_by)),
            int(time.time() * 1000),
            True,
            statistics_of(file.footer),
        )


def _has_files(table: DeltaTable, files: Sequence[TableFile]) -> bool:
    """Whether the table has the files: the commit was ours, and the store lost its response."""
    there = {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}
    return there.issuperset(file.path for file in files)


def commit_of(app: str, number: int) -> CommitProperties:
    """Returns commit properties that name batch `number` of `app`."""
    return CommitProperties(app_transactions=[Transaction(app, number)])


def delta_schema(schema: StructType, place: Location) -> Schema:
    """Converts Spark's columns to Delta's, all nullable. Raises PipelineError for types that Delta lacks."""
    strange = [field.name for field in schema.fields if not _known(field.dataType)]
    if strange:
        raise PipelineError(f"the table {place} cannot have {', '.join(strange)}: Delta lacks the type", "change it")
    return Schema.from_json(json.dumps(_nullable(json.loads(schema.json()))))


def _known(kind: types.DataType) -> bool:
    if isinstance(kind, types.StructType):
        return all(_known(field.dataType) for field in kind.fields)
    if isinstance(kind, types.MapType):
        return _known(kind.keyType) and _known(kind.valueType)
    return _known(kind.elementType) if isinstance(kind, types.ArrayType) else type(kind) in DELTA_TYPES


def _nullable(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_nullable(one) for one in kind]
    if not isinstance(kind, dict):
        return kind
    always = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {name: always.get(name, _nullable(value)) for name, value in kind.items()}


def grow(table: DeltaTable, wanted: Schema, place: Location) -> bool:
    """Adds the columns that the table lacks, null in existing rows, and widens types. Returns whether it had to. Raises
    PipelineError for types that do not hold the values that the table has."""
    there = {field.name.lower(): field for field in table.schema().fields}
    new, wider = [], {}
    for field in wanted.fields:
        found = there.pop(field.name.lower(), None)
        if found is None:
            new.append(field)
        elif found.type != field.type and found.name == field.name and is_wider(_spark(field), _spark(found)):
            wider[field.name] = field
        elif found.name != field.name or found.type != field.type:
            raise PipelineError(
                f"the table {place} has {found.name} {type_name(found.type)}, but the settings have "
                f"{field.name} {type_name(field.type)}",
                "keep the column's type, or set another name",
            )
    for left in there.values():
        if not left.nullable:
            raise PipelineError(f"the table {place} needs {left.name}, which the settings lack", "add it to the schema")
    if wider:
        widen(table, wider, place)
    if new:
        open_table(place).alter.add_columns(new)
    return bool(new or wider)


def _spark(field: Field) -> types.DataType:
    """Returns the type that Spark has for a column of Delta: both write it alike."""
    return types.StructField.fromJson(json.loads(field.to_json())).dataType


def type_name(kind: Any) -> str:
    """Returns the readable name of a Delta type: long, or JSON if it is nested."""
    return str(json.loads(kind.to_json())) if hasattr(kind, "to_json") else str(kind)
