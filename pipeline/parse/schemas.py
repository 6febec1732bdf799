"""Converts the schema setting to Spark's types, and checks the settings that name its columns.

JSON: DDL ('id LONG, at TIMESTAMP NOT NULL') or @FILE of it. Avro: a schema's JSON or @FILE of it (.avsc).
Protobuf: @FILE of a descriptor set (protoc --include_imports --descriptor_set_out), and `message_name`.
Raw: no schema; the columns are key, value and headers. With a schema registry: the schemas that are known, as the job
puts them into the settings of a batch (registry/schema.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.avro.functions import from_avro
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import with_derived
from odradek.pipeline.parse.rules import check_rules
from odradek.pipeline.registry.schema import KnownSchemas
from odradek.pipeline.settings import Settings, flag
from odradek.pipeline.spark.errors import first_line

RAW = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
RESERVED = ("_topic", "_partition", "_offset", "_timestamp", "_raw")
"""Further columns of the table of good rows."""

ON_REQUEST = ("_key", "_headers")
"""Columns that record-columns may name, besides those of RESERVED. Without it a schema may have these names."""

PARTITIONING = ("_topic", "_partition")
"""The RESERVED columns that partition-by may name."""

WINDOW_DAY = "window_day"
"""The partition column of the table of windows: the UTC day of window_start."""

AVRO_END = b"ODRADEK\n"
"""Appended to an Avro value to check that the reader stopped there."""

NUMBERS = (ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType)
NAMING = (
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    DecimalType,
    BooleanType,
    StringType,
    DateType,
    TimestampType,
    TimestampNTZType,
)
"""Types with well-defined equality, allowed for keys, groups and partitions."""

STORED = (*NUMBERS, *NAMING, BinaryType, StructType, ArrayType, MapType)
"""Types that both table formats support."""


def schema_text(settings: Settings) -> str:
    """Returns the setting, or the content of the file that it names. Raises PipelineError."""
    text = settings.schema
    if text.startswith("@"):
        try:
            text = file_of(text).decode()
        except UnicodeDecodeError as error:
            raise PipelineError(f"the schema {text} is not text", "a descriptor set needs format = protobuf") from error
    if not text.strip():
        raise PipelineError("no schema is set", f"set schema: {_example(settings.format)}")
    return text


def descriptors(settings: Settings) -> bytes:
    """Returns the descriptor set that the setting names. Raises PipelineError."""
    if not settings.schema.startswith("@") or not settings.message_name:
        raise PipelineError("Protobuf needs message-name, and a schema of @FILE", _example("protobuf"))
    return file_of(settings.schema)


def schema_of(settings: Settings) -> StructType:
    """Returns the columns of the rows, with the derived ones. A session must be active. Raises PipelineError, also if a
    setting names a missing column, or one whose type does not fit."""
    return whole_schema(decoded_schema(settings), settings)


def whole_schema(decoded: StructType, settings: Settings) -> StructType:
    """Returns the decoded columns, and the derived ones. A session must be active. Raises PipelineError for columns
    that tables cannot have, and if a setting names a missing column, or one whose type does not fit."""
    schema = with_derived(decoded, settings)
    _check_names(schema, settings)
    for name, kind in _all_types("", schema):
        if not isinstance(kind, STORED):
            raise PipelineError(f"column {name} is {kind.simpleString().upper()}, which the tables do not support")
    _check_roles(schema, settings)
    _check_record_columns(settings)
    check_rules(schema, settings)
    return schema


def decoded_schema(settings: Settings) -> StructType:
    """Returns the columns that the records' values have. Raises PipelineError."""
    if settings.unknown_fields != "ignore" and settings.format != "json":
        raise PipelineError(f"unknown-fields is {settings.unknown_fields}, which is for JSON only")
    if settings.message_name and settings.format != "protobuf":
        raise PipelineError("message-name is for Protobuf only", "set format = protobuf")
    return _framed_columns(settings) if settings.schema_registry else _schema(settings)


