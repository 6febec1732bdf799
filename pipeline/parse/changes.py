"""Changes by key, for mode = upsert: tombstones become deletes, and the last change of each key is found.

A row's key is in its columns. A tombstone has no columns, so its key is the record's key: as `key-format` says, the
text of the only column, or a JSON object with all of them. In either, a time starts with a date, as in JSON values, and
a BINARY of a JSON object is Base64.

The last change of a key: of each partition, the record with the highest offset; of these, the one with the latest
timestamp; of equal ones, that of the last topic and partition by name and number. So offsets alone decide for a key
whose records are in one partition, which is how producers partition. A later batch always replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, DataType, StringType, StructType, TimestampNTZType, TimestampType

from odradek.pipeline.parse.flaws import any_of
from odradek.pipeline.parse.repetitions import PLACE
from odradek.pipeline.parse.schemas import kind_name
from odradek.pipeline.parse.transforms import GOOD, OUTCOME
from odradek.pipeline.settings import Settings

DELETED = "deleted"
"""The outcome of a tombstone with a key."""
KEY = "_change_key"
IS_DELETE = "_is_delete"
_FRAME = "row MAP<STRING, STRING>, _end BOOLEAN, _corrupt STRING"
_STRICT = {"columnNameOfCorruptRecord": "_corrupt", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def with_deletes(judged: DataFrame, settings: Settings) -> DataFrame:
    """Adds KEY, a struct of `upsert_keys`, to judged rows. A tombstone has the outcome DELETED, and no reason; if its
    key does not identify a row, it is a dead letter with the reason `no_key`."""
    kinds = {one.name: one.dataType for one in _data(judged)}
    names = list(settings.upsert_keys)
    is_tombstone = sf.col("value").isNull() & (sf.col("reason") == "tombstone")
    texts = _texts(settings)
    parts = {name: _value(texts[name], kinds[name], settings) for name in names}
    of_record = sf.struct(*(parts[name].alias(name) for name in names))
    of_row = sf.struct(*(sf.col("data")[name].alias(name) for name in names))
    marked = judged.withColumn(KEY, sf.when(is_tombstone, of_record).otherwise(of_row))
    is_whole = ~any_of([sf.col(KEY)[name].isNull() for name in names])
    is_delete, has_no_key = is_tombstone & is_whole, is_tombstone & ~is_whole
    what = ", ".join(f"{name} {kind_name(kinds[name])}" for name in names)
    shape = "a JSON object with" if settings.key_format == "json" else "the text of"
    detail = sf.when(sf.col("key").isNull(), "the value and the key are null").otherwise(
        f"the value is null, and the key is not {shape} {what}"
    )
    nothing = sf.lit(None).cast("string")
    return marked.withColumns(
        {
            OUTCOME: sf.when(is_delete, DELETED).otherwise(sf.col(OUTCOME)),
            "reason": sf.when(is_delete, nothing).when(has_no_key, "no_key").otherwise(sf.col("reason")),
            "detail": sf.when(is_delete, nothing).when(has_no_key, detail).otherwise(sf.col("detail")),
        }
    )


def changes_by_key(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the columns of the key, the place and the time (`_topic`, `_partition`, `_offset`, `_timestamp`) and
    IS_DELETE of each change. `rows`: judged, with KEY."""
    return rows.where(sf.col(OUTCOME).isin(GOOD, DELETED)).select(
        *(sf.col(KEY)[name].alias(name) for name in keys),
        *(sf.col(name).alias(f"_{name}") for name in (*PLACE, "timestamp")),
        (sf.col(OUTCOME) == DELETED).alias(IS_DELETE),
    )


def last_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Returns the columns of the key, the PLACE and IS_DELETE of the last change of each key."""
    last = sf.max_by(sf.struct("_timestamp", "_topic", "_partition", "_offset", IS_DELETE), "_offset")
    by_partition = changes.groupBy(*_quoted(keys), "_topic", "_partition").agg(last.alias("_last"))
    of_key = by_partition.groupBy(*_quoted(keys)).agg(sf.max("_last").alias("_last"))
    places = [sf.col(f"_last._{name}").alias(name) for name in PLACE]
    return of_key.select(*_quoted(keys), *places, sf.col(f"_last.{IS_DELETE}").alias(IS_DELETE))


def _quoted(names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names]


def _data(judged: DataFrame) -> StructType:
    kind = judged.schema["data"].dataType
    assert isinstance(kind, StructType)
    return kind


def _texts(settings: Settings) -> dict[str, Column]:
    """Returns the text of each column of the key in the record's key; null if it has none, or is not UTF-8."""
    text = sf.when(sf.is_valid_utf8(sf.col("key").cast("string")), sf.col("key").cast("string"))
    if settings.key_format == "text":
        return {settings.upsert_keys[0]: text}
    frame = sf.from_json(sf.concat(sf.lit('{"row":'), text, sf.lit(',"_end":true}')), _FRAME, _STRICT)
    fields = sf.when(frame["_end"] & frame["_corrupt"].isNull(), frame["row"])
    return {name: sf.try_element_at(fields, sf.lit(name)) for name in settings.upsert_keys}


def _value(text: Column, kind: DataType, settings: Settings) -> Column:
    if isinstance(kind, BinaryType):
        return sf.col("key") if settings.key_format == "text" else sf.try_to_binary(text, sf.lit("base64"))
    if isinstance(kind, StringType):
        return text
    if isinstance(kind, TimestampType | TimestampNTZType):
        text = sf.when(text.like("____-__-__%"), text)
    return text.try_cast(kind)
