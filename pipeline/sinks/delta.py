"""A Delta table that grows by batches, exactly once each.

Spark's executors write the files, deltalake registers them: one commit holds a batch's files and its number under the
application id of the job (`txn`), so that a batch that is in the table is known to be there, by whoever asks. Nothing
is collected on the driver. A file that was moved into the table and not registered is seen by no reader; vacuum
removes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.transaction import AddAction
from pyspark.sql import DataFrame, types
from pyspark.sql.types import StructType

from odradek.pipeline.batch_id import BatchId
from odradek.pipeline.delta_tables import open_table, table_at
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.file_statistics import statistics_of
from odradek.pipeline.sinks.staged_files import Layout, Written, clear_staging, parquet_files, partition_values, staged

NO_FILES = Written()
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
"""Those that Spark and Delta both have, besides arrays, maps and structs."""


def nothing(_point: str) -> None:
    """What a sink tells to nobody."""


class DeltaSink:
    """The table at `path`; `name` is its part of application ids, `reached` is told what is about to be done."""

    def __init__(
        self, path: Path, name: str, layout: Layout | None = None, reached: Callable[[str], None] = nothing
    ) -> None:
        self.path = path
        self.name = name
        self._layout = layout or Layout()
        self._reached = reached

    def last_batch(self, batch: BatchId) -> int | None:
        """The number of the last batch of this job and generation that is in the table."""
        table = table_at(self.path)
        return None if table is None else table.transaction_version(batch.app(self.name))

    def has(self, batch: BatchId) -> bool:
        """Whether this batch is in the table."""
        last = self.last_batch(batch)
        return last is not None and last >= batch.number

    def files(self) -> list[str]:
        """The data files of the newest version, as paths."""
        table = table_at(self.path)
        if table is None:
            return []
        # deltalake writes the table's own path with %20 for a space, and what is below it as it is.
        below = len(table.metadata().partition_columns) + 1
        return [str(self.path.joinpath(*uri.split("/")[-below:])) for uri in table.file_uris()]

    def prepare(self, schema: StructType, job: str) -> None:
        """Makes the table, or lets it grow by columns that it lacks. Raises PipelineError if it is of another kind."""
        clear_staging(self.path, job)
        wanted = delta_schema(schema, self.path)
        if table_at(self.path) is None:
            if self.path.is_dir() and any(not one.name.startswith("_") for one in self.path.iterdir()):
                raise PipelineError(
                    f"{self.path} holds files that are no Delta table", "move them, or set lake or name"
                )
            DeltaTable.create(str(self.path), wanted, mode="ignore", partition_by=list(self._layout.partition_by))
        table = open_table(self.path)
        found = table.metadata().partition_columns
        if tuple(found) != self._layout.partition_by:
            raise PipelineError(
                f"the table {self.path} is partitioned by {', '.join(found) or 'nothing'}, not by "
                f"{', '.join(self._layout.partition_by) or 'nothing'}",
                "set partition-by as it was, or another name",
            )
        grow(table, wanted, self.path)

    def write(self, rows: DataFrame, batch: BatchId) -> Written:
        """Adds the rows, unless this batch is there. Raises what Spark and deltalake raise, the table unchanged."""
        if self.has(batch):
            return NO_FILES
        with staged(rows, self.path, self._layout, batch) as directory:
            actions = [self._add(file) for file in self._moved(directory)]
        self._reached(f"{self.name}: files written")
        try:
            table = open_table(self.path)
            table.create_write_transaction(
                actions,  # type: ignore[arg-type]  # A list of one kind is a list of that kind or another.
                "append",
                table.schema(),
                list(self._layout.partition_by),
                commit_properties=commit_of(batch.app(self.name), batch.number),
            )
        except Exception:
            # What fails may have been committed before, so files go only where the log surely lacks them.
            if not self.has(batch):
                self._remove(Path(action.path) for action in actions)
            raise
        self._reached(f"{self.name}: committed")
        return Written(len(actions), sum(action.size for action in actions))

    def _moved(self, staging: Path) -> list[Path]:
        """The staged files, now in the table's directory and relative to it; all of them or none."""
        done: list[Path] = []
        try:
            for file in parquet_files(staging):
                (self.path / file).parent.mkdir(parents=True, exist_ok=True)
                os.rename(staging / file, self.path / file)
                done.append(file)
        except OSError:
            self._remove(done)
            raise
        return done

    def _remove(self, files: Iterable[Path]) -> None:
        for file in files:
            (self.path / file).unlink(missing_ok=True)

    def _add(self, file: Path) -> AddAction:
        place = self.path / file
        return AddAction(
            str(file),
            place.stat().st_size,
            partition_values(file, self._layout.partition_by),
            int(place.stat().st_mtime * 1000),
            True,
            statistics_of(place),
        )


def commit_of(app: str, number: int) -> CommitProperties:
    """A commit that also says: this was batch `number` of `app`."""
    return CommitProperties(app_transactions=[Transaction(app, number)])


def delta_schema(schema: StructType, path: Path) -> Schema:
    """Spark's columns as Delta's, all of them nullable. Raises PipelineError for types that Delta has not."""
    strange = [field.name for field in schema.fields if not _known(field.dataType)]
    if strange:
        raise PipelineError(f"the table {path} cannot have {', '.join(strange)}: Delta has no such type", "change it")
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


def grow(table: DeltaTable, wanted: Schema, path: Path) -> None:
    """Adds the columns that the table lacks: null in the rows that it has. Raises PipelineError where types differ."""
    there = {field.name.lower(): field for field in table.schema().fields}
    new = []
    for field in wanted.fields:
        found = there.pop(field.name.lower(), None)
        if found is None:
            new.append(field)
        elif found.name != field.name or found.type != field.type:
            raise PipelineError(
                f"the table {path} has {found.name} {type_name(found.type)}, the settings say "
                f"{field.name} {type_name(field.type)}",
                "keep the column as it was, or set another name",
            )
    for left in there.values():
        if not left.nullable:
            raise PipelineError(f"the table {path} needs {left.name}, which the settings lack", "add it to the schema")
    if new:
        table.alter.add_columns(new)


def type_name(kind: Any) -> str:
    """A Delta type as people write it: long, or JSON where it is nested."""
    return str(json.loads(kind.to_json())) if hasattr(kind, "to_json") else str(kind)
