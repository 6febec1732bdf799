"""Turns values into records as the connector returns them."""

from collections.abc import Sequence
from datetime import UTC, datetime

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from odradek.pipeline.parse.records import parsed
from odradek.pipeline.settings import Settings

COLUMNS = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "topic STRING, partition INT, offset LONG, timestamp TIMESTAMP, timestampType INT"
)
STAMP = datetime(2024, 1, 1, 12, tzinfo=UTC)
"""The records' own timestamp."""


def records(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    """A record for each value, at offsets from 0 on, all of one partition."""
    rows = [(b"key", value, [("trace", b"1")], "orders", 0, offset, STAMP, 0) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, COLUMNS).coalesce(1)


def parsed_rows(spark: SparkSession, values: Sequence[bytes | None], settings: Settings) -> list[Row]:
    """The parsed values, in order. Timestamps in `data` are strings, because Python has no year 10000."""
    rows = parsed(records(spark, values), settings)
    return rows.withColumn("shown", sf.to_json("data")).drop("data").orderBy("offset").collect()
