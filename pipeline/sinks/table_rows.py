"""Reads rows of a table's files on executors, to rewrite them or to find their keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from odradek.pipeline.sinks.arrow_types import arrow_schema
from odradek.pipeline.sinks.known_events import DataFiles, column_of, typed_partition
from odradek.pipeline.state.location import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATH = "_path"
BATCH_ROWS = 50_000


def rows_of(
    spark: SparkSession, files: DataFiles, columns: StructType, keys: Collection[str], with_path: bool = False
) -> DataFrame:
    """Returns `columns` of all rows in the files; with PATH, that of each row's file. A column that a file lacks is
    null. `keys`: columns that are never null, so that a null partition value is the empty string."""
    partitioned = [name for name in (files.partitions[0] if files.partitions else {}) if name in columns.names]
    listed = [
        (path, *(files.partitions[number][name] for name in partitioned)) for number, path in enumerate(files.paths)
    ]
    texts = StructType([StructField(name, StringType()) for name in (PATH, *partitioned)])
    typed = [typed_partition(name, columns[name].dataType, name in keys) for name in partitioned]
    wanted = StructType([*columns, *([StructField(PATH, StringType())] if with_path else [])])
    reader = _reader(files.place, arrow_schema(wanted))
    return spark.createDataFrame(listed, texts).select(PATH, *typed).mapInArrow(reader, wanted)


def _reader(place: Location, wanted: pa.Schema) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Returns the function that a task applies to a list of files."""

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in range(batch.num_rows):
                row = batch.slice(number, 1)
                constants = {name: row.column(name)[0] for name in row.schema.names}
                yield from _rows(place, constants, wanted)

    return read


def read_rows(
    place: Location, path: str, partition: Mapping[str, str | None], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yields the columns `wanted` of a file's rows in this process. A column that the file lacks is null."""
    constants = {name: pa.scalar(value, pa.string()) for name, value in partition.items() if name in wanted.names}
    yield from _rows(place, {PATH: pa.scalar(path), **constants}, wanted)


def _rows(place: Location, constants: dict[str, Any], wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    from pyarrow import parquet

    with parquet.ParquetFile(place.open(constants[PATH].as_py())) as file:
        there = [name for name in wanted.names if name in file.schema_arrow.names and name not in constants]
        for batch in _batches(file, there):
            columns = dict(zip(there, batch.columns, strict=True))
            columns |= {name: pa.repeat(value, batch.num_rows) for name, value in constants.items()}
            arrays = [column_of(columns, one, batch.num_rows) for one in wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _batches(file: Any, there: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yields the file's columns; batches of no columns have their number of rows, too."""
    if there:
        yield from file.iter_batches(BATCH_ROWS, columns=list(there))
        return
    for start in range(0, file.metadata.num_rows, BATCH_ROWS):
        count = min(BATCH_ROWS, file.metadata.num_rows - start)
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
