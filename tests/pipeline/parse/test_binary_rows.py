"""Avro and Protobuf, with bytes that are encoded here by hand."""

import json
import struct
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.schemas import schema_of
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import parsed_rows

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
AT = 1_704_067_200_000


def zigzag(number: int) -> bytes:
    """Avro's int and long."""
    rest, out = (number << 1) ^ (number >> 63), b""
    while rest > 0x7F:
        out, rest = out + bytes([rest & 0x7F | 0x80]), rest >> 7
    return out + bytes([rest])


def text(content: bytes) -> bytes:
    return zigzag(len(content)) + content


def order(customer: bytes | None, tags: bytes = zigzag(0)) -> bytes:
    return zigzag(7) + (zigzag(0) if customer is None else zigzag(1) + text(customer)) + zigzag(AT) + tags


@pytest.fixture(scope="module")
def avro() -> Settings:
    return make_settings({"format": "avro", "schema": json.dumps(ORDER), "event_time": "at"})


def test_avro_records_become_rows(spark: SparkSession, avro: Settings) -> None:
    tagged = order(b"ada", zigzag(2) + text(b"x") + text(b"y") + zigzag(0))
    rows = parsed_rows(spark, [tagged, order(None)], avro)
    at = "2024-01-01T00:00:00.000Z"
    assert [(row.reason, json.loads(row.shown)) for row in rows] == [
        (None, {"id": 7, "customer": "ada", "at": at, "tags": ["x", "y"]}),
        (None, {"id": 7, "at": at, "tags": []}),
    ]
    assert all(row.event_time is not None for row in rows)


def test_avro_bytes_that_are_not_exactly_one_row_are_dead(spark: SparkSession, avro: Settings) -> None:
    good = order(b"ada")
    cut = [good[:length] for length in range(len(good))]
    rows = parsed_rows(spark, [*cut, good + b"\0", good + good, b"\xff" * 20, b'{"id":1}'], avro)
    assert {row.reason for row in rows} == {"not_avro"}
    assert rows[-1].detail == "the value, 8 bytes, is not one row of the schema"


def test_a_row_of_nulls_is_a_row(spark: SparkSession) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "long"]}]}
    settings = make_settings({"format": "avro", "schema": json.dumps(schema)})
    rows = parsed_rows(spark, [zigzag(0), zigzag(1), None], settings)
    assert [row.reason for row in rows] == [None, "not_avro", "tombstone"]


def test_a_schema_registry_frame_is_named(spark: SparkSession, avro: Settings) -> None:
    row = parsed_rows(spark, [b"\0" + struct.pack(">i", 1) + order(b"ada")], avro)[0]
    assert row.reason == "not_avro"
    assert row.detail.endswith("it begins with byte 0, like a schema registry's frame")


@pytest.mark.parametrize("length", [2**31 - 10, 2**40, -5])
def test_an_impossible_length_makes_the_record_dead_and_does_not_end_the_jvm(
    spark: SparkSession, avro: Settings, length: int
) -> None:
    of_text = zigzag(7) + zigzag(1) + zigzag(length) + b"abc"
    of_array = order(b"ada", zigzag(length) + b"abc")
    assert [row.reason for row in parsed_rows(spark, [of_text, of_array], avro)] == ["not_avro", "not_avro"]


def test_strings_that_are_not_utf8_are_dead_in_every_position(spark: SparkSession, avro: Settings) -> None:
    values = [order(b"\xff\xfe"), order(b"ada", zigzag(1) + text(b"\xff") + zigzag(0))]
    rows = parsed_rows(spark, values, avro)
    assert [(row.reason, row.detail) for row in rows] == [("not_utf8", "a string in the row is not UTF-8")] * 2


