"""Types that grow by Delta's rules."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.parse.widening import Unlike, fitted, is_wider, widened

pytestmark = pytest.mark.usefixtures("spark")


def columns(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("a BYTE", "a SHORT", "a SHORT"),
        ("a LONG", "a INT", "a LONG"),
        ("a INT", "a DOUBLE", "a DOUBLE"),
        ("a FLOAT", "a DOUBLE", "a DOUBLE"),
        ("a SHORT", "a FLOAT", "a DOUBLE"),
        ("a INT", "a DECIMAL(6, 2)", "a DECIMAL(12, 2)"),
        ("a LONG", "a DECIMAL(20, 0)", "a DECIMAL(20, 0)"),
        ("a DECIMAL(10, 1)", "a DECIMAL(8, 4)", "a DECIMAL(13, 4)"),
        ("a DATE", "a TIMESTAMP_NTZ", "a TIMESTAMP_NTZ"),
        ("a INT, b STRING", "c LONG, a INT", "a INT, b STRING, c LONG"),
        (
            "a ARRAY<STRUCT<x: INT>>, b MAP<INT, FLOAT>",
            "a ARRAY<STRUCT<y: INT, x: LONG>>, b MAP<LONG, DOUBLE>",
            "a ARRAY<STRUCT<x: LONG, y: INT>>, b MAP<LONG, DOUBLE>",
        ),
        ("a INT NOT NULL", "a INT", "a INT"),
    ],
)
def test_the_narrowest_type_that_holds_both_is_taken(one: str, other: str, both: str) -> None:
    assert widened(columns(one), columns(other)) == columns(both)
    assert is_wider(columns(both), columns(one))


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        ("a LONG", "a DOUBLE", "a is DOUBLE, but it was LONG"),
        ("a STRING", "a INT", "a is INT, but it was STRING"),
        ("a TIMESTAMP", "a DATE", "a is DATE, but it was TIMESTAMP"),
        ("a DECIMAL(38, 0)", "a DECIMAL(10, 2)", r"a is DECIMAL\(10,2\)"),
        ("a STRUCT<x: ARRAY<INT>>", "a STRUCT<x: ARRAY<STRING>>", r"a.x\[\] is STRING"),
        ("a MAP<STRING, INT>", "a MAP<INT, INT>", r"a\{key\} is INT"),
        ("a INT", "A INT", "A was called a"),
        ("a INT", "a STRUCT<x: INT>", "a is STRUCT"),
    ],
)
def test_types_that_do_not_fit_are_named(one: str, other: str, says: str) -> None:
    with pytest.raises(Unlike, match=says):
        widened(columns(one), columns(other))
    assert not is_wider(columns(other), columns(one))


def test_a_narrow_value_becomes_a_wide_one(spark: SparkSession) -> None:
    there = columns("a INT, s STRUCT<x: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<INT, INT>, n STRUCT<x: INT>")
    wanted = columns(
        "a DOUBLE, s STRUCT<x: LONG, y: STRING>, l ARRAY<STRUCT<x: LONG, y: INT>>, m MAP<LONG, DECIMAL(12, 1)>, "
        "n STRUCT<x: LONG>, new STRING"
    )
    rows = spark.createDataFrame([((1, (2,), [(3,), None], {4: 5}, None),)], StructType().add("row", there))
    wide = rows.select(fitted(sf.col("row"), there, wanted).alias("row"))
    assert widened(wide.schema["row"].dataType, wanted) == wanted
    assert wide.select(sf.to_json("row", {"ignoreNullFields": "false"})).first()[0] == (  # type: ignore[index]
        '{"a":1.0,"s":{"x":2,"y":null},"l":[{"x":3,"y":null},null],"m":{"4":5.0},"n":null,"new":null}'
    )
