"""The columns of registered schemas: of each alone, and of all that a pipeline knows.

The table has the columns of all of them. A column that a schema lacks is null in its rows, and a type is as wide as the
widest (widening.py). A schema that does not fit is unfit: its records are dead letters, and the others go on.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, LongType, StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.avro_schemas import with_references
from odradek.pipeline.parse.json_schemas import json_columns
from odradek.pipeline.parse.proto_files import compiled
from odradek.pipeline.parse.protobuf_messages import columns_of, message_type
from odradek.pipeline.parse.protobuf_rows import Source
from odradek.pipeline.parse.schemas import avro_columns, kind_name, whole_schema
from odradek.pipeline.parse.widening import MOST_DIGITS, is_promoted, is_wider, nullable, widened
from odradek.pipeline.registry.schema import KnownSchemas, Schema
from odradek.pipeline.settings import Settings

SUM_DIGITS = 10
"""How many more digits Spark gives to a sum of DECIMALs."""


def learned(known: KnownSchemas, number: int, schema: Schema, settings: Settings) -> KnownSchemas:
    """Returns the known schemas and another one. A session must be active. Raises PipelineError if the schema has no
    columns, or not those that the settings name, and it is the first one."""
    try:
        found = nullable(registered_columns(schema, settings))
        columns = widened(_type(known.columns), found) if known.columns else found
        assert isinstance(columns, StructType)
        whole = whole_schema(columns, settings)
        if known.columns:
            _refuse_unstorable(whole_schema(_type(known.columns), settings), whole, settings)
    except PipelineError as error:
        if not known.columns:
            raise PipelineError(f"schema {number}: {error.problem}", error.remedy) from error
        return known.with_schema(number, schema, known.columns, error.problem)
    return known.with_schema(number, schema, columns.json())


def _refuse_unstorable(before: StructType, after: StructType, settings: Settings) -> None:
    """Raises PipelineError if a column has grown as its tables cannot."""
    can_grow = is_promoted if settings.sink == "iceberg" else is_wider
    for one in before:
        old, new = one.dataType, after[one.name].dataType
        says = f"{one.name} is {kind_name(new)}, but it was {kind_name(old)}, and"
        if new != old and settings.sink == "parquet":
            raise PipelineError(f"{says} a plain Parquet table keeps the types of its columns")
        if not can_grow(new, old):  # A derived column, or one that becomes wider than Iceberg allows.
            raise PipelineError(f"{says} the table cannot follow")
        if one.name in settings.window_sums and not can_grow(_sum(new), _sum(old)):
            raise PipelineError(f"{says} the sums of the windows cannot follow")


def _sum(kind: DataType) -> DataType:
    """Returns the type of a sum over a window (transforms.windowed)."""
    if isinstance(kind, DecimalType):
        return DecimalType(min(MOST_DIGITS, kind.precision + SUM_DIGITS), kind.scale)
    if isinstance(kind, LongType):
        return DecimalType(MOST_DIGITS, 0)
    return DoubleType() if isinstance(kind, FloatType | DoubleType) else LongType()


def _type(columns: str) -> StructType:
    return StructType.fromJson(json.loads(columns))


def registered_columns(schema: Schema, settings: Settings) -> StructType:
    """Returns the columns of a schema alone. A session must be active. Raises PipelineError."""
    if schema.kind.lower() != settings.format:
        raise PipelineError(f"it is of type {schema.kind}, but format is {settings.format}")
    if settings.format == "avro":
        return avro_columns(with_references(schema.text, schema.references))
    if settings.format == "json":
        return json_columns(schema.text, schema.references)
    source = message_source(schema, settings.message_name)
    return columns_of(message_type(source.descriptors, source.message))


def message_source(schema: Schema, wanted: str) -> Source:
    """Returns the message of a Protobuf schema whose full name is `wanted`, or its first one. Raises PipelineError."""
    content, main = compiled(schema.text, tuple(schema.references.items()))
    file = next(one for one in FileDescriptorSet.FromString(content).file if one.name == main)
    messages: list[tuple[tuple[int, ...], Any, str]] = [
        ((index,), one, file.package) for index, one in enumerate(file.message_type)
    ]
    names: list[str] = []
    while messages:
        path, message, scope = messages.pop(0)
        name = f"{scope}.{message.name}".lstrip(".")
        if name == (wanted or name):
            return Source(content, name, path)
        names.append(name)
        messages += [((*path, index), one, name) for index, one in enumerate(message.nested_type)]
    raise PipelineError(f"the Protobuf schema has no message {wanted or 'at all'}: {', '.join(names)}")
