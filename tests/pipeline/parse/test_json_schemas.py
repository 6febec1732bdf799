"""The columns of JSON Schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.json_schemas import json_columns


def column(schema: Any, **more: Any) -> str:
    """The type of a column `a` with this schema. `more`: further keys of the document."""
    text = json.dumps({"type": "object", "properties": {"a": schema}, **more})
    return json_columns(text, {"other.json": '{"$defs": {"n": {"type": "integer"}}, "type": "boolean"}'})[
        "a"
    ].dataType.simpleString()


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer", "minimum": 3}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "uuid"}, "string"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": ["string", "integer"]}, "string"),
        ({"oneOf": [{"type": "null"}, {"type": "number"}]}, "double"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "string"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "string"),
        ({"properties": {"x": {"type": "integer"}, "y": True}}, "struct<x:bigint,y:string>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"type": "object"}, "string"),
        ({"enum": ["a", 1]}, "string"),
        ({"$ref": "#/$defs/b~1c"}, "bigint"),
        ({"$ref": "other.json"}, "boolean"),
        ({"$ref": "other.json#/$defs/n"}, "bigint"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_a_schema_becomes_a_column(schema: Any, kind: str) -> None:
    assert column(schema, **{"$defs": {"b/c": {"type": "integer"}}}) == kind


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ('{"type": "string"}', "does not describe an object with properties"),
        ("true", "does not describe an object"),
        ('{"properties": {"a": {"$ref": "#"}}}', "refers to itself"),
        ('{"properties": {"a": {"$ref": "nowhere.json#/x"}}}', "refers to nowhere.json#/x, which it lacks"),
    ],
)
def test_schemas_without_columns_are_refused(text: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        json_columns(text, {})
