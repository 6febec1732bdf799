"""Decodes Avro to rows, with Spark's own function."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import DataType, StructType

from odradek.pipeline.parse.flaws import any_of, flaws, no_utf8
from odradek.pipeline.parse.schemas import AVRO_END, avro_frame
from odradek.pipeline.parse.widening import fitted


def avro_rows(records: DataFrame, schema: StructType, number: Column, texts: Mapping[int, str]) -> DataFrame:
    """Returns the records with `data`, `reason` and `detail`. `texts`: Avro schemas with columns that `schema` has, as
    wide or wider. `number`: which of them a record has.

    Avro's reader does not report unread bytes, and Spark does not distinguish a broken row from one of nulls. So the
    row is read as the first field of a frame. Its second field, bytes appended to the value, must be read unchanged."""
    framed = sf.concat(sf.col("value"), sf.lit(AVRO_END))
    names = {one: f"_frame_{one}" for one in texts}
    options = {"mode": "PERMISSIVE"}
    frames = {
        names[one]: sf.when(number == one, from_avro(framed, avro_frame(text), options)) for one, text in texts.items()
    }
    read = records.withColumns(frames)
    end = sf.coalesce(*(sf.col(f"{name}.end") for name in frames), sf.lit(b""))
    rows = (fitted(sf.col(f"{name}.row"), _row_type(read, name), schema) for name in frames)
    data = sf.coalesce(*rows, sf.lit(None).cast(schema))
    return _judged(read.withColumn("data", data), end == sf.lit(AVRO_END), "not_avro", schema).drop(*frames)


def _row_type(read: DataFrame, frame: str) -> DataType:
    kind = read.schema[frame].dataType
    assert isinstance(kind, StructType)
    return kind["row"].dataType


def _judged(read: DataFrame, whole: Column, reason: str, schema: StructType) -> DataFrame:
    value = sf.col("value")
    broken = any_of(flaws(sf.col("data"), schema, no_utf8))  # Avro does not check the bytes of a string.
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
