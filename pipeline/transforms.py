"""What becomes of parsed records: duplicates dropped, good and dead rows apart, windows of event time.

Plain functions from DataFrame to DataFrame, the same for streams and for batches.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructType
from pyspark.sql.window import Window

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.schemas import first_line, window_columns
from odradek.pipeline.settings import Settings

PLACE = ("topic", "partition", "offset")
"""What names a record in Kafka."""

DEAD_LETTER_COLUMNS = ("reason", "detail", "key", "value", "headers", *PLACE, "timestamp")


def with_key(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Adds `_key`: the dedup keys of a good row, the place of a dead one (so that no two of these are alike)."""
    good = sf.col("reason").isNull()
    keys = [sf.when(good, sf.col("data")[name]).alias(name) for name in settings.dedup_keys]
    places = [sf.when(~good, sf.col(name)).alias(f"_{name}") for name in PLACE]
    return parsed.withColumn("_key", sf.struct(*keys, *places))


def deduplicated(parsed: DataFrame, settings: Settings) -> DataFrame:
    """One row for each set of dedup keys; all dead rows; everything where there are no dedup keys.

    In a stream the keys are remembered until the watermark is `watermark_delay` past them, and rows that come later
    than that are dropped. In a batch nothing is late, and of each key the first by event time and place stays,
    however long after it the others come. Raises PipelineError."""
    if not settings.dedup_keys:
        return parsed
    keyed = with_key(parsed, settings)
    if parsed.isStreaming:
        try:
            marked = keyed.withWatermark("event_time", settings.watermark_delay)
        except PySparkException as error:
            what = f"watermark-delay {settings.watermark_delay!r} is no length of time: {first_line(error)}"
            raise PipelineError(what, "give one like '10 minutes'") from error
        return marked.dropDuplicatesWithinWatermark(["_key"]).drop("_key")
    first = Window.partitionBy("_key").orderBy("event_time", *PLACE)
    ranked = keyed.withColumn("_rank", sf.row_number().over(first))
    return ranked.where(sf.col("_rank") == 1).drop("_key", "_rank")


def good_rows(parsed: DataFrame, settings: Settings) -> DataFrame:
    """The rows of the table: the schema's columns, then where each came from, and its text if that is kept."""
    places = [sf.col(name).alias(f"_{name}") for name in (*PLACE, "timestamp")]
    raw = [sf.col("_raw")] if settings.unknown_fields == "keep" else []
    return parsed.where(sf.col("reason").isNull()).select("data.*", *places, *raw)


def dead_letters(parsed: DataFrame, settings: Settings) -> DataFrame:
    """What could not be taken, whole, and why."""
    dead = parsed.where(sf.col("reason").isNotNull())
    return dead.select(*DEAD_LETTER_COLUMNS, sf.lit(settings.job_version).alias("job_version"))


def windowed(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Counts and sums of the good rows over event time: window_start, window_end, `window_by`, count, sum_COLUMN.

    Windows begin at multiples of their step since 1970 in UTC; where the step is shorter than the window, a row is in
    several. Nulls are not summed; a sum of nulls alone is null. LONGs are summed as DECIMAL(38, 0), which does not
    overflow. Raises PipelineError."""
    by = [sf.col("data")[name].alias(name) for name in settings.window_by]
    sums = [_sum(parsed, name) for name in settings.window_sums]
    try:
        span = sf.window("event_time", settings.window, settings.window_slide or None)
        counted = (
            parsed.where(sf.col("reason").isNull())
            .groupBy(span.alias("_window"), *by)
            .agg(sf.count(sf.lit(1)).alias("count"), *sums)
        )
    except PySparkException as error:
        what = f"window {settings.window!r} with window-slide {settings.window_slide!r} cannot be: {first_line(error)}"
        raise PipelineError(what, "give lengths like '1 minute'") from error
    starts = {"window_start": sf.col("_window.start"), "window_end": sf.col("_window.end")}
    return counted.withColumns(starts).select(*window_columns(settings))


def _sum(parsed: DataFrame, name: str) -> Column:
    column = sf.col("data")[name]
    data = parsed.schema["data"].dataType
    if isinstance(data, StructType) and isinstance(data[name].dataType, LongType):
        column = column.cast("DECIMAL(38, 0)")
    return sf.sum(column).alias(f"sum_{name}")
