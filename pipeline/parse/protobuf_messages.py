"""Protobuf's message types: built at run time from descriptors, with the columns that they have.

| Protobuf | column |
|---|---|
| int32, sint32, sfixed32 / int64, sint64, sfixed64 | INT / LONG |
| uint32, fixed32 / uint64, fixed64 | LONG / DECIMAL(20, 0), which hold all of their values |
| float, double, bool, string, bytes | FLOAT, DOUBLE, BOOLEAN, STRING, BINARY |
| enum | STRING: the name; the number if the enum does not name it |
| message, repeated, map | STRUCT, ARRAY, MAP |
| google.protobuf.Timestamp | TIMESTAMP |
| google.protobuf.Int64Value and the other wrappers | the wrapped type |

A field with presence (a message, a member of a oneof, `optional`, all of proto2) is null if it is not set. Other fields
then have their default, because proto3 does not encode it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import cache
from importlib import import_module
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.years import EARLIEST_MS, LATEST_MS

PLAIN: Mapping[int, DataType] = {
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
}
TIMESTAMP = "google.protobuf.Timestamp"
WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
WELL_KNOWN = "google/protobuf/"
"""The directory of the files that Google's library has itself."""
NANOS_PER_S = 1_000_000_000

Convert = Callable[[Any], Any]
"""Converts a value of Google's library to one that Arrow accepts."""


def message_type(descriptors: bytes, name: str) -> Any:
    """Returns the descriptor of the message `name` in a serialized FileDescriptorSet. Raises PipelineError."""
    try:
        files = {one.name: one for one in FileDescriptorSet.FromString(descriptors).file}
    except DecodeError as error:
        raise PipelineError("the Protobuf schema is not a descriptor set", "make it with protoc") from error
    pool, added = DescriptorPool(), set[str]()
    try:
        for file in list(files):
            _add(pool, files, file, added)
        return pool.FindMessageTypeByName(name)
    except KeyError as error:
        raise PipelineError(
            f"the Protobuf schema has no message {name}: {', '.join(_names(files.values()))}"
        ) from error
    except TypeError as error:
        raise PipelineError(f"the Protobuf schema is invalid: {error}") from error


def _add(pool: DescriptorPool, files: dict[str, FileDescriptorProto], name: str, added: set[str]) -> None:
    """Adds a file after those that it imports. Raises PipelineError."""
    if name in added:
        return
    added.add(name)
    if name not in files:
        files[name] = _well_known(name)
    for imported in files[name].dependency:
        _add(pool, files, imported, added)
    pool.AddSerializedFile(files[name].SerializeToString())


def _well_known(name: str) -> FileDescriptorProto:
    """Returns a file of Google's library. Raises PipelineError for others."""
    file = FileDescriptorProto()
    try:
        if not name.startswith(WELL_KNOWN):
            raise ImportError(name)
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    except ImportError as error:
        raise PipelineError(
            f"the Protobuf schema lacks {name}, which it imports", "use protoc --include_imports"
        ) from error
    return file


def _names(files: Iterable[FileDescriptorProto]) -> list[str]:
    return [f"{file.package}.{one.name}".lstrip(".") for file in files for one in file.message_type]


def columns_of(message: Any) -> StructType:
    """Returns the columns of a message. Raises PipelineError for recursive messages, which no table can have."""
    return _struct(message, ())


def _struct(message: Any, above: tuple[str, ...]) -> StructType:
    if message.full_name in above:
        raise PipelineError(f"the Protobuf message {message.full_name} contains itself, which tables do not support")
    fields = [StructField(one.name, _type(one, (*above, message.full_name))) for one in message.fields]
    if not fields:
        raise PipelineError(f"the Protobuf message {message.full_name} has no fields, and tables have no empty STRUCT")
    return StructType(fields)


def _type(field: Any, above: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single_type(entry["key"], above), _single_type(entry["value"], above))
    single = _single_type(field, above)
    return ArrayType(single) if field.is_repeated else single


def _single_type(field: Any, above: tuple[str, ...]) -> DataType:
    if field.type in PLAIN:
        return PLAIN[field.type]
    message = field.message_type
    if message.full_name == TIMESTAMP:
        return TimestampType()
    if message.full_name in WRAPPERS:
        return PLAIN[message.fields_by_name["value"].type]
    return _struct(message, above)


def _is_map(field: Any) -> bool:
    return field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry


class MessageReader:
    """Decodes messages of one type to rows of `columns`, which may be more and wider than those of the type."""

    def __init__(self, message: Any, columns: StructType) -> None:
        self.name: str = message.full_name
        self._class = GetMessageClass(message)
        self._convert = _of_struct(message, columns)

    def read(self, value: bytes) -> dict[str, Any]:
        """Returns a row. Raises DecodeError, ValueError for a value that no column can have, and UnicodeDecodeError."""
        message = self._class()
        message.MergeFromString(value)
        if not message.IsInitialized():
            raise DecodeError(f"it lacks {', '.join(message.FindInitializationErrors())}")
        row: dict[str, Any] = self._convert(message)
        return row


def _of_struct(message: Any, columns: StructType) -> Convert:
    there = message.fields_by_name
    readers = [(one.name, _of_field(there[one.name], one.dataType)) for one in columns if one.name in there]
    return lambda value: {name: read(value) for name, read in readers}


def _of_field(field: Any, kind: DataType) -> Convert:
    """Returns a function from the message to the column's value."""
    name = field.name
    if isinstance(kind, MapType):
        entry = field.message_type.fields_by_name
        of_key, of_value = _of_single(entry["key"], kind.keyType), _of_single(entry["value"], kind.valueType)
        return lambda message: [(of_key(key), of_value(one)) for key, one in getattr(message, name).items()]
    if isinstance(kind, ArrayType):
        of_element = _of_single(field, kind.elementType)
        return lambda message: [of_element(one) for one in getattr(message, name)]
    convert = _of_single(field, kind)
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _of_single(field: Any, kind: DataType) -> Convert:
    if isinstance(kind, StructType):
        return _of_struct(field.message_type, kind)
    if isinstance(kind, TimestampType):
        return _micros
    if field.message_type is not None:
        wrapped = _of_single(field.message_type.fields_by_name["value"], kind)
        return lambda message: wrapped(message.value)
    if field.enum_type is not None:
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    if isinstance(kind, StringType):
        return _text
    if isinstance(kind, DecimalType):
        return Decimal
    return float if isinstance(kind, DoubleType) else _same


def _same(value: Any) -> Any:
    return value


def _text(value: str | bytes) -> str:
    """Returns a string. Google's library returns bytes for one of proto2 that is not UTF-8. Raises
    UnicodeDecodeError."""
    return value if isinstance(value, str) else value.decode()


def _micros(time: Any) -> int:
    """Returns a Timestamp in microseconds since 1970. Raises ValueError if it is not in the years 1 to 9999."""
    if not (EARLIEST_MS <= time.seconds * 1000 <= LATEST_MS and 0 <= time.nanos < NANOS_PER_S):
        raise ValueError(f"its Timestamp of {time.seconds} s and {time.nanos} ns is not in the years 1 to 9999")
    return int(time.seconds) * 1_000_000 + int(time.nanos) // 1000


@cache
def readers_of(sources: tuple[tuple[int, bytes, str], ...], columns: str) -> dict[int, MessageReader]:
    """Returns a reader for each (schema id, descriptors, message). `columns`: the JSON of a StructType. Cached, as each
    task of a Python worker needs them."""
    import json

    wanted = StructType.fromJson(json.loads(columns))
    return {number: MessageReader(message_type(content, name), wanted) for number, content, name in sources}
