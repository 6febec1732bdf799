"""Records to rows: `data`, or the `reason` of the rejection with a readable `detail`, and `event_time`.

Pure functions from DataFrame to DataFrame. Each record is decoded once, however the result is used, unless Spark pushes
a filter below the decoding: persist the result before splitting the rows by reason. Only rejected records are parsed
again, to find the reason and, if it is used, the detail.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType, TimestampNTZType

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.binary_rows import avro_rows
from odradek.pipeline.parse.derived import FILTERED, derived
from odradek.pipeline.parse.framed_rows import framed_rows
from odradek.pipeline.parse.hook import transformed
from odradek.pipeline.parse.json_rows import json_rows
from odradek.pipeline.parse.partition_values import unfit_values
from odradek.pipeline.parse.protobuf_rows import Source, protobuf_rows
from odradek.pipeline.parse.rules import REASON, WARNED, with_rules
from odradek.pipeline.parse.schemas import decoded_schema, descriptors, required_columns, schema_of, schema_text
from odradek.pipeline.parse.years import EARLIEST_MS, LATEST_MS, is_time_in_years
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import first_line

REASONS = {
    "tombstone": "the value is null, and mode is append",
    "no_key": "the value is null, mode is upsert, and the record's key does not identify a row",
    "not_utf8": "the value (JSON), a string in it (Avro, Protobuf) or a derived string is not UTF-8",
    "not_json": "the value is not JSON, or has more than one JSON value, or exceeds the parser's limits",
    "wrong_type": "the value is JSON but not an object, or a field is not of its column's type",
    "unknown_field": "a field is not in the schema, and unknown-fields is reject",
    "not_framed": "schema-registry is set, and the value does not begin with a byte 0 and a schema id",
    "unknown_schema": "the registry has no schema with the value's id",
    "unfit_schema": "the value's schema is not of the format, or its columns do not fit those of earlier schemas",
    "not_avro": "the value's bytes are not exactly one row of the Avro schema",
    "not_protobuf": "the value's bytes are not a message of the Protobuf descriptor",
    "missing_required": "a column of required, dedup-keys, upsert-keys or NOT NULL in the schema is null or missing",
    "no_event_time": "the event time is null, or not in the years 1 to 9999",
    "unfit_partition": "a value of partition-by is too long for a directory name, or not in the years 1 to 9999",
    "in_future": "the event time is later than the planning of the batch by more than max-future",
    f"{REASON}NAME": "the row violates the rule NAME of [rules]",
}
"""Why a record becomes a dead letter: the first reason that holds, from the top. Late rows are not dead letters."""

OF_DECODING = (
    *("tombstone", "not_utf8", "not_json", "wrong_type", "unknown_field"),
    *("not_framed", "unknown_schema", "unfit_schema", "not_avro", "not_protobuf"),
)
"""The reasons of which the decoder knows the details."""

ADDED = ("data", "reason", "detail", "event_time")


class Check(NamedTuple):
    """A check of decoded rows: the condition under which it fails, the reason, and the detail."""

    fails: Column
    reason: str
    detail: Column


def parsed(records: DataFrame, settings: Settings, now: datetime | None = None) -> DataFrame:
    """Returns the records with the columns ADDED (`_raw` if unknown_fields is keep, WARNED if rules warn). `now`: the
    time against which events in the future are determined.

    `data`: a struct of the schema's columns, null if there is a reason. `reason`: a key of REASONS, FILTERED for a row
    that `where` leaves out, null for a good row. `event_time`: timestamp, null if there is a reason. Records whose rows
    `transform` drops are missing. Raises PipelineError."""
    return checked(*decoded(records, settings), settings, now)


def decoded(records: DataFrame, settings: Settings) -> tuple[DataFrame, Column]:
    """Returns the records with `data` and `reason` (and `_raw`) after decoding, [columns] and `where`, and the details
    of those that have a reason. Records for [columns], `where` or `transform` have no other columns but `detail`."""
    schema = schema_of(settings)
    try:
        rows, detail = _decoded(records, decoded_schema(settings), settings)
        if not (settings.columns or settings.where or settings.transform):
            return rows, detail
        shown = sf.when(sf.col("reason").isNotNull(), detail).alias("detail")
        rows = rows.select(*records.columns, "data", "reason", shown, *_raw(settings))
        return derived(rows, schema, settings), sf.col("detail")
    except AnalysisException as error:
        raise PipelineError(f"Spark cannot read {settings.format} with this schema: {first_line(error)}") from error


def checked(rows: DataFrame, detail: Column, settings: Settings, now: datetime | None = None) -> DataFrame:
    """Returns `decoded` rows after `transform`, the checks of all formats and the rules."""
    schema = schema_of(settings)
    # The decoders' own columns begin with an underscore.
    record = [name for name in rows.columns if name not in ADDED and not name.startswith("_")]
    timed = transformed(rows, schema, settings).withColumn("event_time", event_time(schema, settings))
    reason = sf.when(sf.col("reason").isNotNull(), sf.col("reason"))
    why = sf.when(sf.col("reason").isin(*OF_DECODING, FILTERED), detail)
    for check in (*_checks(schema, settings), *_future(settings, now)):
        reason = reason.when(check.fails, check.reason)
        why = why.when(check.fails, check.detail)
    good = sf.col("reason").isNull()
    judged = timed.withColumn("reason", reason).withColumn("detail", sf.when(~good, why))
    ruled = with_rules(judged, schema, settings)
    further = [name for name in (*_raw(settings), WARNED) if name in ruled.columns]
    columns = {name: sf.when(good, sf.col(name)) for name in ("data", "event_time", *further)}
    return ruled.withColumns(columns).select(*record, *ADDED, *further)


def _raw(settings: Settings) -> tuple[str, ...]:
    return ("_raw",) if settings.unknown_fields == "keep" else ()


def _decoded(records: DataFrame, schema: StructType, settings: Settings) -> tuple[DataFrame, Column]:
    """Returns the records with `data` and `reason` (and `_raw`) after the checks of the format, and the details."""
    if settings.schema_registry:
        return framed_rows(records, schema, settings), sf.col("detail")
    if settings.format == "json":
        return json_rows(records, schema, settings.unknown_fields)
    if settings.format == "avro":
        return avro_rows(records, schema, sf.lit(0), {0: schema_text(settings)}), sf.col("detail")
    if settings.format == "protobuf":
        source = Source(descriptors(settings), settings.message_name)
        return protobuf_rows(records, schema, sf.lit(0), {0: source}), sf.col("detail")
    nothing = sf.lit(None).cast("string")
    return records.withColumns({"data": sf.struct("key", "value", "headers"), "reason": nothing}), nothing


def _checks(schema: StructType, settings: Settings) -> Iterator[Check]:
    """Yields the checks of all formats: required columns, the event time, and values of partition-by."""
    data = sf.col("data")
    for name in required_columns(schema, settings):
        yield Check(data[name].isNull(), "missing_required", sf.lit(f"{name} is null or missing"))
    yield Check(sf.col("event_time").isNull(), "no_event_time", _why_no_time(settings))
    for is_unfit, why in unfit_values(schema, settings):
        yield Check(is_unfit, "unfit_partition", why)


def _future(settings: Settings, now: datetime | None) -> Iterator[Check]:
    """Yields the check for rows whose event time is more than `max_future` after now: they would make all later rows
    late.
    """
    if now is None or not settings.max_future:
        return
    latest = now + duration(settings.max_future, "max-future")
    detail = sf.concat(
        sf.lit(f"{settings.event_time or 'the timestamp'} is "),
        sf.col("event_time").cast("string"),
        sf.lit(f", more than {settings.max_future} after {now.isoformat(timespec='seconds')}"),
    )
    yield Check(sf.unix_micros("event_time") > int(latest.timestamp() * 1_000_000), "in_future", detail)


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
