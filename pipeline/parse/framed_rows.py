"""Decodes values in the frame of a schema registry: a byte 0, the id of the schema in 4 bytes, and then the row.

The schemas are in the settings of the batch (registry/schema.py), so executors do not ask the registry, and a repeated
batch is decoded as before. A record whose id is not among them is a dead letter; `new_ids` finds these ids, so that the
registry can be asked before anything is written.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.parse.avro_schemas import with_references
from odradek.pipeline.parse.binary_rows import avro_rows
from odradek.pipeline.parse.json_rows import json_rows
from odradek.pipeline.parse.protobuf_rows import protobuf_rows
from odradek.pipeline.parse.registered_columns import message_source
from odradek.pipeline.registry.schema import KnownSchemas
from odradek.pipeline.settings import Settings

UNKNOWN = "unknown_schema"
ID_BYTES, FRAME_BYTES = 4, 5
LARGEST_ID = 2**31 - 1


def framed_rows(records: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Returns the records with `data`, `reason`, `detail` (and `_raw`), as the decoders of the formats do."""
    known = KnownSchemas.of_text(settings.schema)
    usable = [number for number in known.schemas if number not in known.unfit]
    number, value = sf.col("_schema_id"), sf.col("value")
    payload = sf.when(number.isin(usable), value.substr(sf.lit(FRAME_BYTES + 1), sf.length(value)))
    framed = records.withColumns({"_framed": value, "_schema_id": schema_id(value)}).withColumn("value", payload)
    decoded, why = _decoded(framed, schema, settings, known, usable)
    value = sf.col("_framed")
    unfit = sf.create_map(*(sf.lit(part) for one in known.unfit.items() for part in one)) if known.unfit else None
    size = sf.concat(sf.lit("the value, "), sf.length(value), sf.lit(" bytes, has no byte 0 and schema id before it"))
    reason = (
        sf.when(value.isNull(), "tombstone")
        .when(number.isNull(), "not_framed")
        .when(~number.isin(list(known.schemas)), UNKNOWN)
        .when(number.isin(list(known.unfit)), "unfit_schema")
    )
    detail = (
        sf.when(value.isNull(), "the value is null")
        .when(number.isNull(), size)
        .when(reason == UNKNOWN, sf.concat(sf.lit("the registry has no schema "), number))
    )
    if unfit is not None:
        detail = detail.when(
            reason == "unfit_schema",
            sf.concat(sf.lit("schema "), number, sf.lit(": "), sf.try_element_at(unfit, number)),
        )
    judged = {
        "reason": reason.otherwise(sf.col("reason")),
        "detail": detail.otherwise(sf.when(sf.col("reason").isNotNull(), why)),
        "value": value,
    }
    return decoded.withColumns(judged).drop("_framed", "_schema_id")


def _decoded(
    framed: DataFrame, schema: StructType, settings: Settings, known: KnownSchemas, usable: list[int]
) -> tuple[DataFrame, Column]:
    """Returns the rows, and the details of those that have a reason."""
    if settings.format == "json":
        return json_rows(framed, schema, settings.unknown_fields)
    number = sf.col("_schema_id")
    if settings.format == "avro":
        texts = {one: with_references(known.schemas[one].text, known.schemas[one].references) for one in usable}
        return avro_rows(framed, schema, number, texts), sf.col("detail")
    sources = {one: message_source(known.schemas[one], settings.message_name) for one in usable}
    return protobuf_rows(framed, schema, number, sources), sf.col("detail")


def schema_id(value: Column) -> Column:
    """Returns the schema id of a framed value, a LONG. Null if the value is not framed."""
    is_framed = (sf.hex(sf.substring(value, 1, 1)) == "00") & (sf.length(value) >= FRAME_BYTES)
    return sf.when(is_framed, sf.conv(sf.hex(sf.substring(value, 2, ID_BYTES)), 16, 10).cast("long"))


def new_ids(rows: DataFrame) -> list[int]:
    """Returns the distinct ids of the rows with the reason UNKNOWN that a registry may have. Executes the rows."""
    found = rows.where(sf.col("reason") == UNKNOWN).select(schema_id(sf.col("value")).alias("number")).distinct()
    return sorted(row["number"] for row in found.collect() if row["number"] <= LARGEST_ID)
