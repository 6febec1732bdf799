"""What becomes of parsed records: good, dead, late or repeated; the rows of each table; windows of event time.

Plain functions from DataFrame to DataFrame.
"""

from __future__ import annotations

from datetime import date, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.repetitions import PLACE
from odradek.pipeline.parse.schemas import WINDOW_DAY, window_columns
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import first_line

DEAD_LETTER_COLUMNS = ("reason", "detail", "key", "value", "headers", *PLACE, "timestamp")
OUTCOME = "_outcome"
GOOD, DEAD, LATE = "good", "dead", "late"
DAY_S = 86_400


def judged(parsed: DataFrame, watermark: datetime | None) -> DataFrame:
    """Adds OUTCOME: DEAD with a reason, LATE with an event time before the watermark, else GOOD."""
    good = sf.lit(GOOD)
    if watermark is not None:
        before = int(watermark.timestamp() * 1_000_000)
        good = sf.when(sf.unix_micros("event_time") < before, sf.lit(LATE)).otherwise(good)
    return parsed.withColumn(OUTCOME, sf.when(sf.col("reason").isNotNull(), sf.lit(DEAD)).otherwise(good))


def of_outcome(rows: DataFrame, outcome: str) -> DataFrame:
    """Those of judged rows that have this outcome."""
    return rows.where(sf.col(OUTCOME) == outcome).drop(OUTCOME)


def without_places(rows: DataFrame, places: DataFrame, few: bool = False) -> DataFrame:
    """The rows that are not at one of the places; `few`: each task may have all of these."""
    return rows.join(sf.broadcast(places) if few else places, list(PLACE), "left_anti")


def good_rows(parsed: DataFrame, settings: Settings) -> DataFrame:
    """The rows of the table: the schema's columns, then where each came from, and its text if that is kept. `parsed`:
    rows without a reason.
    """
    places = [sf.col(name).alias(f"_{name}") for name in (*PLACE, "timestamp")]
    raw = [sf.col("_raw")] if settings.unknown_fields == "keep" else []
    return parsed.select("data.*", *places, *raw)


def dead_letters(parsed: DataFrame, settings: Settings) -> DataFrame:
    """What could not be taken, whole, and why. `parsed`: rows with a reason."""
    return parsed.select(*DEAD_LETTER_COLUMNS, sf.lit(settings.job_version).alias("job_version"))


def windowed(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Counts and sums of rows without a reason over event time: window_start, window_end, `window_by`, count,
    sum_COLUMN, window_day.

    Windows begin at multiples of their step since 1970 in UTC; where the step is shorter than the window, a row is in
    several. Nulls are not summed; a sum of nulls alone is null. LONGs are summed as DECIMAL(38, 0), which does not
    overflow. Raises PipelineError."""
    by = [sf.col("data")[name].alias(name) for name in settings.window_by]
    sums = [_sum(parsed, name) for name in settings.window_sums]
    try:
        span = sf.window("event_time", settings.window, settings.window_slide or None)
        counted = parsed.groupBy(span.alias("_window"), *by).agg(sf.count(sf.lit(1)).alias("count"), *sums)
    except PySparkException as error:
        what = f"window {settings.window!r} with window-slide {settings.window_slide!r} cannot be: {first_line(error)}"
        raise PipelineError(what, "give lengths like '1 minute'") from error
    start = sf.col("_window.start")
    times = {"window_start": start, "window_end": sf.col("_window.end"), WINDOW_DAY: _utc_day(start)}
    return counted.withColumns(times).select(*window_columns(settings))


def _utc_day(time: Column) -> Column:
    """The day in UTC, whatever the session's time zone, as a DATE of the years 1 to 9999: what is before or after is of
    the first or last of these days, as deltalake has no others."""
    first, last = (sf.lit((day - date(1970, 1, 1)).days) for day in (date.min, date.max))
    day = sf.floor(sf.unix_seconds(time) / DAY_S)
    return sf.date_from_unix_date(sf.greatest(first, sf.least(day, last)).cast("int"))


def _sum(parsed: DataFrame, name: str) -> Column:
    column = sf.col("data")[name]
    data = parsed.schema["data"].dataType
    if isinstance(data, StructType) and isinstance(data[name].dataType, LongType):
        column = column.cast("DECIMAL(38, 0)")
    return sf.sum(column).alias(f"sum_{name}")
