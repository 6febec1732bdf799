"""Records to rows: `data`, or the `reason` why not."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from pipeline.schemas import schema_of
from pipeline.settings import Settings

CORRUPT = "_corrupt"


def parsed(records: DataFrame, settings: Settings) -> DataFrame:
    """The records with `data`, `reason`, `detail`, `event_time`."""
    schema = schema_of(settings)
    wide = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    text = sf.col("value").cast("string")
    once = records.withColumn(
        "_json", sf.from_json(text, wide, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
    )
    data = sf.col("_json")
    reason = sf.when(sf.col("value").isNull(), "tombstone").when(data.isNull() | data[CORRUPT].isNotNull(), "not_json")
    for name in settings.required:
        reason = reason.when(data[name].isNull(), "missing_required")
    event_time: Column = data[settings.event_time] if settings.event_time else sf.col("timestamp")
    reason = reason.when(event_time.isNull(), "no_event_time")
    fields = sf.struct(*(data[name].alias(name) for name in schema.names))
    return (
        once.withColumns({"data": fields, "reason": reason, "event_time": event_time})
        .withColumn("event_time", sf.when(sf.col("reason").isNull(), sf.col("event_time")))
        .withColumn("detail", sf.col("reason"))
        .drop("_json")
    )
