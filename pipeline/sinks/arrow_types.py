"""The Arrow types of Spark's columns, as `DataFrame.toArrow` gives them; Spark's own conversion is private to it."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

PLAIN: dict[type[spark.DataType], pa.DataType] = {
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.BooleanType: pa.bool_(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def arrow_schema(columns: spark.StructType) -> pa.Schema:
    """Converts columns of the types that tables can have (STORED in parse/schemas.py)."""
    return pa.schema(_fields(columns))


def _fields(columns: spark.StructType) -> list[pa.Field]:
    return [pa.field(one.name, _type(one.dataType), one.nullable) for one in columns]


def _type(kind: spark.DataType) -> pa.DataType:
    if isinstance(kind, spark.StructType):
        return pa.struct(_fields(kind))
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", _type(kind.elementType), kind.containsNull))
    if isinstance(kind, spark.MapType):
        value = pa.field("value", _type(kind.valueType), kind.valueContainsNull)
        return pa.map_(pa.field("key", _type(kind.keyType), nullable=False), value)
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return PLAIN[type(kind)]
