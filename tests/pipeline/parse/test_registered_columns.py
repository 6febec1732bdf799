"""The columns of registered schemas, those that refer to others, and those that do not fit."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.avro_schemas import with_references
from odradek.pipeline.parse.registered_columns import learned, message_source, registered_columns
from odradek.pipeline.registry.schema import KnownSchemas, Schema
from odradek.pipeline.settings import Settings, make_settings

pytestmark = pytest.mark.usefixtures("spark")
PROTO = 'syntax = "proto3"; package shop; '


def settings_of(form: str, **more: Any) -> Settings:
    return make_settings({"format": form, "schema_registry": "http://localhost", **more})


def columns_of(schema: Schema, **more: Any) -> str:
    return registered_columns(schema, settings_of(schema.kind.lower(), **more)).simpleString()


def record(called: str, **fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": called, "fields": [{"name": one, "type": kind} for one, kind in fields.items()]}
    )


def test_the_first_mention_of_an_avro_type_of_another_schema_is_its_definition() -> None:
    references = {"shop.Item": record("shop.Item", name="string"), "shop.Line": record("shop.Line", item="shop.Item")}
    text = record("shop.Order", first="Line", others={"type": "array", "items": "shop.Line"}, item=["null", "Item"])
    whole = json.loads(with_references(text, references))
    assert whole["fields"][0]["type"]["fields"][0]["type"]["name"] == "shop.Item"
    assert whole["fields"][1]["type"]["items"] == "shop.Line"
    item = "struct<name:string>"
    assert columns_of(Schema("AVRO", text, references)) == (
        f"struct<first:struct<item:{item}>,others:array<struct<item:{item}>>,item:{item}>"
    )


def test_a_proto_file_imports_others_by_the_names_of_the_references() -> None:
    text = PROTO + 'import "shop/line.proto"; message Order { int64 id = 1; Line line = 2; }'
    line = PROTO + 'import "google/protobuf/timestamp.proto"; message Line { google.protobuf.Timestamp at = 1; }'
    wanted = "struct<id:bigint,line:struct<at:timestamp>>"
    assert columns_of(Schema("PROTOBUF", text, {"shop/line.proto": line})) == wanted


def test_descriptors_in_base64_import_others_in_base64() -> None:
    line = FileDescriptorProto(name="line.proto", package="shop", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="item", number=1, type=Field.TYPE_STRING, label=1)
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", dependency=["shop/line.proto"])
    order = file.message_type.add(name="Order")
    order.field.add(name="line", number=1, type=Field.TYPE_MESSAGE, label=1, type_name=".shop.Line")
    text, other = (b64encode(one.SerializeToString()).decode() for one in (file, line))
    assert columns_of(Schema("PROTOBUF", text, {"shop/line.proto": other})) == "struct<line:struct<item:string>>"
    of_text = PROTO + 'import "shop/line.proto"; message Order { Line line = 1; }'
    assert columns_of(Schema("PROTOBUF", of_text, {"shop/line.proto": other})) == "struct<line:struct<item:string>>"


@pytest.mark.parametrize(
    ("wanted", "path"), [("", (0,)), ("shop.A", (0,)), ("shop.B", (1,)), ("shop.B.C", (1, 0)), ("shop.B.D", (1, 1))]
)
def test_a_message_is_named_by_its_indexes(wanted: str, path: tuple[int, ...]) -> None:
    text = PROTO + "message A { int32 x = 1; } message B { message C { int32 x = 1; } message D { int32 x = 1; } }"
    assert message_source(Schema("PROTOBUF", text), wanted).path == path


@pytest.mark.parametrize(
    ("schema", "more", "says"),
    [
        (Schema("JSON", "{}"), {"form": "avro"}, "it is of type JSON, but format is avro"),
        (Schema("AVRO", '"string"'), {}, "the Avro schema is not a record"),
        (Schema("AVRO", record("A", b="nope")), {}, "Undefined schema: nope"),
        (Schema("AVRO", record("A", b="nope"), {"x.B": "{"}), {}, "or one that it refers to is invalid"),
        (Schema("PROTOBUF", PROTO + "nope"), {}, "the Protobuf schema does not compile: odradek_registered.proto:1"),
        (Schema("PROTOBUF", PROTO), {}, "the Protobuf schema has no message at all"),
        (Schema("PROTOBUF", PROTO + "message A {}"), {"message_name": "B"}, "has no message B: shop.A"),
        (Schema("PROTOBUF", PROTO, {"../../x.proto": PROTO}), {}, "imports '../../x.proto', which is not the name"),
        (Schema("PROTOBUF", PROTO, {"/x.proto": PROTO}), {}, "imports '/x.proto'"),
        (Schema("PROTOBUF", PROTO + "message A { A a = 1; }"), {}, "shop.A contains itself"),
    ],
)
def test_a_schema_without_columns_says_why(schema: Schema, more: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError) as caught:
        registered_columns(schema, settings_of(**{"form": schema.kind.lower(), **more}))
    assert says in str(caught.value)


def json_schema(**properties: Any) -> Schema:
    text = json.dumps({"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}})
    return Schema("JSON", text)


def test_the_first_schema_must_have_the_columns_that_the_settings_name_and_later_ones_may_be_unfit() -> None:
    settings = settings_of("json", required=["id"])
    with pytest.raises(PipelineError, match="schema 4: required names id, which the schema lacks"):
        learned(KnownSchemas(), 4, json_schema(a="integer"), settings)
    known = learned(KnownSchemas(), 1, json_schema(id="integer"), settings)
    known = learned(known, 2, json_schema(id="string", more="string"), settings)
    known = learned(known, 3, json_schema(note="string"), settings)
    known = learned(known, 4, json_schema(_offset="string"), settings)
    assert StructType.fromJson(json.loads(known.columns)).simpleString() == "struct<id:bigint,note:string>"
    assert list(known.schemas) == [1, 2, 3, 4]
    assert known.unfit[2] == "id is STRING, but it was LONG"
    assert "reserved name" in known.unfit[4]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"sink": "parquet"}, "a is LONG, but it was INT, and a plain Parquet table keeps the types of its columns"),
        ({"window": "1 hour", "window_sums": ["b"]}, "b is DOUBLE, but it was INT, and the sums of the windows"),
        ({"window": "1 hour", "window_sums": ["a"]}, ""),
        ({}, ""),
    ],
)
def test_a_wider_column_is_unfit_where_the_tables_cannot_follow(settings: dict[str, Any], says: str) -> None:
    wanted = settings_of("avro", **settings)
    first = learned(KnownSchemas(), 1, Schema("AVRO", record("A", a="int", b="int")), wanted)
    second = learned(first, 2, Schema("AVRO", record("A", a="long", b="double")), wanted)
    assert second.unfit.get(2, "").startswith(says)
    assert (2 in second.unfit) == bool(says)
