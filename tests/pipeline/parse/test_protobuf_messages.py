"""Protobuf's types as columns: Google's library makes the messages, and the pipeline reads them."""

from __future__ import annotations

import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.protobuf_messages import columns_of, message_type
from odradek.pipeline.parse.protobuf_rows import indexes_of
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.settings import make_settings
from tests.pipeline.parse.parsing_records import parsed_rows, records


def file_of(syntax: str = "proto3") -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax)
    file.dependency[:] = ["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    return file


def add(
    message: Any, name: str, kind: int, label: int = Field.LABEL_OPTIONAL, type_name: str = "", **more: Any
) -> None:
    number = len(message.field) + 1
    message.field.add(
        name=name, number=number, type=kind, label=label, **({"type_name": type_name} if type_name else {}), **more
    )


def everything() -> bytes:
    """A message with each type."""
    file = file_of()
    file.enum_type.add(name="State").value.add(name="NEW", number=0)
    file.enum_type[0].value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    add(line, "item", Field.TYPE_STRING)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="PricesEntry")
    entry.options.map_entry = True
    add(entry, "key", Field.TYPE_STRING)
    add(entry, "value", Field.TYPE_DOUBLE)
    for kind in ("int32", "sint64", "fixed32", "uint64", "float", "bool", "bytes"):
        add(order, kind, getattr(Field, f"TYPE_{kind.upper()}"))
    add(order, "state", Field.TYPE_ENUM, type_name=".shop.State")
    add(order, "line", Field.TYPE_MESSAGE, type_name=".shop.Line")
    add(order, "lines", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Line")
    add(order, "prices", Field.TYPE_MESSAGE, Field.LABEL_REPEATED, ".shop.Order.PricesEntry")
    add(order, "at", Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add(order, "count", Field.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value")
    order.oneof_decl.add(name="payment")
    add(order, "card", Field.TYPE_STRING, oneof_index=0)
    add(order, "cash", Field.TYPE_INT32, oneof_index=0)
    content: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return content


def test_every_type_becomes_its_column(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "shop.desc").write_bytes(everything())
    settings = make_settings(
        {"format": "protobuf", "schema": f"@{tmp_path}/shop.desc", "message_name": "shop.Order", "event_time": "at"}
    )
    full = json_format.ParseDict(
        {
            "int32": -1,
            "sint64": str(-(2**62)),
            "fixed32": 2**32 - 1,
            "uint64": str(2**64 - 1),
            "float": 1.5,
            "bool": True,
            "bytes": "AAE=",
            "state": "PAID",
            "line": {"item": "spool"},
            "lines": [{"item": "a"}, {"item": "b"}],
            "prices": {"EUR": 2.5},
            "at": "2024-01-01T10:00:00.123456789Z",
            "count": "0",
            "cash": 0,
        },
        GetMessageClass(message_type(everything(), "shop.Order"))(),
    )
    sparse = GetMessageClass(message_type(everything(), "shop.Order"))()
    sparse.at.seconds = 1
    sparse.state = 9
    values = [full.SerializeToString(), sparse.SerializeToString()]
    first, second = (
        row.asDict(recursive=True) for row in parsed(records(spark, values), settings).select("data.*").collect()
    )
    at, other = first.pop("at"), second.pop("at")
    assert [str(at), str(other)] == ["2024-01-01 10:00:00.123456", "1970-01-01 00:00:01"]
    assert first == {
        "int32": -1,
        "sint64": -(2**62),
        "fixed32": 2**32 - 1,
        "uint64": Decimal(2**64 - 1),
        "float": 1.5,
        "bool": True,
        "bytes": b"\0\1",
        "state": "PAID",
        "line": {"item": "spool"},
        "lines": [{"item": "a"}, {"item": "b"}],
        "prices": {"EUR": 2.5},
        "count": 0,
        "card": None,
        "cash": 0,
    }
    unset: dict[str, Any] = {"line": None, "lines": [], "prices": {}, "count": None, "card": None, "cash": None}
    zeros = dict.fromkeys(("int32", "sint64", "fixed32", "uint64", "float", "bool"), 0)
    assert second == {**zeros, **unset, "bytes": b"", "state": "9"}


def test_a_timestamp_beyond_the_year_9999_and_a_missing_required_field_are_dead(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = file_of("proto2")
    order = file.message_type.add(name="Order")
    add(order, "id", Field.TYPE_INT64, Field.LABEL_REQUIRED)
    add(order, "name", Field.TYPE_STRING)
    add(order, "at", Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    (tmp_path / "shop.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    settings = make_settings({"format": "protobuf", "schema": f"@{tmp_path}/shop.desc", "message_name": "shop.Order"})
    far = b"\x08\x01\x1a\x07\x08" + b"\xff\xff\xff\xff\xff\x1f"
    rows = parsed_rows(spark, [b"\x08\x01", b"", b"\x08\x01\x12\x01\xff", far], settings)
    assert [row.reason for row in rows] == [None, "not_protobuf", "not_utf8", "not_protobuf"]
    assert "lacks id" in rows[1].detail
    assert "is not in the years 1 to 9999" in rows[3].detail


def test_messages_that_tables_cannot_have_are_refused() -> None:
    file = file_of()
    node = file.message_type.add(name="Node")
    add(node, "next", Field.TYPE_MESSAGE, type_name=".shop.Node")
    file.message_type.add(name="Empty")
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(PipelineError, match=r"shop\.Node contains itself"):
        columns_of(message_type(content, "shop.Node"))
    with pytest.raises(PipelineError, match=r"shop\.Empty has no fields"):
        columns_of(message_type(content, "shop.Empty"))


def test_descriptors_that_cannot_be_used_are_refused() -> None:
    file = file_of()
    file.dependency.append("other.proto")
    content = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    with pytest.raises(PipelineError, match=r"lacks other\.proto, which it imports; use protoc --include_imports"):
        message_type(content, "shop.Order")
    with pytest.raises(PipelineError, match="not a descriptor set"):
        message_type(b"\xff\xff", "shop.Order")


@pytest.mark.parametrize(
    ("framed", "path", "rest"),
    [
        (b"\0rest", (0,), b"rest"),
        (b"\x02\x00rest", (0,), b"rest"),
        (b"\x04\x02\x06rest", (1, 3), b"rest"),
        (b"\x02\x80\x02", (128,), b""),
    ],
)
def test_message_indexes_are_read(framed: bytes, path: tuple[int, ...], rest: bytes) -> None:
    found, end = indexes_of(framed)
    assert (found, framed[end:]) == (path, rest)


@pytest.mark.parametrize("framed", [b"", b"\x80", b"\x02", b"\x01", b"\xff" * 12, struct.pack("B", 0xFE) + b"\x03"])
def test_broken_message_indexes_are_refused(framed: bytes) -> None:
    with pytest.raises(ValueError, match="its frame has"):
        indexes_of(framed)
