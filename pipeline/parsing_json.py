"""JSON to rows, strictly, with one `from_json`.

What Spark's `from_json` takes for good though it is not, and what is done about it:
 (a) text after the object (`{"id":1} xyz`): it stops reading. So the text is read as a field of a frame, and the
     frame's last field must have been seen.
 (b) bytes that are no UTF-8: replaced silently. So they are checked for.
 (c) 1e400 becomes Infinity. So numbers must be finite. NaN and 'single quotes' are no JSON.
 (d) TIMESTAMP: "12:00" becomes today's, a number is taken for seconds and overflows silently. So a timestamp is a text
     that begins with a date (2024-01-31, 2024-01-31T10:00:00.123456+02:00, a space for the T); without a zone it is
     UTC. Numbers belong in a LONG.
As Spark has it: a STRING takes every JSON value as its text, of two fields of one name the last counts, names differ by
case, a null and a field that is not there are alike, a DECIMAL is rounded to its scale, a BINARY is Base64.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_

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

from pipeline.schemas import kind_name

OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
FRAME = ('{"row":', ',"_end":true}')
SUSPECT = "suspect"
"""Said of a row until it is known what is wrong with it."""
SHOWN = 60
"""Characters of a value that a detail shows."""


def json_rows(records: DataFrame, schema: StructType, unknown_fields: str) -> DataFrame:
    """The records with `data`, `reason` and `detail`, and with `_raw` where unknown fields are kept.

    Unknown fields are those of the outermost object. `keep` and `reject` read the names of the good rows' fields, which
    costs half a parse more; `ignore` costs nothing."""
    first = records.withColumn("_first", _framed(_as_read(schema)))
    judged = first.withColumn("data", _converted(sf.col("_first.row"), schema)).withColumn("_kind", _kind(schema))
    rejects = unknown_fields == "reject"
    columns = {
        "_again": sf.when(sf.col("_kind") == SUSPECT, _framed(StringType())),
        "_flawed": sf.when(sf.col("_kind") == SUSPECT, _flawed(schema)),
    }
    if unknown_fields != "ignore":
        columns["_unknown"] = _unknown(schema)
    again = judged.withColumns(columns)
    fields = sf.when(sf.col("_again.row").startswith("{"), sf.from_json("_again.row", "MAP<STRING,STRING>"))
    named = again.withColumns({"_fields": fields, "reason": _reason(rejects)})
    told = named.withColumn("_wrong", _wrong(schema)).withColumn("detail", _detail(schema, rejects))
    if unknown_fields == "keep":
        told = told.withColumn("_raw", sf.when(sf.size("_unknown") > 0, _text()))
    return told.drop("_first", "_kind", *columns, "_fields", "_wrong")


def _text() -> Column:
    return sf.col("value").cast("string")


def _framed(row: DataType) -> Column:
    """The value, read as the first field of a frame: `row`, and `_end` where nothing but the row was before it."""
    frame = StructType(
        [StructField("row", row), StructField("_end", BooleanType()), StructField("_corrupt", StringType())]
    )
    return sf.from_json(sf.concat(sf.lit(FRAME[0]), _text(), sf.lit(FRAME[1])), frame, OPTIONS)


def _as_read(kind: DataType) -> DataType:
    """The type that the parser is told: texts for timestamps."""
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
    """What was read, as the schema's type."""
    if _as_read(kind) == kind:
        return read
    if isinstance(kind, StructType):
        fields = sf.struct(*(_converted(read[one.name], one.dataType).alias(one.name) for one in kind))
        return sf.when(read.isNotNull(), fields)
    if isinstance(kind, ArrayType):
        return sf.transform(read, _each(kind.elementType))
    if isinstance(kind, MapType):
        value = kind.valueType
        return sf.transform_values(read, lambda _, one: _converted(one, value))
    return sf.when(read.like("____-__-__%"), read.try_cast("timestamp"))


def _each(kind: DataType) -> Callable[[Column], Column]:
    return lambda one: _converted(one, kind)


def _flaws(read: Column, converted: Column, kind: DataType) -> list[Column]:
    """What the parser let pass, each a condition: no date in a timestamp, a number that is not finite."""
    if isinstance(kind, TimestampType):
        return [read.isNotNull() & converted.isNull()]
    if isinstance(kind, DoubleType | FloatType):
        return [read.isin(float("inf"), float("-inf"))]
    if isinstance(kind, StructType):
        return [flaw for one in kind for flaw in _flaws(read[one.name], converted[one.name], one.dataType)]
    if isinstance(kind, ArrayType):
        return _flaws_inside(read, kind.elementType)
    if isinstance(kind, MapType):
        return _flaws_inside(sf.map_values(read), kind.valueType)
    return []


def _flaws_inside(array: Column, kind: DataType) -> list[Column]:
    if not _flaws(array, array, kind):
        return []
    return [sf.exists(array, lambda one: _any(_flaws(one, _converted(one, kind), kind)))]


