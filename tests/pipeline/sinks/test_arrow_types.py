"""Spark's columns have the Arrow types that Spark itself gives them."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from odradek.pipeline.parse.schemas import STORED
from odradek.pipeline.sinks.arrow_types import arrow_schema

COLUMNS = """
a BYTE, b SHORT, c INT NOT NULL, d LONG, e FLOAT, f DOUBLE, g DECIMAL(10, 2), h DECIMAL(38, 0), i BOOLEAN,
j STRING NOT NULL, k BINARY, l DATE, m TIMESTAMP, n TIMESTAMP_NTZ,
o STRUCT<a: INT NOT NULL, b: ARRAY<TIMESTAMP>>, p ARRAY<STRUCT<a: STRING>>, q MAP<STRING, ARRAY<LONG>>
"""


def columns_of(ddl: str) -> StructType:
    columns = StructType.fromDDL(ddl)
    assert isinstance(columns, StructType)
    return columns


def test_every_type_of_a_table_is_that_of_spark(spark: SparkSession) -> None:
    columns = columns_of(COLUMNS)
    assert {type(one.dataType) for one in columns} == set(STORED)
    assert arrow_schema(columns) == spark.createDataFrame([], columns).toArrow().schema


def test_a_type_that_no_table_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        arrow_schema(columns_of("a VARIANT"))
