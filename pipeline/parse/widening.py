"""Types that grow: which types a column can have after another, by the rules of Delta's type widening. Those of
Iceberg's type promotion are fewer (`is_promoted`).

| from | to |
|---|---|
| BYTE, SHORT, INT, LONG | a longer one of these; DECIMAL with at least 10 digits before the point, 20 for a LONG |
| BYTE, SHORT, INT | DOUBLE |
| FLOAT | DOUBLE |
| DECIMAL | DECIMAL with as many digits before the point and after it, or more |
| DATE | TIMESTAMP_NTZ |

A STRUCT grows by fields, and its fields, the elements of an ARRAY, and the keys and values of a MAP grow like columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
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
    StructField,
    StructType,
    TimestampNTZType,
)

from odradek.pipeline.errors import PipelineError

INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
FLOATS: set[type[DataType]] = {FloatType, DoubleType}
INT_DIGITS, LONG_DIGITS, MOST_DIGITS = 10, 20, 38


class Unlike(PipelineError):
    """Two types of a column of which neither, nor a third one, holds the values of both."""


def nullable(kind: DataType) -> DataType:
    """Returns the type with nulls allowed everywhere."""
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, nullable(one.dataType)) for one in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def widened(one: DataType, other: DataType, path: str = "") -> DataType:
    """Returns the narrowest nullable type that holds the values of both. Raises Unlike."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        return StructType(list(_fields(one, other, path)))
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(widened(one.elementType, other.elementType, f"{path}[]"))
    if isinstance(one, MapType) and isinstance(other, MapType):
        key = widened(one.keyType, other.keyType, f"{path}{{key}}")
        return MapType(key, widened(one.valueType, other.valueType, f"{path}{{}}"))
    if one == other:
        return one
    found = _wider(one, other)
    if found is None:
        names = (kind.simpleString().upper().replace("BIGINT", "LONG") for kind in (other, one))
        raise Unlike("{} is {}, but it was {}".format(path, *names))
    return found


def _fields(one: StructType, other: StructType, path: str) -> Iterator[StructField]:
    """Yields the fields of `one`, widened, and then those that only `other` has."""
    lower = {field.name.lower(): field for field in other}
    for field in one:
        place = f"{path}.{field.name}" if path else field.name
        found = lower.pop(field.name.lower(), None)
        if found is not None and found.name != field.name:
            raise Unlike(f"{path}.{found.name} was called {field.name}".lstrip("."))
        kind = nullable(field.dataType) if found is None else widened(field.dataType, found.dataType, place)
        yield StructField(field.name, kind)
    for field in lower.values():
        yield StructField(field.name, nullable(field.dataType))


def _wider(one: DataType, other: DataType) -> DataType | None:
    kinds = {type(one), type(other)}
    if kinds <= {*INTEGERS}:
        return max(one, other, key=lambda kind: INTEGERS.index(type(kind)))
    if kinds <= {*INTEGERS, DecimalType}:
        return _decimal(one, other)
    if kinds & FLOATS and kinds <= {ByteType, ShortType, IntegerType, *FLOATS}:
        return DoubleType()
    return TimestampNTZType() if kinds == {DateType, TimestampNTZType} else None


def _decimal(one: DataType, other: DataType) -> DecimalType | None:
    whole, scale = 0, 0
    for kind in (one, other):
        if isinstance(kind, DecimalType):
            whole, scale = max(whole, kind.precision - kind.scale), max(scale, kind.scale)
        else:
            whole = max(whole, LONG_DIGITS if isinstance(kind, LongType) else INT_DIGITS)
    return DecimalType(whole + scale, scale) if whole + scale <= MOST_DIGITS else None


def is_wider(kind: DataType, than: DataType) -> bool:
    """Whether the type holds all values of the other one by these rules, or is equal. A STRUCT has new fields last."""
    try:
        return widened(than, kind) == nullable(kind)
    except Unlike:
        return False


def is_promoted(kind: DataType, than: DataType) -> bool:
    """Whether an Iceberg column of the other type can get this type, or has it: INT becomes LONG, FLOAT becomes DOUBLE,
    DECIMAL gets digits before the point. A STRUCT gets fields, and its fields, the elements of an ARRAY and the values
    of a MAP grow like columns. BYTE and SHORT are INT."""
    if isinstance(kind, StructType) and isinstance(than, StructType):
        kinds = {one.name: one.dataType for one in kind}
        return all(one.name in kinds and is_promoted(kinds[one.name], one.dataType) for one in than)
    if isinstance(kind, ArrayType) and isinstance(than, ArrayType):
        return is_promoted(kind.elementType, than.elementType)
    if isinstance(kind, MapType) and isinstance(than, MapType):
        return nullable(kind.keyType) == nullable(than.keyType) and is_promoted(kind.valueType, than.valueType)
    if isinstance(kind, DecimalType) and isinstance(than, DecimalType):
        return kind.scale == than.scale and kind.precision >= than.precision
    after, before = (IntegerType if isinstance(one, ByteType | ShortType) else type(one) for one in (kind, than))
    return after == before or (before, after) in ((IntegerType, LongType), (FloatType, DoubleType))


def fitted(read: Column, there: DataType, wanted: DataType) -> Column:
    """Converts a value to a type that is as wide or wider, with nulls for the fields that it lacks."""
    if nullable(there) == nullable(wanted):
        return read
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        names = there.names
        fields = (
            (fitted(read[one.name], there[one.name].dataType, one.dataType) if one.name in names else sf.lit(None))
            .cast(one.dataType)
            .alias(one.name)
            for one in wanted
        )
        return sf.when(read.isNotNull(), sf.struct(*fields))
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        before, after = there.elementType, wanted.elementType
        return sf.transform(read, lambda one: fitted(one, before, after))
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        key, wide_key, value, wide_value = there.keyType, wanted.keyType, there.valueType, wanted.valueType
        keys = sf.transform_keys(read, lambda one, _: fitted(one, key, wide_key))
        return sf.transform_values(keys, lambda _, one: fitted(one, value, wide_value))
    return read.cast(wanted)
