"""Java's regular expressions, matched as a whole."""

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.spark.patterns import matching

NAMES = ["orders", "orders.eu", "old-orders", "orders\n", "it's", "größe"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", ["orders"]),
        ("old|old-orders", ["old-orders"]),
        (r"orders(\.\p{Lower}++)?", ["orders", "orders.eu"]),
        ("(?x) orders # the plain one", ["orders"]),
        (r"\Qorders.eu", ["orders.eu"]),
        ("it's", ["it's"]),
        ("gr.{2}e", ["größe"]),
        ("nothing", []),
    ],
)
def test_a_name_must_match_completely_by_javas_rules(spark: SparkSession, pattern: str, found: list[str]) -> None:
    assert matching(spark, pattern, NAMES) == found


@pytest.mark.parametrize("pattern", ["(orders", "a)|(?:b", "*"])
def test_a_pattern_that_java_refuses_is_an_error(spark: SparkSession, pattern: str) -> None:
    with pytest.raises(PipelineError, match="is not a Java regular expression"):
        matching(spark, pattern, [])
