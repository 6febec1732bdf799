"""Functions for the setting `transform`: good ones, and those that break its promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


def without_sevens(rows: DataFrame) -> DataFrame:
    """Drops each id that ends in 7, and doubles amounts."""
    return rows.where("id % 10 <> 7").withColumn("amount", sf.col("amount") * 2)


def doubled(rows: DataFrame) -> DataFrame:
    """Doubles amounts, on executors, with another function of this module."""
    return rows.mapInArrow(_doubling, rows.schema)


def _doubling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.set_column(
            batch.schema.get_field_index("amount"), "amount", pc.multiply(batch.column("amount"), _factor())
        )


def _factor() -> float:
    return 2.0


def reordered(rows: DataFrame) -> DataFrame:
    return rows.select(*reversed(rows.columns))


def raising(rows: DataFrame) -> DataFrame:
    raise ValueError("no\nsuch rows")


def raising_later(rows: DataFrame) -> DataFrame:
    return rows.mapInArrow(_raising, rows.schema)


def _raising(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows:
            raise ValueError("no such rows")
        yield batch


def of_an_unknown_column(rows: DataFrame) -> DataFrame:
    return rows.where("colour = 1")


def nothing(rows: DataFrame) -> None:
    return None


def without_a_column(rows: DataFrame) -> DataFrame:
    return rows.drop("amount").withColumn("total", sf.lit(1))


def of_another_type(rows: DataFrame) -> DataFrame:
    return rows.withColumn("id", sf.col("id").cast("string"))


def twice(rows: DataFrame) -> DataFrame:
    return rows.union(rows.where("id = 3"))


def moved(rows: DataFrame) -> DataFrame:
    return rows.withColumn("_offset", sf.col("_offset") + sf.when(sf.col("id") == 3, 100).otherwise(0))


def with_another_value(rows: DataFrame) -> DataFrame:
    return rows.withColumn("_value", sf.when(sf.col("id") == 3, sf.lit(b"{}")).otherwise(sf.col("_value")))


def not_utf8(rows: DataFrame) -> DataFrame:
    return rows.withColumn("customer", sf.when(sf.col("id") == 3, sf.unhex(sf.lit("FF")).cast("string")))


def without_id(rows: DataFrame) -> DataFrame:
    return rows.withColumn("id", sf.when(sf.col("id") != 3, sf.col("id")))


not_a_function: Any = 1
