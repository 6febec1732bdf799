"""Writes the rows of a batch to files of all its tables in one pass over its records, and counts them meanwhile.

A task receives all judged rows. A column per table has the rows of that table as structs, without values elsewhere.
The task writes them to its files (table_files.py), and returns the files and the counts. Spark returns these once for
each task that succeeded. So the counts are those of the files, and no row is executed twice. Nothing is committed here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, MapType, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.transforms import GOOD, OUTCOME
from odradek.pipeline.sinks.arrow_types import arrow_schema
from odradek.pipeline.sinks.table_files import (
    WRITTEN_SCHEMA,
    Layout,
    TableFile,
    read_back,
    scratch_directory,
    tasks_for,
    write_rows,
    written_file,
)
from odradek.pipeline.state.accounting import Tally
from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

EVENT_US = "_event_us"
GROUPS = (OUTCOME, "reason", "topic", "partition")
FOUND_SCHEMA = (
    f"{WRITTEN_SCHEMA}, {OUTCOME} STRING, reason STRING, topic STRING, partition INT, first LONG, newest LONG"
)
"""A row is a file, or the count of the rows of a group, which has no path."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table of the rows of one outcome: their columns, and where their files are written."""

    place: Location
    directory: str
    columns: list[Column]


@dataclass(frozen=True, slots=True)
class Staged:
    """The files of a batch by outcome, not yet committed, and the counts of its records."""

    tally: Tally
    files: dict[str, list[TableFile]]


def write_all(judged: DataFrame, targets: Mapping[str, Target], layout: Layout, most: int) -> Staged:
    """Writes the judged rows, at most `most`, to the tables of their outcomes. Rows of an outcome without a table are
    only counted. `layout`: of the table of good rows, which alone may be partitioned.

    Raises Spark's errors, and PipelineError if the driver does not find what the tasks have written; the files are then
    removed."""
    places = {outcome: one.place / one.directory if one.directory else one.place for outcome, one in targets.items()}
    found = _arranged(_by_table(judged, targets), layout, most, GOOD in targets).mapInArrow(
        _writer(places, layout), FOUND_SCHEMA
    )
    staged = Staged(Tally(), {outcome: [] for outcome in targets})
    rows = found.collect()
    try:
        for row in rows:
            if row["path"] is None:
                place = (row["topic"], row["partition"])
                staged.tally.add(row[OUTCOME], row["reason"], place, row["rows"], row["first"], row["newest"])
            else:
                path = _path(targets[row[OUTCOME]], row["path"])
                file = read_back(targets[row[OUTCOME]].place, path, row["rows"], row["bytes"], row["host"])
                staged.files[row[OUTCOME]].append(file)
        _compare(staged, targets)
    except BaseException:
        for row in rows:
            if row["path"] is not None:
                targets[row[OUTCOME]].place.remove(_path(targets[row[OUTCOME]], row["path"]))
        raise
    return staged


def _path(target: Target, path: str) -> str:
    return f"{target.directory}/{path}" if target.directory else path


def _by_table(judged: DataFrame, targets: Mapping[str, Target]) -> DataFrame:
    """Returns what a task needs of each row: what is counted, and the row of its table."""
    structs = [sf.struct(*one.columns).alias(f"_{outcome}") for outcome, one in targets.items()]
    whole = judged.select(*GROUPS, "offset", sf.unix_micros("event_time").alias(EVENT_US), *structs)
    return whole.select(*GROUPS, "offset", EVENT_US, *(_only_of(whole, outcome) for outcome in targets))


def _only_of(rows: DataFrame, outcome: str) -> Column:
    """Returns the struct of a table, without values in the rows of other outcomes.

    Arrays and maps are then empty, not null: for each row, Spark measures the size of the Arrow batch, and Arrow then
    goes through all nulls at the end of a list again, which takes 15 s of a million rows."""
    name, fields = f"_{outcome}", cast(StructType, rows.schema[f"_{outcome}"].dataType)
    is_of, columns = sf.col(OUTCOME) == outcome, []
    for one in fields:
        column = sf.when(is_of, sf.col(name)[one.name])
        if isinstance(one.dataType, ArrayType):
            column = column.otherwise(sf.array().cast(one.dataType))
        elif isinstance(one.dataType, MapType):
            column = column.otherwise(sf.create_map().cast(one.dataType))
        columns.append(column.alias(one.name))
    return sf.struct(*columns).alias(name)


