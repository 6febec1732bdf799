"""Decodes Avro to rows, with Spark's own function."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StringType, StructType

from odradek.pipeline.parse.flaws import any_of, flaws
from odradek.pipeline.parse.schemas import AVRO_END, avro_frame, schema_text
from odradek.pipeline.settings import Settings


def avro_rows(records: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Returns the records with `data`, `reason` and `detail`.

    Avro's reader does not report unread bytes, and Spark does not distinguish a broken row from one of nulls. So the
    row is read as the first field of a frame. Its second field, bytes appended to the value, must be read unchanged."""
    framed = sf.concat(sf.col("value"), sf.lit(AVRO_END))
    frame = from_avro(framed, avro_frame(schema_text(settings)), {"mode": "PERMISSIVE"})
    read = records.withColumn("_frame", frame)
    whole = sf.coalesce(sf.col("_frame.end") == sf.lit(AVRO_END), sf.lit(False))
    return _judged(read.withColumn("data", sf.col("_frame.row")), whole, "not_avro", schema).drop("_frame")


def _judged(read: DataFrame, whole: Column, reason: str, schema: StructType) -> DataFrame:
    value = sf.col("value")
    broken = any_of(flaws(sf.col("data"), schema, _no_utf8))
    judged = sf.when(value.isNull(), "tombstone").when(~whole, reason).when(broken, "not_utf8")
    size = sf.concat(sf.lit("the value, "), sf.length(value), sf.lit(" bytes, is not one row of the schema"))
    framed = sf.hex(sf.substring(value, 1, 1)) == "00"
    hint = sf.when(framed, "; it begins with byte 0, like a schema registry's frame").otherwise("")
    detail = (
        sf.when(value.isNull(), "the value is null")
        .when(~whole, sf.concat(size, hint))
        .when(broken, "a string in the row is not UTF-8")
    )
    return read.withColumns({"reason": judged, "detail": detail})


def _no_utf8(value: Column, kind: DataType) -> Column | None:
    """Avro does not check the bytes of a string, and readers reject a Parquet file with invalid UTF-8."""
    return ~sf.is_valid_utf8(value) if isinstance(kind, StringType) else None
