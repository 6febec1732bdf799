"""SQL expressions in settings: over one row and its record, with the same result however often they are evaluated.

An expression uses the row's columns by their names, and those of the record with an underscore: _key, _value, _headers,
_topic, _partition, _offset, _timestamp. It may not aggregate, look at other rows or tables, or depend on chance or the
clock: a batch that is repeated after a kill must have the same rows. Settings that break this are errors at the start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.errors import first_line

KINDS: Mapping[str, DataType] = {
    "_key": BinaryType(),
    "_value": BinaryType(),
    "_headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    "_topic": StringType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_timestamp": TimestampType(),
}
OF_RECORDS = tuple(KINDS)
WHOLE = "_whole"
"""The rows' own columns in a frame in which expressions are evaluated."""
_ONE_ROW = re.compile(r"[\s:+-]*(Project|LogicalRDD|LocalRelation)\b")
"""The nodes in the plan of an expression of one row."""
_CLOCK = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now|curdate)\(")


def scope(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Returns a frame for expressions: WHOLE, the columns `names` of `data`, and OF_RECORDS."""
    record = [sf.col(name.removeprefix("_")).alias(name) for name in OF_RECORDS]
    return rows.select(sf.struct("*").alias(WHOLE), *(sf.col("data")[name].alias(name) for name in names), *record)


def named(name: str) -> Column:
    """Returns the column with exactly this name, which may have dots."""
    return sf.col("`{}`".format(name.replace("`", "``")))


def only_good(expression: Column) -> Column:
    """Evaluates an expression in a `scope` for rows without a reason only."""
    return sf.when(sf.col(f"{WHOLE}.reason").isNull(), expression)


def kind_of(setting: str, text: str, schema: StructType) -> DataType:
    """Returns the type of an expression over rows of the schema. Raises PipelineError, with the name of the setting."""
    return _kind(setting, text, schema.json())


def check_condition(setting: str, text: str, schema: StructType) -> None:
    """Raises PipelineError if an expression is not a condition."""
    kind = kind_of(setting, text, schema)
    if not isinstance(kind, BooleanType | NullType):
        raise PipelineError(f"{setting}: {text!r} is {kind.simpleString().upper()}, not BOOLEAN", "compare it")


@lru_cache(maxsize=256)
def _kind(setting: str, text: str, schema: str) -> DataType:
    record = [StructField(name, KINDS[name]) for name in OF_RECORDS]
    columns = StructType([*StructType.fromJson(json.loads(schema)), *record])
    rows = SparkSession.active().createDataFrame([], columns)
    try:
        # `when` refuses generators, which make several rows of one.
        checked = rows.select(sf.when(sf.lit(True), sf.expr(text)).alias("value"))
    except PySparkException as error:
        raise PipelineError(f"{setting}: {text!r} is not an SQL expression of a row: {first_line(error)}") from error
    plan = checked._jdf.queryExecution().analyzed()
    shown = str(plan.toString())
    if not plan.deterministic() or _CLOCK.search(shown):
        raise PipelineError(f"{setting}: {text!r} depends on chance or the clock", "use the record's _timestamp")
    if any(line.strip() and not _ONE_ROW.match(line) for line in shown.splitlines()):
        raise PipelineError(f"{setting}: {text!r} looks at other rows or tables", "use the columns of one row")
    return checked.schema[0].dataType