def _arranged(rows: DataFrame, layout: Layout, most: int, has_good: bool) -> DataFrame:
    """Returns the rows in the partitions of Spark that become tasks."""
    tasks = tasks_for(rows, layout, most)
    if layout.partition_by and tasks > 1 and has_good:
        return rows.repartition(tasks, *(sf.col(f"_{GOOD}")[name] for name in layout.partition_by))
    return rows.coalesce(tasks)


def _compare(staged: Staged, targets: Mapping[str, Target]) -> None:
    for outcome, files in staged.files.items():
        counted, there = staged.tally.by_outcome.get(outcome, 0), sum(file.rows for file in files)
        if counted != there:
            raise PipelineError(
                f"{targets[outcome].place}: {counted} rows were counted, but {there} written",
                "start the job again to repeat the batch",
            )


def _writer(
    places: Mapping[str, Location], layout: Layout
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Returns the function of a task: it writes its rows to files, and yields one batch of FOUND_SCHEMA."""

    schema = arrow_schema(cast(StructType, StructType.fromDDL(FOUND_SCHEMA)))

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        with scratch_directory() as scratch:
            task = _Task(places, scratch)
            good = task.rows(batches)
            found = [{**one, OUTCOME: GOOD} for one in _written_good(good, scratch, places.get(GOOD), layout)]
            found += [*task.close(), *task.counts()]
        yield pa.RecordBatch.from_pylist(found, schema)

    return write


def _written_good(
    good: Iterator[pa.RecordBatch], scratch: Path, place: Location | None, layout: Layout
) -> list[dict[str, Any]]:
    if place is not None:
        return write_rows(good, scratch / GOOD, place, layout)
    for _ in good:
        raise AssertionError("good rows without a table are not yielded")
    return []


@dataclass(slots=True)
class _Task:
    """Divides the rows of a task. `places`: the directories of the tables by outcome."""

    places: Mapping[str, Location]
    scratch: Path
    files: dict[str, _File] = field(default_factory=dict)
    counted: dict[tuple[Any, ...], tuple[int, int, int | None]] = field(default_factory=dict)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the good rows. Counts all rows, and writes those of other outcomes."""
        for batch in batches:
            self._count(batch)
            for outcome in self.places:
                rows = _rows_of(batch, outcome)
                if rows.num_rows and outcome == GOOD:
                    yield rows
                elif rows.num_rows:
                    self._file(outcome, rows.schema).write(rows)

    def close(self) -> Iterator[dict[str, Any]]:
        """Moves the files of the other outcomes into the lake."""
        for outcome, file in self.files.items():
            yield {**file.put(self.places[outcome]), OUTCOME: outcome}

    def counts(self) -> Iterator[dict[str, Any]]:
        for group, (rows, first, newest) in self.counted.items():
            yield {**dict(zip(GROUPS, group, strict=True)), "rows": rows, "first": first, "newest": newest}

    def _count(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa

        table = pa.Table.from_batches([batch.select([*GROUPS, "offset", EVENT_US])])
        grouped = table.group_by(list(GROUPS), use_threads=False)
        measures = [("offset", "count"), ("offset", "min"), (EVENT_US, "max")]
        for row in grouped.aggregate(measures).to_pylist():
            group = tuple(row[name] for name in GROUPS)
            rows, first, newest = row["offset_count"], row["offset_min"], row[f"{EVENT_US}_max"]
            if group in self.counted:
                more, earlier, later = self.counted[group]
                rows, first = rows + more, min(first, earlier)
                newest = max((one for one in (newest, later) if one is not None), default=None)
            self.counted[group] = (rows, first, newest)

    def _file(self, outcome: str, schema: pa.Schema) -> _File:
        if outcome not in self.files:
            self.files[outcome] = _File(self.scratch, schema)
        return self.files[outcome]


def _rows_of(batch: pa.RecordBatch, outcome: str) -> pa.RecordBatch:
    """Returns the rows of one table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa.RecordBatch.from_struct_array(
        batch.column(f"_{outcome}").filter(pc.equal(batch.column(OUTCOME), outcome))
    )


class _File:
    """A Parquet file of rows that come a few at a time."""

    def __init__(self, scratch: Path, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._path = scratch / f"part-{uuid.uuid4().hex}-0.parquet"
        self._writer = parquet.ParquetWriter(self._path, schema)
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)
        self._rows += rows.num_rows

    def put(self, place: Location) -> dict[str, Any]:
        """Moves the file into a table's directory. Returns a row of WRITTEN_SCHEMA."""
        self._writer.close()
        place.put_file(self._path.name, self._path)
        return written_file(self._path.name, self._rows, self._path.stat().st_size)
