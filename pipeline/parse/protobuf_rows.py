"""Decodes Protobuf to rows, with Google's library in Spark's Python workers.

Protobuf does not encode the type of a message and skips unknown fields, so a message of another type may be read as a
row of defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructType

from odradek.pipeline.parse.protobuf_messages import MessageReader, readers_of

if TYPE_CHECKING:
    import pyarrow as pa

MOST_INDEXES = 100
"""The maximum depth of a message in a frame: as deep as Google's library nests messages."""


@dataclass(frozen=True, slots=True)
class Source:
    """A message type: a serialized FileDescriptorSet, and the name of a message in it. `path`: the message's indexes,
    which then precede each value."""

    descriptors: bytes
    message: str
    path: tuple[int, ...] | None = None


def protobuf_rows(records: DataFrame, schema: StructType, number: Column, sources: Mapping[int, Source]) -> DataFrame:
    """Returns the records with `data`, `reason` and `detail`. `number`: which of the sources a record has; it may be
    null, or a number without a source, if the value is null."""
    judged = StructType([*records.schema.fields]).add("data", schema).add("reason", StringType())
    typed = records.withColumns({"_number": number, "data": sf.lit(None).cast(schema)})
    return typed.mapInArrow(_decoder(sources, schema.json()), judged.add("detail", StringType()))


def _decoder(sources: Mapping[int, Source], columns: str) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """Returns the function of a task."""
    types = tuple((number, one.descriptors, one.message) for number, one in sources.items())
    paths = {number: one.path for number, one in sources.items()}

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        readers = readers_of(types, columns)
        for batch in batches:
            yield _decoded(batch, readers, paths)

    return decode


def _decoded(
    batch: pa.RecordBatch, readers: Mapping[int, MessageReader], paths: Mapping[int, tuple[int, ...] | None]
) -> pa.RecordBatch:
    import pyarrow as pa

    rows: list[dict[str, Any] | None] = []
    reasons: list[str | None] = []
    details: list[str | None] = []
    for value, number in zip(batch["value"].to_pylist(), batch["_number"].to_pylist(), strict=True):
        row, reason, detail = None, None, None
        if value is None:
            reason, detail = "tombstone", "the value is null"
        else:
            try:
                row = readers[number].read(_message(value, paths[number]))
            except UnicodeDecodeError:
                reason, detail = "not_utf8", "a string in the row is not UTF-8"
            except (DecodeError, ValueError) as error:
                reason, detail = "not_protobuf", _why(value, readers[number].name, error)
        rows.append(row)
        reasons.append(reason)
        details.append(detail)
    kept = [name for name in batch.schema.names if name not in ("_number", "data")]
    fields = [batch.schema.field(name) for name in kept] + [batch.schema.field("data")]
    made = [pa.array(rows, fields[-1].type), pa.array(reasons, pa.string()), pa.array(details, pa.string())]
    schema = pa.schema([*fields, pa.field("reason", pa.string()), pa.field("detail", pa.string())])
    return pa.RecordBatch.from_arrays([*(batch[name] for name in kept), *made], schema=schema)


def _why(value: bytes, message: str, error: Exception) -> str:
    hint = "; it begins with byte 0, like a schema registry's frame" if value[:1] == b"\0" else ""
    return f"the value, {len(value)} bytes, is not a message {message}: {error}{hint}"


def _message(value: bytes, path: tuple[int, ...] | None) -> bytes:
    """Returns the message without the indexes before it. Raises ValueError unless they are those of `path`."""
    if path is None:
        return value
    found, end = indexes_of(value)
    if found != path:
        raise ValueError(f"its frame names the message {list(found)} of the schema, not {list(path)}")
    return value[end:]


def indexes_of(value: bytes) -> tuple[tuple[int, ...], int]:
    """Returns the message indexes at the beginning of a framed value, and where they end. Raises ValueError.

    They are varints in zigzag code: how many, then each. A single 0 stands for the first message."""
    count, at = _varint(value, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise ValueError(f"its frame has {count} message indexes")
    if count == 0:
        return (0,), at
    found = []
    for _ in range(count):
        index, at = _varint(value, at)
        found.append(index)
    return tuple(found), at


def _varint(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise ValueError("its frame has no message indexes")
        number |= (value[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not value[at - 1] & 0x80:
            return number >> 1 ^ -(number & 1), at
