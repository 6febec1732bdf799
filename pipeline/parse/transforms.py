"""The outcomes of parsed records (good, dead, late, filtered, duplicate), the rows of each table, event-time windows.

Plain functions from DataFrame to DataFrame.
"""

from __future__ import annotations

from datetime import date, datetime

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import FILTERED
from odradek.pipeline.parse.repetitions import PLACE
from odradek.pipeline.parse.schemas import WINDOW_DAY, window_columns
from odradek.pipeline.settings import Settings
from odradek.pipeline.spark.errors import first_line

DEAD_LETTER_COLUMNS = ("reason", "detail", "key", "value", "headers", *PLACE, "timestamp")
OUTCOME = "_outcome"
GOOD, DEAD, LATE = "good", "dead", "late"
DAY_S = 86_400


def judged(parsed: DataFrame, watermark: datetime | None) -> DataFrame:
    """Adds OUTCOME: FILTERED or DEAD by the reason, LATE with an event time before the watermark, otherwise GOOD."""
    good = sf.lit(GOOD)
    if watermark is not None:
        before = int(watermark.timestamp() * 1_000_000)
        good = sf.when(sf.unix_micros("event_time") < before, sf.lit(LATE)).otherwise(good)
    left_out = sf.when(sf.col("reason") == FILTERED, sf.lit(FILTERED)).when(sf.col("reason").isNotNull(), sf.lit(DEAD))
    return parsed.withColumn(OUTCOME, left_out.otherwise(good))


def of_outcome(rows: DataFrame, outcome: str) -> DataFrame:
    """Returns the judged rows with this outcome."""
    return rows.where(sf.col(OUTCOME) == outcome).drop(OUTCOME)


def without_places(rows: DataFrame, places: DataFrame, few: bool = False) -> DataFrame:
    """Returns the rows that are not at one of the places. `few`: the places are few enough to broadcast."""
    return rows.join(sf.broadcast(places) if few else places, list(PLACE), "left_anti")


def good_rows(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Returns the rows of the table: the schema's columns, then those of record-columns, and the record's raw text if
    that is kept. `parsed`: rows without a reason.
    """
    return parsed.select(*good_columns(settings))


def good_columns(settings: Settings) -> list[Column]:
    """Returns the columns of `good_rows`."""
    places = [sf.col(name.removeprefix("_")).alias(name) for name in settings.record_columns]
    raw = [sf.col("_raw")] if settings.unknown_fields == "keep" else []
    return [sf.col("data.*"), *places, *raw]


def good_column(parsed: DataFrame, name: str) -> Column:
    """Returns the column `name` of `good_rows`."""
    data = parsed.schema["data"].dataType
    if isinstance(data, StructType) and name in data.names:
        return sf.col("data")[name]
    return sf.col(name if name == "_raw" else name.removeprefix("_"))


def dead_letters(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Returns the rejected records, complete, with the reason. `parsed`: rows with a reason."""
    return parsed.select(*dead_letter_columns(settings))


def dead_letter_columns(settings: Settings) -> list[Column]:
    """Returns the columns of `dead_letters`."""
    return [*map(sf.col, DEAD_LETTER_COLUMNS), sf.lit(settings.job_version).alias("job_version")]


def without_raw(judged: DataFrame, settings: Settings) -> DataFrame:
    """Returns the rows, where only dead ones have the record's key, value and headers, except what record-columns
    and a results-topic need. Such rows are half as large."""
    dead, kept = sf.col(OUTCOME) == DEAD, [name.removeprefix("_") for name in settings.record_columns]
    kept += ["key"] if settings.results_topic else []
    return judged.withColumns(
        {name: sf.when(dead, sf.col(name)) for name in ("key", "value", "headers") if name not in kept}
    )


def windowed(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Returns counts and sums over event-time windows of rows without a reason: window_start, window_end, `window_by`,
    count, sum_COLUMN, window_day.

    Windows start at multiples of their slide interval since 1970 in UTC; if it is shorter than the window, a row is in
    several windows. Nulls are not summed; a sum of only nulls is null. LONGs are summed as DECIMAL(38, 0), which does
    not overflow. Raises PipelineError."""
    by = [sf.col("data")[name].alias(name) for name in settings.window_by]
    sums = [_sum(parsed, name) for name in settings.window_sums]
    try:
        span = sf.window("event_time", settings.window, settings.window_slide or None)
        counted = parsed.groupBy(span.alias("_window"), *by).agg(sf.count(sf.lit(1)).alias("count"), *sums)
    except PySparkException as error:
        what = f"window {settings.window!r} with window-slide {settings.window_slide!r} is invalid: {first_line(error)}"
        raise PipelineError(what, "set lengths like '1 minute'") from error
    start = sf.col("_window.start")
    times = {"window_start": start, "window_end": sf.col("_window.end"), WINDOW_DAY: _utc_day(start)}
    return counted.withColumns(times).select(*window_columns(settings))


def _utc_day(time: Column) -> Column:
    """Returns the day in UTC, whatever the session's time zone, as a DATE in the years 1 to 9999. Times before or after
    are clamped to the first or last day, as deltalake supports no others."""
    first, last = (sf.lit((day - date(1970, 1, 1)).days) for day in (date.min, date.max))
    day = sf.floor(sf.unix_seconds(time) / DAY_S)
    return sf.date_from_unix_date(sf.greatest(first, sf.least(day, last)).cast("int"))


def _sum(parsed: DataFrame, name: str) -> Column:
    column = sf.col("data")[name]
    data = parsed.schema["data"].dataType
    if isinstance(data, StructType) and isinstance(data[name].dataType, LongType):
        column = column.cast("DECIMAL(38, 0)")
    return sf.sum(column).alias(f"sum_{name}")
