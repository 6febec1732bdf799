"""Decodes Avro and Protobuf to rows, with Spark's own functions.

Values in the frame of a schema registry (a byte 0 and a 4-byte id before the row) are not supported: they become
dead letters.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.protobuf.functions import from_protobuf
from pyspark.sql.types import StructType

from odradek.pipeline.parse.flaws import any_of, flaws, no_utf8
from odradek.pipeline.parse.schemas import AVRO_END, PROTOBUF_OPTIONS, avro_frame, descriptors, schema_text
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


def protobuf_rows(records: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Returns the records with `data`, `reason` and `detail`. Protobuf does not encode the type and skips unknown
    fields, so a message of another type may be read as a row of defaults."""
    message = from_protobuf(
        sf.col("value"),
        settings.message_name,
        options={**PROTOBUF_OPTIONS, "mode": "PERMISSIVE"},
        binaryDescriptorSet=descriptors(settings),
    )
    read = records.withColumn("data", message)
    return _judged(read, sf.col("data").isNotNull(), "not_protobuf", schema)


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
