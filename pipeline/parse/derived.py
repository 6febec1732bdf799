"""Derived columns, `[columns]`, and the rows to keep, `where`.

Both are SQL expressions (expressions.py). A derived column may use those above it. Expressions are not evaluated for
records that were rejected before. An error in one, such as a cast that fails, ends the batch: try_cast and try_divide
give a null.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.expressions import OF_RECORDS, WHOLE, check_condition, kind_of, named, only_good, scope
from odradek.pipeline.parse.flaws import any_of, flaws, no_utf8
from odradek.pipeline.settings import Settings

FILTERED = "filtered"
"""In place of a reason: `where` leaves the row out. It is not a dead letter."""


def with_derived(schema: StructType, settings: Settings) -> StructType:
    """Returns the schema with the derived columns. A session must be active. Raises PipelineError."""
    if settings.columns or settings.where:
        refuse_names_of_records(schema, "columns and where")
    for name, text in settings.columns.items():
        if name.lower() in [one.lower() for one in schema.names]:
            raise PipelineError(f"columns: {name} is in the schema already", "set another name")
        schema = StructType([*schema, StructField(name, kind_of(f"columns: {name}", text, schema))])
    if settings.where:
        check_condition("where", settings.where, schema)
    return schema


def refuse_names_of_records(schema: StructType, users: str) -> None:
    """Raises PipelineError if a column has the name under which `users` see a part of the record."""
    taken = [name for name in schema.names if name.lower() in (*OF_RECORDS, WHOLE)]
    if taken:
        raise PipelineError(f"{users} see the record as {', '.join(taken)}, which the schema has, too", "rename it")


def derived(rows: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Adds the derived columns to `data`, and the reason FILTERED where `where` does not hold. `rows`: decoded.
    `schema`: with the derived columns."""
    if not settings.columns and not settings.where:
        return rows
    own = [name for name in schema.names if name not in settings.columns]
    seen = scope(rows, own)
    for name, text in settings.columns.items():
        seen = seen.withColumn(name, only_good(sf.expr(text)))
    reason, detail = sf.col(f"{WHOLE}.reason"), sf.col(f"{WHOLE}.detail")
    broken = any_of([flaw for name in settings.columns for flaw in flaws(named(name), schema[name].dataType, no_utf8)])
    reason = sf.when(reason.isNotNull(), reason).when(broken, "not_utf8")
    detail = sf.when(detail.isNotNull(), detail).when(broken, "a derived string is not UTF-8")
    if settings.where:
        left_out = only_good(~sf.coalesce(sf.expr(settings.where), sf.lit(False)))
        reason = reason.when(left_out, FILTERED)
    data = sf.when(sf.col(f"{WHOLE}.data").isNotNull(), sf.struct(*(named(name) for name in schema.names)))
    kept = [sf.col(f"{WHOLE}.{name}") for name in rows.columns if name not in ("data", "reason", "detail")]
    return seen.select(*kept, data.alias("data"), reason.alias("reason"), detail.alias("detail"))
