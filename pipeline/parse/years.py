"""The years 1 to 9999, which readers of tables support; Spark supports more."""

from pyspark.sql import Column
from pyspark.sql import functions as sf

EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The first and the last millisecond of these years, since 1970."""


def is_time_in_years(time: Column) -> Column:
    """Whether a TIMESTAMP is in these years, to the millisecond."""
    return time.between(sf.timestamp_millis(sf.lit(EARLIEST_MS)), sf.timestamp_millis(sf.lit(LATEST_MS)))


def is_day_in_years(day: Column) -> Column:
    """Whether a DATE is in these years."""
    return day.between(sf.lit("0001-01-01").cast("date"), sf.lit("9999-12-31").cast("date"))
