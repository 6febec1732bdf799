"""The schema setting as Spark's types."""

from __future__ import annotations

from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from pipeline.errors import PipelineError
from pipeline.settings import Settings


def schema_of(settings: Settings) -> StructType:
    """The columns of the rows. Raises PipelineError."""
    text = settings.schema
    if text.startswith("@"):
        text = Path(text[1:]).read_text()
    if not text.strip():
        raise PipelineError("no schema is given", "set schema: 'id LONG, at TIMESTAMP', or @FILE")
    try:
        schema = StructType.fromDDL(text)
    except PySparkException as error:
        raise PipelineError(f"the schema is not DDL: {str(error).splitlines()[0]}") from error
    if not isinstance(schema, StructType):
        raise PipelineError("the schema has no columns", "set schema: 'id LONG, at TIMESTAMP'")
    return schema
