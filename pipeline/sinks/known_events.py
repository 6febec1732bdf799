"""Reads the events in the table of good rows around the times of a batch, for de-duplication.

The table is the only store of known keys, so no other state can disagree with it. Executors read the keys, the event
times and the places from each file that may have events of these times (by the statistics in the table's log, then by
those of its row groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.kafka.offsets import Offsets
from odradek.pipeline.parse.schemas import schema_of
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.arrow_types import arrow_schema
from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

Spans = Sequence[tuple[int, int]]
"""Ranges of times, both ends inclusive, in microseconds since 1970; sorted and disjoint."""
TIME = "_event_us"
BATCH_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class DataFiles:
    """Files of a table, relative to its place. `partitions`: the partition values of each file, as strings."""

    place: Location
    paths: Sequence[str] = ()
    partitions: Sequence[dict[str, str | None]] = field(default_factory=list)


def time_column(settings: Settings) -> str:
    """Returns the name of the table's event-time column."""
    return settings.event_time or "_timestamp"


def files_around(table: DeltaTable, place: Location, column: str, spans: Spans) -> DataFiles:
    """Returns the files of a Delta table that may have rows whose time in `column` is in a span."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = table.metadata().partition_columns
    if f"min.{column}" in actions.column_names:
        actions = actions.filter(_overlapping(actions[f"min.{column}"], actions[f"max.{column}"], spans))
    columns = [actions[f"partition.{name}"].cast(pa.string()).to_pylist() for name in names]
    values = [dict(zip(names, one, strict=True)) for one in zip(*columns, strict=True)] if names else []
    paths = [unquote(path) for path in actions["path"].to_pylist()]  # The log percent-encodes paths.
    return DataFiles(place, paths, values)


def known_events(
    spark: SparkSession, settings: Settings, files: DataFiles, spans: Spans, below: Offsets, with_places: bool = False
) -> DataFrame | None:
    """Returns the dedup keys and TIME of the rows in `files` whose time is in a span; `with_places` also `_topic`,
    `_partition` and `_offset`. None without files.

    `below`: only rows before these offsets of these partitions count, so that a repeated batch does not find itself."""
    if not files.paths:
        return None
    schema = schema_of(settings)
    keys = [schema[name] for name in settings.dedup_keys]
    place = [StructField("_topic", StringType()), StructField("_partition", IntegerType())]
    wanted = StructType([*keys, *place, StructField("_offset", LongType()), StructField(TIME, LongType())])
    kinds = {one.name: one.dataType for one in [*schema, *place, StructField("_timestamp", TimestampType())]}
    partitioned = [name for name in (files.partitions[0] if files.partitions else {}) if name in kinds]
    rows = [
        (path, *(files.partitions[number][name] for name in partitioned)) for number, path in enumerate(files.paths)
    ]
    texts = StructType([StructField(name, StringType()) for name in ("_path", *partitioned)])
    typed = [typed_partition(name, kinds[name], name in settings.dedup_keys) for name in partitioned]
    listed = spark.createDataFrame(rows, texts).select("_path", *typed)
    names = [one.name for one in wanted if with_places or one.name not in ("_topic", "_partition", "_offset")]
    reader = _reader(_Search(files.place, arrow_schema(wanted), time_column(settings), spans, below, names))
    return listed.mapInArrow(reader, StructType([wanted[name] for name in names]))


def typed_partition(name: str, kind: DataType, is_key: bool) -> Column:
    """Converts a partition value from its string. A key is never null, so a null STRING key is the empty string, which
    Delta stores as null.
    """
    value = sf.col(name).cast(kind)
    return (sf.coalesce(value, sf.lit("")) if is_key and isinstance(kind, StringType) else value).alias(name)


def _overlapping(least: Any, greatest: Any, spans: Spans) -> Any:
    """Whether each file may have a time in a span. A file without statistics may."""
    low, high = (_micros(column) for column in (least, greatest))
    chosen = pc.or_(pc.is_null(low), pc.is_null(high))
    for start, end in spans:
        chosen = pc.or_(chosen, pc.fill_null(pc.and_(pc.less_equal(low, end), pc.greater_equal(high, start)), True))
    return chosen


def _micros(column: Any) -> Any:
    """Converts times to microseconds since 1970. Numbers are milliseconds."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return pc.multiply(column.cast(pa.int64()), 1000)


@dataclass(frozen=True, slots=True)
class _Search:
    """A search in a file: the `yielded` ones of the `wanted` columns, of rows within the spans and before `below`."""

    place: Location
    wanted: pa.Schema
    time: str
    spans: Spans
    below: Offsets
    yielded: Sequence[str]


def _reader(search: _Search) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Returns the function that a task applies to a list of files."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in range(batch.num_rows):
                row = batch.slice(one, 1)
                constants = {name: row.column(name) for name in row.schema.names if name != "_path"}
                yield from _events(search, row.column("_path")[0].as_py(), constants)

    return read


def _events(search: _Search, path: str, constants: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Yields the keys and times of one file."""
    from pyarrow import parquet

    yielded = [search.wanted.field(name) for name in search.yielded]
    with parquet.ParquetFile(search.place.open(path)) as file:
        there = [name for name in {*search.wanted.names, search.time} if name in file.schema_arrow.names]
        if search.time not in {*there, *constants}:  # Files from before the column existed have no times to compare.
            return
        groups = [n for n in range(file.num_row_groups) if _may_have(file, n, search.time, search.spans)]
        for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=there):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            columns |= {name: pa.repeat(value[0], batch.num_rows) for name, value in constants.items()}
            columns[TIME] = _micros(columns[search.time])
            chosen = pc.and_(_in_spans(columns[TIME], search.spans), _is_before(columns, search.below))
            arrays = [column_of(columns, one, batch.num_rows).filter(chosen) for one in yielded]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(yielded))


def _is_before(columns: dict[str, Any], below: Offsets) -> Any:
    """Whether each row is before the offset in `below`, or in a partition that it does not name."""
    ends = {f"{topic}-{number}": offset for topic, parts in below.items() for number, offset in parts.items()}
    names = pc.binary_join_element_wise(
        columns["_topic"].cast(pa.string()), columns["_partition"].cast(pa.string()), "-"
    )
    at = pc.index_in(names, value_set=pa.array(list(ends), pa.string()))
    return pc.fill_null(pc.less(columns["_offset"], pa.array(list(ends.values()), pa.int64()).take(at)), True)


def _may_have(file: Any, group: int, time: str, spans: Spans) -> bool:
    """Whether a row group may have a time in a span, by its statistics."""
    names = [file.metadata.schema.column(index).path for index in range(file.metadata.num_columns)]
    if time not in names:
        return True
    statistics = file.metadata.row_group(group).column(names.index(time)).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    factor = 1 if pa.types.is_timestamp(file.schema_arrow.field(time).type) else 1000
    low, high = statistics.min_raw * factor, statistics.max_raw * factor
    return any(low <= end and high >= start for start, end in spans)


def _in_spans(times: Any, spans: Spans) -> Any:
    chosen = pa.array([False] * len(times)) if not spans else None
    for start, end in spans:
        one = pc.and_(pc.greater_equal(times, start), pc.less_equal(times, end))
        chosen = one if chosen is None else pc.or_(chosen, one)
    return chosen


def column_of(columns: dict[str, Any], wanted: pa.Field, count: int) -> Any:
    """Returns a column with the schema's type; nulls if the file is older than the column."""
    found = columns.get(wanted.name)
    return pa.nulls(count, wanted.type) if found is None else found.cast(wanted.type)
