"""Good rows whose dedup keys were there before: in the same rows, or in those that a backfill has written.

Plain functions from DataFrame to DataFrame; rows are only marked, so that they can be counted before they go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType
from pyspark.sql.window import Window

from odradek.pipeline.ledger import Offsets
from odradek.pipeline.schemas import schema_of
from odradek.pipeline.settings import Settings
from odradek.pipeline.transforms import PLACE, with_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from odradek.pipeline.batch_tables import Table

REPEATED = "_repeated"
_KNOWN = "_known"
_PLACES = [
    StructField("_topic", StringType()),
    StructField("_partition", IntegerType()),
    StructField("_offset", LongType()),
    StructField("_timestamp", TimestampType()),
]


def marked(parsed: DataFrame, settings: Settings) -> DataFrame:
    """Adds REPEATED: false for the first good row of each key, by event time and place, and for all dead ones."""
    if not settings.dedup_keys:
        return parsed.withColumn(REPEATED, sf.lit(False))
    first = Window.partitionBy("_key").orderBy("event_time", *PLACE)
    keyed = with_key(parsed, settings)
    return keyed.withColumn(REPEATED, sf.row_number().over(first) > 1).drop("_key")


def marked_by(earlier: DataFrame, rows: DataFrame, settings: Settings) -> DataFrame:
    """Sets REPEATED for the good rows of `rows` whose keys are in `earlier` too, which has them as columns."""
    keys = [earlier[name].alias(f"{_KNOWN}_{name}") for name in settings.dedup_keys]
    known = earlier.select(*keys).distinct().withColumn(_KNOWN, sf.lit(True))
    same = [rows["data"][name] == known[f"{_KNOWN}_{name}"] for name in settings.dedup_keys]
    joined = rows.join(known, same, "left")
    repeated = sf.col(REPEATED) | sf.coalesce(sf.col(_KNOWN), sf.lit(False))
    return joined.withColumn(REPEATED, repeated).select(*rows.columns)


def without_repeated(judged: DataFrame) -> tuple[DataFrame, int]:
    """The rows that are not REPEATED, without that column, and how many are."""
    return judged.where(f"NOT {REPEATED}").drop(REPEATED), judged.where(REPEATED).count()


def earlier_rows(spark: SparkSession, settings: Settings, table: Table, below: Offsets) -> DataFrame | None:
    """What the table of good rows has of the offsets before `below`: the dedup keys and `_event_time`.

    None where it has no files."""
    files = table.files()
    if not files:
        return None
    schema = schema_of(settings)
    names = [*settings.dedup_keys, *([settings.event_time] if settings.event_time else [])]
    fields = [schema[name] for name in dict.fromkeys(names)]
    wanted = StructType([*fields, *_PLACES])
    rows = spark.read.schema(wanted).option("basePath", str(table.path)).parquet(*files)
    borders = [(topic, number, offset) for topic, parts in below.items() for number, offset in parts.items()]
    ends = spark.createDataFrame(borders, "_topic STRING, _partition INT, _end LONG")
    history = rows.join(sf.broadcast(ends), ["_topic", "_partition"]).where("_offset < _end")
    return history.select(*settings.dedup_keys, _time(schema, settings).alias("_event_time"))


def _time(schema: StructType, settings: Settings) -> Column:
    """The event time of a row in the table; there all of them are within the years that a timestamp has."""
    if not settings.event_time:
        return sf.col("_timestamp")
    column, kind = sf.col(settings.event_time), schema[settings.event_time].dataType
    return sf.timestamp_millis(column) if isinstance(kind, LongType) else column.cast("timestamp")


class Remembered:
    """The keys that a backfill has written, as an ingest would remember them had it read that history itself.

    A key is remembered until the watermark is `watermark_delay` past its row's event time; `ends`: the backfill's."""

    def __init__(self, settings: Settings, table: Table, ends: Offsets) -> None:
        self._settings = settings
        self._table = table
        self._ends = ends
        self._newest: int | None = None
        self._over = False

    def __call__(self, parsed: DataFrame, watermark: datetime | None) -> DataFrame | None:
        """The batch with REPEATED, judged by this watermark; None where nothing is remembered any more."""
        spark = parsed.sparkSession
        earlier = None if self._over else earlier_rows(spark, self._settings, self._table, self._ends)
        if earlier is not None and watermark is not None:
            since = sf.lit(watermark) - sf.expr(f"INTERVAL '{self._settings.watermark_delay}'")
            self._over = self._newest_of(earlier) < _micros(spark.range(1), sf.max(since))
            earlier = earlier.where(sf.col("_event_time") >= since)
        if earlier is None or self._over:
            self._over = True
            return None
        return marked_by(earlier, parsed.withColumn(REPEATED, sf.lit(False)), self._settings)

    def _newest_of(self, earlier: DataFrame) -> int:
        """The newest event time of history; looked for once."""
        if self._newest is None:
            self._newest = _micros(earlier, sf.max("_event_time"))
        return self._newest


def _micros(rows: DataFrame, time: Column) -> int:
    """Microseconds since 1970; before all times where there are no rows."""
    found = rows.agg(sf.unix_micros(time)).first()
    return -(2**63) if found is None or found[0] is None else int(found[0])
