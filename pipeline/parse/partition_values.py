"""Finds values of `partition-by` that cannot be the name of a directory.

A string becomes part of a directory name, which file systems limit to 255 bytes. A day or a time must be in the years 1
to 9999: delta-rs cannot read a table with any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, DateType, StringType, StructType, TimestampNTZType, TimestampType

from odradek.pipeline.parse.years import is_day_in_years, is_time_in_years
from odradek.pipeline.settings import Settings

LONGEST_NAME_BYTES = 255
SHOWN = 40
"""The number of characters of a long string that a detail shows."""
_ESCAPED = "[^A-Za-z0-9._~-]"
"""Characters of which each byte takes three in a directory name (%2F). Others take one."""


def unfit_values(schema: StructType, settings: Settings) -> Iterator[tuple[Column, Column]]:
    """Yields, for each column of `partition-by` that may have such a value, the condition and the detail."""
    for name in settings.partition_by:
        if name == "_topic":
            yield _too_long(name, sf.col("topic"))
        elif name in schema.names:
            yield from _unfit(name, sf.col("data")[name], schema[name].dataType)


def _unfit(name: str, value: Column, kind: DataType) -> Iterator[tuple[Column, Column]]:
    if isinstance(kind, StringType):
        yield _too_long(name, value)
    elif isinstance(kind, DateType):
        yield _not_in_years(name, value, is_day_in_years(value))
    elif isinstance(kind, TimestampType | TimestampNTZType):
        yield _not_in_years(name, value, is_time_in_years(value.cast("timestamp")))


def _too_long(name: str, value: Column) -> tuple[Column, Column]:
    kept = sf.length(sf.regexp_replace(value, _ESCAPED, ""))
    size = len(f"{name}=".encode()) + 3 * sf.octet_length(value) - 2 * kept
    detail = sf.concat(
        sf.lit(f"{name} is "), sf.substring(value, 1, SHOWN), sf.lit("..., which makes its directory name "),
        size.cast("string"), sf.lit(f" bytes long, but the limit is {LONGEST_NAME_BYTES}"),
    )  # fmt: skip
    return size > LONGEST_NAME_BYTES, detail


def _not_in_years(name: str, value: Column, is_in: Column) -> tuple[Column, Column]:
    return ~is_in, sf.concat(sf.lit(f"{name} is "), value.cast("string"), sf.lit(", not in the years 1 to 9999"))