def test_an_avro_schema_may_be_in_a_file(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    assert schema_of(make_settings({"format": "avro", "schema": f"@{file}"})).names == ["id", "customer", "at", "tags"]


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("{", "the Avro schema is not JSON"),
        ('{"type": "string"}', "not a record"),
        ("[]", "not a record"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"nope"}]}', "Undefined schema: nope"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":["null","R"]}]}', "recursive reference"),
        ('{"type":"record","name":"R","fields":[]}', "the schema has no columns"),
    ],
)
def test_an_invalid_avro_schema_is_reported(spark: SparkSession, schema: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        schema_of(make_settings({"format": "avro", "schema": schema}))


def field(number: int, kind: int, content: bytes) -> bytes:
    """A field as Protobuf writes it; kind 2: with its length."""
    return bytes([number << 3 | kind]) + (varint(len(content)) if kind == 2 else b"") + content


def varint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def descriptor_set() -> bytes:
    """message Order { int64 id = 1; string customer = 2; uint32 count = 3; optional double amount = 4; } in proto3."""

    def declared(name: bytes, number: int, kind: int, optional: bool = False) -> bytes:
        content = field(1, 2, name) + field(3, 0, varint(number)) + field(4, 0, varint(1)) + field(5, 0, varint(kind))
        content += field(9, 0, varint(0)) + varint(17 << 3) + varint(1) if optional else b""
        return field(2, 2, content)

    fields = declared(b"id", 1, 3) + declared(b"customer", 2, 9) + declared(b"count", 3, 13)
    oneof = field(8, 2, field(1, 2, b"_amount"))
    message = field(1, 2, b"Order") + fields + declared(b"amount", 4, 1, optional=True) + oneof
    file = field(1, 2, b"order.proto") + field(2, 2, b"shop") + field(4, 2, message) + field(12, 2, b"proto3")
    return field(1, 2, file)


@pytest.fixture
def protobuf(spark: SparkSession, tmp_path: Path) -> Settings:
    file = tmp_path / "order.desc"
    file.write_bytes(descriptor_set())
    return make_settings({"format": "protobuf", "schema": f"@{file}", "message_name": "shop.Order"})


def test_protobuf_rows_have_proto3_defaults_and_unsigned_numbers(spark: SparkSession, protobuf: Settings) -> None:
    full = (
        field(1, 0, varint(7))
        + field(2, 2, b"ada")
        + field(3, 0, varint(4_000_000_000))
        + field(4, 1, struct.pack("<d", 1.5))
    )
    assert schema_of(protobuf).simpleString() == "struct<id:bigint,customer:string,count:bigint,amount:double>"
    rows = parsed_rows(spark, [full, b"", field(9, 0, varint(1))], protobuf)
    nothing = {"id": 0, "customer": "", "count": 0}
    assert [(row.reason, json.loads(row.shown)) for row in rows] == [
        (None, {"id": 7, "customer": "ada", "count": 4_000_000_000, "amount": 1.5}),
        (None, nothing),
        (None, nothing),
    ]


def test_bytes_that_are_not_a_protobuf_message_are_dead(spark: SparkSession, protobuf: Settings) -> None:
    values = [
        None,
        b"\xff",
        b'{"id":1}',
        field(2, 2, b"ada")[:-1],
        field(2, 2, b"\xff\xfe"),
        b"\x0a" + varint(2**31 - 10),
    ]
    rows = parsed_rows(spark, values, protobuf)
    assert [row.reason for row in rows] == ["tombstone", *["not_protobuf"] * 5]
    assert rows[1].detail.startswith("the value, 1 bytes, is not a message shop.Order: ")


def test_a_message_missing_from_the_descriptors_is_reported(spark: SparkSession, protobuf: Settings) -> None:
    settings = make_settings({"format": "protobuf", "schema": protobuf.schema, "message_name": "shop.Nope"})
    with pytest.raises(PipelineError, match=r"the Protobuf schema has no message shop\.Nope: shop\.Order"):
        schema_of(settings)


@pytest.mark.parametrize("given", [{"schema": "@x.desc"}, {"schema": "id LONG", "message_name": "Order"}])
def test_protobuf_needs_descriptors_and_a_message(spark: SparkSession, given: dict[str, str]) -> None:
    with pytest.raises(PipelineError, match="Protobuf needs message-name, and a schema of @FILE"):
        schema_of(make_settings({"format": "protobuf", **given}))
