"""Records to rows: `data`, or the `reason` of the rejection with a readable `detail`, and `event_time`.

Pure functions from DataFrame to DataFrame. Each record is decoded once, however the result is used, unless Spark pushes
a filter below the decoding: persist the result before splitting the rows by reason. Only rejected records are parsed
again, to find the reason.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType, TimestampNTZType

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.binary_rows import avro_rows, protobuf_rows
from odradek.pipeline.parse.derived import derived
from odradek.pipeline.parse.hook import transformed
from odradek.pipeline.parse.json_rows import json_rows
from odradek.pipeline.parse.partition_values import unfit_values
from odradek.pipeline.parse.rules import WARNED, with_rules
from odradek.pipeline.parse.schemas import decoded_schema, required_columns, schema_of
from odradek.pipeline.parse.years import EARLIEST_MS, LATEST_MS, is_time_in_years
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import first_line

REASONS = {
    "tombstone": "the value is null",
    "not_utf8": "the value (JSON), a string in it (Avro, Protobuf) or a derived string is not UTF-8",
    "not_json": "the value is not JSON, or has more than one JSON value, or exceeds the parser's limits",
    "wrong_type": "the value is JSON but not an object, or a field is not of its column's type",
    "unknown_field": "a field is not in the schema, and unknown-fields is reject",
    "not_avro": "the value's bytes are not exactly one row of the Avro schema",
    "not_protobuf": "the value's bytes are not a message of the Protobuf descriptor",
    "missing_required": "a column of required, of dedup-keys or NOT NULL in the schema is null or missing",
    "no_event_time": "the event time is null, or not in the years 1 to 9999",
    "unfit_partition": "a value of partition-by is too long for a directory name, or not in the years 1 to 9999",
    "in_future": "the event time is later than the planning of the batch by more than max-future",
    "rule:NAME": "the row violates the rule NAME of [rules]",
}
"""Why a record becomes a dead letter: the first reason that holds, from the top. Late rows are not dead letters."""

ADDED = ("data", "reason", "detail", "event_time")


def parsed(records: DataFrame, settings: Settings, now: datetime | None = None) -> DataFrame:
    """Returns the records with the columns ADDED (`_raw` if unknown_fields is keep, WARNED if rules warn). `now`: the
    time against which events in the future are determined.

    `data`: a struct of the schema's columns, null if there is a reason. `reason`: a key of REASONS, FILTERED for a row
    that `where` leaves out, null for a good row. `event_time`: timestamp, null if there is a reason. Records whose rows
    `transform` drops are missing. Raises PipelineError."""
    return checked(decoded(records, settings), settings, now)


def decoded(records: DataFrame, settings: Settings) -> DataFrame:
    """Returns the records with `data`, `reason` and `detail` (and `_raw`) after decoding, [columns] and `where`."""
    schema = schema_of(settings)
    try:
        return derived(_decoded(records, decoded_schema(settings), settings), schema, settings)
    except AnalysisException as error:
        raise PipelineError(f"Spark cannot read {settings.format} with this schema: {first_line(error)}") from error


def checked(rows: DataFrame, settings: Settings, now: datetime | None = None) -> DataFrame:
    """Returns `decoded` rows after `transform`, the checks of all formats and the rules."""
    schema = schema_of(settings)
    timed = _with_reason(transformed(rows, schema, settings), schema, settings)
    ruled = with_rules(_without_future(timed, settings, now), schema, settings)
    good = sf.col("reason").isNull()
    further = [name for name in ("_raw", WARNED) if name in ruled.columns]
    columns = {name: sf.when(good, sf.col(name)) for name in ("data", "event_time", *further)}
    record = [name for name in rows.columns if name not in ("data", "reason", "detail", "_raw")]
    return ruled.withColumns(columns).select(*record, *ADDED, *further)


def _decoded(records: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Returns the records with `data`, `reason`, `detail` (and `_raw`), after the checks of the format."""
    if settings.format == "json":
        return json_rows(records, schema, settings.unknown_fields)
    if settings.format == "avro":
        return avro_rows(records, schema, settings)
    if settings.format == "protobuf":
        return protobuf_rows(records, schema, settings)
    nothing = sf.lit(None).cast("string")
    whole = sf.struct("key", "value", "headers")
    return records.withColumns({"data": whole, "reason": nothing, "detail": nothing})


def _with_reason(rows: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Adds the checks of all formats: required columns, the event time, and values of partition-by."""
    data = sf.col("data")
    timed = rows.withColumn("event_time", event_time(schema, settings))
    reason = sf.when(sf.col("reason").isNotNull(), sf.col("reason"))
    detail = sf.when(sf.col("reason").isNotNull(), sf.col("detail"))
    for name in required_columns(schema, settings):
        reason = reason.when(data[name].isNull(), "missing_required")
        detail = detail.when(data[name].isNull(), f"{name} is null or missing")
    missing = sf.col("event_time").isNull()
    reason = reason.when(missing, "no_event_time")
    detail = detail.when(missing, _why_no_time(settings))
    for is_unfit, why in unfit_values(schema, settings):
        reason = reason.when(is_unfit, "unfit_partition")
        detail = detail.when(is_unfit, why)
    return timed.withColumns({"reason": reason, "detail": detail})


def _without_future(rows: DataFrame, settings: Settings, now: datetime | None) -> DataFrame:
    """Rejects rows whose event time is more than `max_future` after now: they would make all later rows late."""
    if now is None or not settings.max_future:
        return rows
    latest = now + duration(settings.max_future, "max-future")
    is_later = sf.col("reason").isNull() & (sf.unix_micros("event_time") > int(latest.timestamp() * 1_000_000))
    detail = sf.concat(
        sf.lit(f"{settings.event_time or 'the timestamp'} is "),
        sf.col("event_time").cast("string"),
        sf.lit(f", more than {settings.max_future} after {now.isoformat(timespec='seconds')}"),
    )
    return rows.withColumns(
        {
            "reason": sf.when(is_later, sf.lit("in_future")).otherwise(sf.col("reason")),
            "detail": sf.when(is_later, detail).otherwise(sf.col("detail")),
        }
    )


def event_time(schema: StructType, settings: Settings) -> Column:
    """Returns the event time: a TIMESTAMP, a TIMESTAMP_NTZ in UTC, or a LONG of milliseconds since 1970; null outside
    the years 1 to 9999. Without the setting, the record's timestamp, unless it is -1, which is none in Kafka."""
    if not settings.event_time:
        return sf.when(sf.unix_millis("timestamp").between(0, LATEST_MS), sf.col("timestamp"))
    column = sf.col("data")[settings.event_time]
    kind = schema[settings.event_time].dataType
    if isinstance(kind, LongType):
        return sf.when(column.between(EARLIEST_MS, LATEST_MS), sf.timestamp_millis(column))
    if isinstance(kind, TimestampNTZType):
        column = column.cast("timestamp")
    return sf.when(is_time_in_years(column), column)


def _why_no_time(settings: Settings) -> Column:
    if not settings.event_time:
        return sf.when(
            sf.unix_millis("timestamp") > LATEST_MS, "the record's timestamp is after the year 9999"
        ).otherwise("the record has no timestamp")
    column = sf.col("data")[settings.event_time]
    detail = sf.concat(
        sf.lit(f"{settings.event_time} is "), column.cast("string"), sf.lit(", not in the years 1 to 9999")
    )
    return sf.coalesce(detail, sf.lit(f"{settings.event_time} is null or missing"))
