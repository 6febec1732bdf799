"""Decodes JSON to rows, strictly, with one `from_json` of each value.

Invalid values that Spark's `from_json` accepts, and how they are rejected:
 (a) Text after the object (`{"id":1} xyz`) is ignored. There is none if the first `}` is the last byte. Otherwise the
     text is read as a field of a frame, and the frame's last field must be present. A text that closes the object and
     goes on (`{"id":1},"n":2`) gives the frame other fields, whose names are read.
 (b) Bytes that are not UTF-8 are replaced silently. So they are checked for.
 (c) 1e400 becomes Infinity. So numbers must be finite. NaN and 'single quotes' are not JSON.
 (d) TIMESTAMP: "12:00" becomes a time of today, and a number is read as seconds and overflows silently. So a timestamp
     is a string that starts with a date (2024-01-31, 2024-01-31T10:00:00.123456+02:00, or a space for the T); without a
     time zone it is UTC. Numbers belong in a LONG.
Otherwise Spark's rules apply: a STRING takes any JSON value as text, the last of two fields with one name wins, names
are case-sensitive, a null equals a missing field, a DECIMAL is rounded to its scale, and a BINARY is Base64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.parse.flaws import any_of, flaws
from odradek.pipeline.parse.schemas import kind_name

OPTIONS = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
SHOWN, SHOWN_NAMES = 60, 5
"""The numbers of characters of a value, and of fields, that a detail shows."""


def json_rows(records: DataFrame, schema: StructType, unknown_fields: str) -> tuple[DataFrame, Column]:
    """Returns the records with `data` and `reason` (and `_raw` if unknown fields are kept), and the column `detail`.

    `detail` is for rows with one of these reasons, and costs nothing where it is not selected. Unknown fields are only
    detected in the outermost object. `keep` and `reject` read the field names of good rows, which costs another half of
    the parsing; `ignore` costs nothing."""
    first = records.withColumn("_first", _read(schema))
    read = first.withColumn("data", _converted(sf.col("_first"), schema))
    judged = read.withColumn("reason", _reason(schema, rejects_unknown=unknown_fields == "reject"))
    if unknown_fields == "keep":
        judged = judged.withColumn(
            "_raw", sf.when(sf.col("reason").isNull() & (sf.size(_unknown(schema)) > 0), _text())
        )
    return judged, _detail(schema)


def _text() -> Column:
    return sf.col("value").cast("string")


def _corrupt(schema: StructType) -> str:
    """Returns the name of the field of `_first` that is set if the value is not a row. The schema lacks it."""
    return "_" * max(map(len, schema.names), default=0) + "_corrupt"


def _read(schema: StructType) -> Column:
    """Returns the fields of a value as read, and `_corrupt`."""
    flag, row = _corrupt(schema), cast(StructType, _as_read(schema))
    whole = StructType([*row, StructField(flag, StringType())])
    plain = sf.from_json(_text(), whole, {**OPTIONS, "columnNameOfCorruptRecord": flag})
    return sf.when(_is_plain(), plain).otherwise(_let(_framed(row), lambda framed: _unframed(framed, row, flag)))


def _unframed(framed: Column, row: StructType, flag: str) -> Column:
    fits = framed["row"].isNotNull() & framed["_end"].isNotNull() & framed["_corrupt"].isNull() & _is_one()
    corrupt = sf.when(~fits, sf.lit("corrupt")).alias(flag)
    return sf.struct(*(framed["row"][one.name].alias(one.name) for one in row), corrupt)


def _framed(row: DataType) -> Column:
    """Returns the value, read as the field `row` of a frame. `_end` is set if only the row precedes it."""
    frame = StructType(
        [StructField("row", row), StructField("_end", BooleanType()), StructField("_corrupt", StringType())]
    )
    return sf.from_json(_frame("_end"), frame, {**OPTIONS, "columnNameOfCorruptRecord": "_corrupt"})


def _frame(end: str) -> Column:
    return sf.concat(sf.lit('{"row":'), _text(), sf.lit(f',"{end}":true}}'))


def _is_plain() -> Column:
    """Whether the value starts with `{`, and has its first `}` at the end."""
    # `contains` looks for a byte; `instr` counts characters, which takes ten times as long.
    before_end = sf.substring("value", sf.lit(1), sf.length("value") - 1).cast("string")
    return sf.startswith(_text(), sf.lit("{")) & sf.endswith(_text(), sf.lit("}")) & ~before_end.contains("}")


def _is_one() -> Column:
    """Whether the value is one JSON value, if its frame decodes: a frame with another end has just these two fields.

    A text that closes the frame itself has one of the two ends, but not both."""
    return sf.coalesce(sf.json_object_keys(_frame("_last")) == sf.lit(["row", "_last"]), sf.lit(False))


def _is_json() -> Column:
    """Whether the value is one JSON value of any type. It is parsed again, as a string."""
    again = _framed(StringType())
    return again["_end"].isNotNull() & again["_corrupt"].isNull() & _is_one()


def _as_read(kind: DataType) -> DataType:
    """Returns the type for the parser, with strings for timestamps."""
    if isinstance(kind, TimestampType):
        return StringType()
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _as_read(one.dataType)) for one in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_as_read(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _as_read(kind.valueType))
    return kind


def _converted(read: Column, kind: DataType) -> Column:
    """Converts a parsed value to the schema's type."""
    if _as_read(kind) == kind:
        return read
    if isinstance(kind, StructType):
        fields = sf.struct(*(_converted(read[one.name], one.dataType).alias(one.name) for one in kind))
        return sf.when(read.isNotNull(), fields)
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return sf.transform(read, lambda one: _converted(one, element))
    if isinstance(kind, MapType):
        value = kind.valueType
        return sf.transform_values(read, lambda _, one: _converted(one, value))
    has_dashes = (sf.substring(read, 5, 1) == "-") & (sf.substring(read, 8, 1) == "-")  # LIKE is a regular expression.
    return sf.when(has_dashes & (sf.octet_length(read) >= 10), read.try_cast("timestamp"))


