"""What a snapshot says about a data file: its path, its partition, and statistics of its columns.

Readers use statistics to skip files, so bounds may be wide but never too narrow: bounds that are not certain are
omitted. (Iceberg's specification, "Data File Fields" and "Binary single-value serialization".)
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sinks.known_events import DataFiles
from odradek.pipeline.sinks.table_files import TableFile, partition_values
from odradek.pipeline.state.location import Location

DIRECTORY = "data"
"""The directory of a table's data files."""
LONGEST_TEXT = 64
NUMBERS: dict[type[IcebergType], str] = {
    IntegerType: "<i",
    DateType: "<i",
    LongType: "<q",
    TimestampType: "<q",
    TimestamptzType: "<q",
}
"""The types whose bounds are those of Parquet's integers, and their form. Floating-point numbers have none: NaN is
greater than all numbers, but not in the statistics."""


def described(file: TableFile, table: Table, partition_by: Sequence[str]) -> DataFile:
    """Returns the entry of a file that is in the table's directory."""
    values = partition_values(file.path, partition_by)
    schema = table.schema()
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location().rstrip('/')}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(_typed(values[name], schema.find_type(name)) for name in partition_by)),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        split_offsets=None,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **_statistics(file.footer, schema),  # type: ignore[arg-type]
    )


def _typed(text: str | None, kind: IcebergType) -> Any:
    """Converts a partition value from its string to its form in a manifest: days and microseconds as integers."""
    if text is None:
        return None
    arrow = schema_to_pyarrow(kind)
    value = pa.scalar(text, pa.string()).cast(pa.string() if isinstance(kind, StringType) else arrow)
    if pa.types.is_temporal(value.type):
        value = value.cast(pa.int32() if pa.types.is_date32(value.type) else pa.int64())
    return value.as_py()


def _text(value: Any, kind: IcebergType) -> str | None:
    """Converts a partition value from its form in a manifest to a string that Spark can cast."""
    return None if value is None else IdentityTransform().to_human_string(kind, value)


def _statistics(footer: Any, schema: Schema) -> dict[str, dict[int, Any]]:
    sizes: dict[int, int] = {}
    counts: dict[int, int] = {}
    nulls: dict[int, int] = {}
    least: dict[int, bytes] = {}
    greatest: dict[int, bytes] = {}
    columns = {one.name: one for one in schema.fields if one.field_type.is_primitive and "." not in one.name}
    for index in range(footer.num_columns):
        found = columns.get(footer.schema.column(index).path)
        if found is None:
            continue
        chunks = [footer.row_group(number).column(index) for number in range(footer.num_row_groups)]
        sizes[found.field_id] = sum(chunk.total_compressed_size for chunk in chunks)
        counts[found.field_id] = sum(chunk.num_values for chunk in chunks)
        statistics = [chunk.statistics for chunk in chunks]
        if not statistics or not all(one is not None and one.has_null_count for one in statistics):
            continue
        nulls[found.field_id] = sum(one.null_count for one in statistics)
        low, high = _bounds(statistics, found.field_type)
        if low is not None:
            least[found.field_id] = low
        if high is not None:
            greatest[found.field_id] = high
    return {
        "column_sizes": sizes,
        "value_counts": counts,
        "null_value_counts": nulls,
        "nan_value_counts": {},
        "lower_bounds": least,
        "upper_bounds": greatest,
    }


def _bounds(statistics: Sequence[Any], kind: IcebergType) -> tuple[bytes | None, bytes | None]:
    """Returns the minimum and the maximum of a column over its row groups. None if they are not certain."""
    filled = [one for one in statistics if one.num_values > 0]
    if not filled or not all(one.has_min_max for one in filled):
        return None, None
    if (form := NUMBERS.get(type(kind))) is not None:  # A time may be beyond Python's range, but not its number.
        low, high = min(one.min_raw for one in filled), max(one.max_raw for one in filled)
        return struct.pack(form, low), struct.pack(form, high)
    if isinstance(kind, StringType):
        low, high = min(one.min for one in filled), max(one.max for one in filled)
        return low[:LONGEST_TEXT].encode(), high.encode() if len(high) <= LONGEST_TEXT else None
    return None, None


def between(column: str, least: Any, greatest: Any) -> BooleanExpression:
    """Returns a condition that is true of rows with a value from `least` to `greatest`. Days and times are integers."""
    from_least: Any = GreaterThanOrEqual
    to_greatest: Any = LessThanOrEqual
    return And(from_least(column, least), to_greatest(column, greatest))


def files_of(table: Table, where: BooleanExpression | None = None) -> list[DataFile]:
    """Returns the data files that may have rows for which `where` is true. Raises PipelineError if another program has
    deleted rows without rewriting their files."""
    tasks = list(table.scan(row_filter=where or AlwaysTrue()).plan_files())
    if any(task.delete_files for task in tasks):
        raise PipelineError(
            f"the table {table.location()} has delete files of another program",
            "rewrite its data files, or set another name",
        )
    return [task.file for task in tasks]


def listed(files: Sequence[DataFile], table: Table, place: Location) -> DataFiles:
    """Returns the same files by their paths in `place`. Raises PipelineError if one is elsewhere."""
    root = f"{table.location().rstrip('/')}/"
    for file in files:
        if not file.file_path.startswith(root):
            raise PipelineError(f"the table {place} has {file.file_path}, which is not below it", "set another name")
    schema = table.schema()
    specs = table.specs()
    values = []
    for file in files:
        fields = [one for one in specs[file.spec_id].fields if isinstance(one.transform, IdentityTransform)]
        kinds = [schema.find_field(one.source_id) for one in fields]
        values.append({one.name: _text(file.partition[number], one.field_type) for number, one in enumerate(kinds)})
    partitions = values if any(values) else []
    return DataFiles(place, [file.file_path.removeprefix(root) for file in files], partitions)