def _any(conditions: list[Column]) -> Column:
    """Whether one of the conditions holds; one that is null does not."""
    return reduce(or_, (sf.coalesce(one, sf.lit(False)) for one in conditions), sf.lit(False))


def _kind(schema: StructType) -> Column:
    """Null for what fits the schema, a reason, or `suspect` for what must be looked at again."""
    first = sf.col("_first")
    fits = first["row"].isNotNull() & first["_end"].isNotNull() & first["_corrupt"].isNull()
    flawed = _any(_flaws(first["row"], sf.col("data"), schema))
    return (
        sf.when(sf.col("value").isNull(), "tombstone")
        .when(~sf.is_valid_utf8(_text()), "not_utf8")
        .when(~fits | flawed, SUSPECT)
    )


def _unknown(schema: StructType) -> Column:
    """The names of fields that the schema lacks, of rows that fit."""
    names = sf.lit(schema.names)
    return sf.when(sf.col("_kind").isNull(), sf.array_except(sf.json_object_keys(_text()), names))


def _reason(rejects_unknown: bool) -> Column:
    """A key of REASONS, or null."""
    kind, again = sf.col("_kind"), sf.col("_again")
    reason = (
        sf.when(kind != SUSPECT, kind)
        .when((kind == SUSPECT) & (again["_end"].isNull() | again["_corrupt"].isNotNull()), "not_json")
        .when(kind == SUSPECT, "wrong_type")
    )
    return reason.when(sf.size("_unknown") > 0, "unknown_field") if rejects_unknown else reason


def _detail(schema: StructType, rejects_unknown: bool) -> Column:
    """The same in words, with the value or the columns at fault."""
    reason = sf.col("reason")
    detail = (
        sf.when(reason == "tombstone", "the value is null")
        .when(reason == "not_utf8", "the value is no UTF-8 text")
        .when(reason == "not_json", _why_no_json())
        .when(
            (reason == "wrong_type") & sf.col("_fields").isNull(),
            sf.concat(sf.lit("the value is no object"), _shown(sf.col("_again.row"))),
        )
        .when(reason == "wrong_type", _why_wrong(schema))
    )
    if rejects_unknown:
        names = sf.concat_ws(", ", sf.slice("_unknown", 1, 5))
        detail = detail.when(reason == "unknown_field", sf.concat(sf.lit("not in the schema: "), names))
    return detail


def _why_no_json() -> Column:
    return (
        sf.when(sf.length("value") == 0, "the value is empty")
        .when(
            sf.hex(sf.substring("value", 1, 1)) == "00", "the value begins with byte 0, like a schema registry's frame"
        )
        .otherwise(sf.concat(sf.lit("the value is no JSON"), _shown(_text())))
    )


def _why_wrong(schema: StructType) -> Column:
    """Where no column is flawed as a whole, the flaw is inside of a nested one."""
    nested = ", ".join(one.name for one in schema if isinstance(one.dataType, StructType | ArrayType | MapType))
    whole = sf.concat_ws("; ", sf.slice("_wrong", 1, 5))
    return sf.when(sf.size("_wrong") > 0, whole).otherwise(f"a value inside {nested} is not of its type")


def _flawed(schema: StructType) -> Column:
    """The columns that are null or not as the schema wants them."""
    row, data = sf.col("_first.row"), sf.col("data")
    names = []
    for one in schema:
        flaws = _flaws(row[one.name], data[one.name], one.dataType)
        names.append(sf.when(data.isNull() | data[one.name].isNull() | _any(flaws), one.name))
    return sf.array_compact(sf.array(*names))


def _wrong(schema: StructType) -> Column:
    """A sentence for each field that has a text and is flawed."""
    kinds = sf.create_map(*(sf.lit(part) for one in schema for part in (one.name, kind_name(one.dataType))))
    flawed = sf.col("_flawed")
    entries = sf.filter(
        sf.map_entries("_fields"), lambda one: one["value"].isNotNull() & sf.array_contains(flawed, one["key"])
    )

    def sentence(one: Column) -> Column:
        quoted = sf.col("_again.row").contains(sf.concat(sf.lit('"'), one["key"], sf.lit('":"')))
        value = sf.when(quoted, sf.concat(sf.lit('"'), one["value"], sf.lit('"'))).otherwise(one["value"])
        return sf.concat(one["key"], sf.lit(" is no "), sf.try_element_at(kinds, one["key"]), _shown(value))

    return sf.transform(entries, sentence)


def _shown(text: Column) -> Column:
    """The beginning of a text, behind a colon."""
    dots = sf.when(sf.length(text) > SHOWN, "...").otherwise("")
    return sf.concat(sf.lit(": "), sf.coalesce(sf.substring(text, 1, SHOWN), sf.lit("null")), dots)