def required_columns(schema: StructType, settings: Settings) -> list[str]:
    """Returns the columns that may not be null: those of `required`, the keys, and NOT NULL columns in DDL."""
    declared = [one.name for one in schema if not one.nullable] if settings.format == "json" else []
    return list(dict.fromkeys([*settings.required, *settings.dedup_keys, *settings.upsert_keys, *declared]))


def avro_frame(text: str) -> str:
    """Returns the schema of an Avro row followed by AVRO_END. Raises PipelineError."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise PipelineError(f"the Avro schema is not JSON: {error}", f"set schema: {_example('avro')}") from error
    if not isinstance(row, dict) or row.get("type") != "record":
        raise PipelineError("the Avro schema is not a record", f"set schema: {_example('avro')}")
    end = {"type": "fixed", "name": "OdradekEnd", "size": len(AVRO_END)}
    fields = [{"name": "row", "type": row}, {"name": "end", "type": end}]
    return json.dumps({"type": "record", "name": "OdradekFrame", "fields": fields})


def _schema(settings: Settings) -> StructType:
    if settings.format == "raw":
        if settings.schema:
            raise PipelineError("format = raw takes no schema", "its columns are key, value and headers")
        return _ddl(RAW)
    if settings.format == "json":
        return _ddl(schema_text(settings))
    if settings.format == "avro":
        return avro_columns(schema_text(settings))
    # Executors import this module, and may lack the package.
    from odradek.pipeline.parse.protobuf_messages import columns_of, message_type

    return columns_of(message_type(descriptors(settings), settings.message_name))


def _framed_columns(settings: Settings) -> StructType:
    """Returns the columns of the registered schemas. Raises PipelineError."""
    if not settings.schema:
        raise PipelineError("the schema registry was not asked for the columns yet")
    return StructType.fromJson(json.loads(KnownSchemas.of_text(settings.schema).columns))


def _ddl(text: str) -> StructType:
    try:
        return _fields(StructType.fromDDL(text))
    except PySparkException as error:
        raise PipelineError(f"the schema is not DDL: {first_line(error)}", f"set schema: {_example('json')}") from error


def _fields(kind: DataType) -> StructType:
    if not isinstance(kind, StructType) or not kind.fields:
        raise PipelineError("the schema has no columns", _example("json"))
    return kind


def avro_columns(text: str) -> StructType:
    """Returns the columns that Spark derives from an Avro schema. Raises PipelineError."""
    frame = avro_frame(text)
    try:
        read = SparkSession.active().range(0).select(from_avro(sf.lit(None).cast("binary"), frame).alias("frame"))
        return _fields(read.select("frame.row").schema["row"].dataType)
    except (PySparkException, Py4JError) as error:
        raise PipelineError(f"Spark cannot read the Avro schema: {first_line(error)}") from error


def _check_names(schema: StructType, settings: Settings) -> None:
    reserved = (*RESERVED, *(name for name in ON_REQUEST if name in settings.record_columns))
    for name in schema.names:
        if name.lower() in reserved:
            raise PipelineError(f"column {name} has a reserved name: {', '.join(reserved)}")
    for where, struct in [("", schema), *_structs("", schema)]:
        _unlike(f"the schema{where}", struct.names)
        for name in struct.names:
            if not name or any(one in " ,;{}()\n\t=" for one in name):
                raise PipelineError(f"column {name!r} is empty or has a character that tables reject: space ,;{{}}()=")


def _unlike(where: str, names: Iterable[str]) -> None:
    """Raises PipelineError unless the names differ by more than case."""
    for name, count in Counter(name.lower() for name in names).items():
        if count > 1:
            raise PipelineError(f"{where} has column {name} twice", "names must differ by more than case")


def _all_types(name: str, kind: DataType) -> Iterator[tuple[str, DataType]]:
    """Yields a type and all nested types, with their paths."""
    if name:
        yield name, kind
    if isinstance(kind, StructType):
        for one in kind:
            yield from _all_types(f"{name}.{one.name}" if name else one.name, one.dataType)
    elif isinstance(kind, ArrayType):
        yield from _all_types(f"{name}[]", kind.elementType)
    elif isinstance(kind, MapType):
        yield from _all_types(f"{name}{{key}}", kind.keyType)
        yield from _all_types(f"{name}{{}}", kind.valueType)


def _structs(name: str, kind: DataType) -> Iterator[tuple[str, StructType]]:
    for path, inner in _all_types(name, kind):
        if isinstance(inner, StructType):
            yield f" in {path}", inner


def _check_roles(schema: StructType, settings: Settings) -> None:
    """Raises PipelineError unless each column that a setting names exists, is named once, and has a suitable type."""
    roles: dict[str, tuple[tuple[str, ...], tuple[type[DataType], ...], str]] = {
        "event_time": (
            (settings.event_time,) if settings.event_time else (),
            (TimestampType, TimestampNTZType, LongType),
            "a TIMESTAMP, or a LONG of milliseconds since 1970",
        ),
        "required": (settings.required, (DataType,), ""),
        "dedup_keys": (settings.dedup_keys, (*NAMING, BinaryType), "a string, an integer, a date or a time"),
        "upsert_keys": (settings.upsert_keys, (*NAMING, BinaryType), "a string, an integer, a date or a time"),
        "window_by": (settings.window_by, NAMING, "a string, an integer, a date or a time"),
        "window_sums": (settings.window_sums, NUMBERS, "a number"),
        "partition_by": (settings.partition_by, NAMING, "a string, an integer, a date or a time"),
    }
    kinds = {one.name: one.dataType for one in schema}
    for role, (names, allowed, what) in roles.items():
        _unlike(flag(role), names)
        for name in names:
            if role == "partition_by" and name in PARTITIONING:
                continue
            if name not in kinds:
                raise PipelineError(f"{flag(role)} names {name}, which the schema lacks: {', '.join(schema.names)}")
            if not isinstance(kinds[name], allowed):
                raise PipelineError(f"{flag(role)} names {name}, a {kind_name(kinds[name])}; it must be {what}")
    _check_windows(settings)


def _check_record_columns(settings: Settings) -> None:
    """Raises PipelineError if record-columns names an unknown column, or lacks one that another setting needs."""
    _unlike("record-columns", settings.record_columns)
    possible = (*(name for name in RESERVED if name != "_raw"), *ON_REQUEST)
    for name in settings.record_columns:
        if name not in possible:
            raise PipelineError(f"record-columns names {name}, which is not one of {', '.join(possible)}")
    needed = [(name, "partition-by") for name in settings.partition_by if name in PARTITIONING]
    if settings.dedup_keys:
        needed += [(name, "dedup-keys") for name in ("_topic", "_partition", "_offset")]
        needed += [] if settings.event_time else [("_timestamp", "dedup-keys without event-time")]
    for name, role in needed:
        if name not in settings.record_columns:
            raise PipelineError(f"record-columns lacks {name}, which {role} needs", "add it")


def _check_windows(settings: Settings) -> None:
    if not settings.window:
        for role in ("window_slide", "window_by", "window_sums"):
            if getattr(settings, role):
                raise PipelineError(f"{flag(role)} is set, but window is not", "set window: '1 minute'")
    _unlike("the table of windows", window_columns(settings))


def window_columns(settings: Settings) -> list[str]:
    """Returns the columns of the table of windows."""
    sums = [f"sum_{name}" for name in settings.window_sums]
    return ["window_start", "window_end", *settings.window_by, "count", *sums, WINDOW_DAY]


def kind_name(kind: DataType) -> str:
    """Returns a type as written in a schema: LONG, STRUCT<a:LONG>."""
    return kind.simpleString().upper().replace("BIGINT", "LONG")


def file_of(setting: str) -> bytes:
    """Returns the content of @FILE. Raises PipelineError."""
    try:
        return Path(setting.removeprefix("@")).read_bytes()
    except OSError as error:
        raise PipelineError(f"the schema {setting} cannot be read: {error.strerror}") from error


def _example(form: str) -> str:
    return {
        "json": "'id LONG, at TIMESTAMP', or @FILE",
        "avro": '\'{"type": "record", "name": ..., "fields": ...}\', or @FILE',
        "protobuf": "protoc --include_imports --descriptor_set_out FILE, and schema = @FILE",
    }[form]
