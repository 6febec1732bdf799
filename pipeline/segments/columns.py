"""Converts decoded rows to Arrow batches, in the schema of Spark's Kafka connector.

Keys and values are copied by Arrow, not by Python: the block's data is viewed as one binary array with four elements
for each row (a key, the bytes up to the value, the value, the bytes up to the next key); every fourth one is taken.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from odradek.pipeline.segments.records import Headers, Ints, Rows

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_FIELDS = [
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestampType", pa.int32()),
]


def arrow_schema(*, with_headers: bool) -> pa.Schema:
    """Returns the connector's schema for Arrow. It must equal that of `DataFrame.toArrow`."""
    headers = [("headers", pa.list_(pa.field("element", _HEADER)))] if with_headers else []
    return pa.schema([*_FIELDS, *headers])


class Columns:
    """Builds the Arrow batches of one partition, and reuses the columns that are equal in all of them."""

    def __init__(self, topic: str, partition: int, *, with_headers: bool) -> None:
        self._schema = arrow_schema(with_headers=with_headers)
        self._topic = topic
        self._partition = partition
        self._same: list[pa.Array] = []

    def batch(self, rows: Rows, chosen: Ints | None = None) -> pa.RecordBatch:
        """Returns a batch of all rows, or of the chosen ones."""
        index = np.arange(len(rows), dtype=np.int64) if chosen is None else chosen
        fields = _binary(rows.data, rows.key_starts, rows.key_ends, rows.value_starts, rows.value_ends)
        topic, partition, create_time = self._constants(len(index))
        types = create_time if rows.timestamp_types is None else pa.array(rows.timestamp_types[index])
        columns = [
            _taken(fields, 4 * index, rows.key_nulls[index]),
            _taken(fields, 4 * index + 2, rows.value_nulls[index]),
            topic,
            partition,
            pa.array(rows.offsets[index]),
            pa.array(rows.timestamps[index] * 1000).cast(self._schema.field("timestamp").type),
            types,
        ]
        if rows.headers is not None:
            lists = _header_lists(rows.data, rows.headers, len(rows))
            columns.append(lists if chosen is None else lists.take(pa.array(chosen)))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _constants(self, count: int) -> list[pa.Array]:
        """Returns the columns topic, partition and CreateTime with `count` rows."""
        if not self._same or len(self._same[0]) < count:
            self._same = [
                pa.repeat(pa.scalar(self._topic), count),
                pa.repeat(pa.scalar(self._partition, pa.int32()), count),
                pa.repeat(pa.scalar(0, pa.int32()), count),
            ]
        return [array.slice(0, count) for array in self._same]


def _binary(data: bytes, *bounds: Ints) -> pa.Array:
    """Returns the data split at all bounds, which ascend within each row and from row to row."""
    cuts = np.empty((len(bounds[0]), len(bounds)), np.int32)
    for column, positions in enumerate(bounds):
        cuts[:, column] = positions
    return pa.Array.from_buffers(pa.binary(), max(cuts.size - 1, 0), [None, pa.py_buffer(cuts), pa.py_buffer(data)])


def _taken(fields: pa.Array, index: Ints, nulls: NDArray[np.bool_]) -> pa.Array:
    if nulls.all():
        return pa.nulls(len(index), pa.binary())
    return fields.take(pa.array(index, mask=nulls if nulls.any() else None))


def _header_lists(data: bytes, headers: Headers, count: int) -> pa.Array:
    """Returns a list for each row; null for a row without headers, like the connector."""
    index = np.arange(len(headers.record), dtype=np.int64)
    fields = _binary(data, headers.key_starts, headers.key_ends, headers.value_starts, headers.value_ends)
    keys = (
        _texts(_taken(fields, 4 * index, np.zeros(len(index), np.bool_))) if len(index) else pa.array([], pa.string())
    )
    values = _taken(fields, 4 * index + 2, headers.value_nulls)
    structs = pa.StructArray.from_arrays([keys, values], fields=list(_HEADER))
    each = np.bincount(headers.record, minlength=count)
    starts = np.zeros(count + 1, np.int32)
    np.cumsum(each, out=starts[1:])
    kind = pa.list_(pa.field("element", _HEADER))
    return pa.ListArray.from_arrays(pa.array(starts), structs, type=kind, mask=pa.array(each == 0))


def _texts(keys: pa.Array) -> pa.Array:
    """Decodes header keys. Invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