def _flaws(read: Column, data: Column, kind: DataType) -> list[Column]:
    """Returns conditions for values that the parser wrongly accepts. `data`: `read`, converted.

    Only values in arrays and maps need functions with lambdas, for which Spark generates no code."""
    if isinstance(kind, StructType):
        return [flaw for one in kind for flaw in _flaws(read[one.name], data[one.name], one.dataType)]
    if isinstance(kind, TimestampType):
        return [read.isNotNull() & data.isNull()]
    return flaws(read, kind, _flaw)


def _flaw(read: Column, kind: DataType) -> Column | None:
    """Returns the condition for values that the parser wrongly accepts: timestamps without a date, infinite numbers."""
    if isinstance(kind, TimestampType):
        return read.isNotNull() & _converted(read, kind).isNull()
    if isinstance(kind, DoubleType | FloatType):
        return read.isin(float("inf"), float("-inf"))
    return None


def _reason(schema: StructType, rejects_unknown: bool) -> Column:
    """Returns the reason of a rejection; null for a good row."""
    first = sf.col("_first")
    is_flawed = any_of(_flaws(first, sf.col("data"), schema))
    reason = (
        sf.when(sf.col("value").isNull(), "tombstone")
        .when(~sf.is_valid_utf8(_text()), "not_utf8")
        .when(first[_corrupt(schema)].isNotNull() | is_flawed, sf.when(_is_json(), "wrong_type").otherwise("not_json"))
    )
    return reason.when(sf.size(_unknown(schema)) > 0, "unknown_field") if rejects_unknown else reason


def _detail(schema: StructType) -> Column:
    """Describes the rejection of a value. One of a wrong type is parsed as an object of strings."""
    reason = sf.col("reason")
    names = sf.concat_ws(", ", sf.slice(_unknown(schema), 1, SHOWN_NAMES))
    return (
        sf.when(reason == "tombstone", "the value is null")
        .when(reason == "not_utf8", "the value is not UTF-8 text")
        .when(reason == "not_json", _why_no_json())
        .when(reason == "wrong_type", _let(_framed(StringType())["row"], lambda text: _why_wrong(schema, text)))
        .when(reason == "unknown_field", sf.concat(sf.lit("not in the schema: "), names))
    )


def _unknown(schema: StructType) -> Column:
    """Returns the names of the fields that the schema lacks."""
    return sf.array_except(sf.json_object_keys(_text()), sf.lit(schema.names))


def _let(value: Column, body: Callable[[Column], Column]) -> Column:
    """Applies `body` to a value that is computed once, and only if the result is needed."""
    return sf.element_at(sf.transform(sf.array(value), body), 1)


def _why_no_json() -> Column:
    return (
        sf.when(sf.length("value") == 0, "the value is empty")
        .when(
            sf.hex(sf.substring("value", 1, 1)) == "00", "the value begins with byte 0, like a schema registry's frame"
        )
        .otherwise(sf.concat(sf.lit("the value is not JSON"), _shown(_text())))
    )


def _why_wrong(schema: StructType, text: Column) -> Column:
    """Describes the fields that have a value of a wrong type; if there are none, the columns with nested values."""
    fields = sf.when(text.startswith("{"), sf.from_json(text, "MAP<STRING,STRING>"))
    return _let(fields, lambda fields: _sentences(schema, text, fields))


def _sentences(schema: StructType, text: Column, fields: Column) -> Column:
    row = sf.col("_first")
    kinds = sf.create_map(*(sf.lit(part) for one in schema for part in (one.name, kind_name(one.dataType))))
    flawed = sf.array_compact(sf.array(*(sf.when(_unlike(row[one.name], one.dataType), one.name) for one in schema)))
    nested = ", ".join(one.name for one in schema if isinstance(one.dataType, StructType | ArrayType | MapType))

    def sentence(one: Column) -> Column:
        quoted = text.contains(sf.concat(sf.lit('"'), one["key"], sf.lit('":"')))
        value = sf.when(quoted, sf.concat(sf.lit('"'), one["value"], sf.lit('"'))).otherwise(one["value"])
        return sf.concat(one["key"], sf.lit(" is not "), sf.try_element_at(kinds, one["key"]), _shown(value))

    def describe(flawed: Column) -> Column:
        entries = sf.filter(
            sf.map_entries(fields), lambda one: one["value"].isNotNull() & sf.array_contains(flawed, one["key"])
        )
        sentences = sf.transform(sf.slice(entries, 1, SHOWN_NAMES), sentence)
        return sf.when(sf.size(entries) > 0, sf.concat_ws("; ", sentences))

    no_object = sf.when(fields.isNull(), sf.concat(sf.lit("the value is not an object"), _shown(text)))
    return sf.coalesce(no_object, _let(flawed, describe), sf.lit(f"a value inside {nested} is not of its type"))


def _unlike(read: Column, kind: DataType) -> Column:
    return read.isNull() | any_of(flaws(read, kind, _flaw))


def _shown(text: Column) -> Column:
    """Returns a colon and the beginning of a text."""
    dots = sf.when(sf.length(text) > SHOWN, "...").otherwise("")
    return sf.concat(sf.lit(": "), sf.coalesce(sf.substring(text, 1, SHOWN), sf.lit("null")), dots)
