"""Evaluates Java's regular expressions with Spark, as Python's differ."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECK = "SELECT rlike('', :pattern)"
_MATCHING = """
SELECT filter(:names, name -> java_method('java.util.regex.Pattern', 'matches', :pattern, name) = 'true') AS found
"""
"""Anchors around the expression would not work: `$` also matches before a final newline, and `(?x)a #` or `\\Qa`
disable them."""


def matching(spark: SparkSession, pattern: str, names: Iterable[str]) -> list[str]:
    """Returns the names that the expression fully matches, in their order. Raises PipelineError if Java rejects the
    expression, even without names."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as sf

    try:
        spark.sql(_CHECK, args={"pattern": pattern}).collect()
    except PySparkException as error:
        raise PipelineError(
            f"{pattern!r} is not a Java regular expression", "correct it: java.util.regex.Pattern"
        ) from error
    if not (literals := [sf.lit(name) for name in names]):
        return []
    row = spark.sql(_MATCHING, args={"names": sf.array(*literals), "pattern": pattern}).collect()[0]
    return list(row["found"])
