"""The classes that Spark calls for the schema, the tasks, and the rows of a task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segments.options import Options, parse_options
from odradek.pipeline.segments.ranges import SegmentRange
from odradek.pipeline.segments.worker_imports import spare_archives

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
]
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


class SegmentSource(DataSource):
    """The data source of `spark.read.format("odradek")`. options.py describes its options."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> StructType:
        spare_archives()
        return _schema_of(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        own = _schema_of(options)
        if schema != own:
            raise PipelineError(f"the odradek source has a fixed schema, {own.simpleString()}", "do not set a schema")
        return SegmentReader(options)


def _schema_of(options: Options) -> StructType:
    headers = [StructField("headers", ArrayType(_HEADER))] if options.include_headers else []
    return StructType([*_COLUMNS, *headers])


class SegmentPartition(InputPartition):
    """A task in the form that Spark transports."""

    def __init__(self, value: SegmentRange) -> None:
        super().__init__(value)


class SegmentReader(DataSourceReader):
    """Plans in one process, and reads in the workers."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from odradek.pipeline.segments.planning import plan

        spare_archives()
        return [SegmentPartition(one) for one in plan(self._options)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a task. Without partitions there is a task all the same: Spark 4.0 gives it None, and 4.2
        a partition whose value is None."""
        from odradek.pipeline.segments.reading import read_range

        spare_archives()
        wanted = None if partition is None else partition.value
        return iter(()) if wanted is None else read_range(wanted, self._options)
