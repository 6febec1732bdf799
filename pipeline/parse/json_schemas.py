"""The columns of a JSON Schema.

| JSON Schema | column |
|---|---|
| integer / number / boolean | LONG / DOUBLE / BOOLEAN |
| string; with format date-time / date | STRING; TIMESTAMP / DATE |
| object with properties | STRUCT |
| object with only a schema of additionalProperties | MAP from STRING |
| array with a schema of items | ARRAY |
| null and one of these, by a list of types, oneOf or anyOf | the same column |
| everything else | STRING, which takes any JSON value as text |

Only the types decide whether a record is good: minimum, pattern, enum, required and the like are the producer's matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from odradek.pipeline.errors import PipelineError

MOST_DEPTH, MOST_TYPES = 100, 10_000
PLAIN: Mapping[str, DataType] = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
STRINGS: Mapping[str, DataType] = {"date-time": TimestampType(), "date": DateType()}


def json_columns(text: str, references: Mapping[str, str]) -> StructType:
    """Returns the columns of a JSON Schema. `references`: the texts of other schemas by the names in `$ref`. Raises
    PipelineError unless it describes an object with properties."""
    try:
        documents = {"": json.loads(text), **{name: json.loads(one) for name, one in references.items()}}
    except ValueError as error:
        raise PipelineError(f"the JSON Schema is not JSON: {error}") from error
    found = _Columns(documents).of(documents[""], "", 0)
    if not isinstance(found, StructType):
        raise PipelineError("the JSON Schema does not describe an object with properties")
    return found


class _Columns:
    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._types = 0

    def of(self, schema: Any, document: str, depth: int) -> DataType:
        """Returns the column of a schema in one of the documents."""
        self._types += 1
        if depth > MOST_DEPTH or self._types > MOST_TYPES:
            raise PipelineError("the JSON Schema refers to itself, or is too large, which tables do not support")
        if not isinstance(schema, dict):
            return StringType()
        if isinstance(schema.get("$ref"), str):
            return self.of(*self._referred(schema["$ref"], document), depth + 1)
        for key in ("oneOf", "anyOf"):
            if isinstance(schema.get(key), list):
                others = [one for one in schema[key] if one != {"type": "null"}]
                return self.of(others[0], document, depth + 1) if len(others) == 1 else StringType()
        kinds = schema.get("type", "object" if "properties" in schema else None)
        named = [one for one in (kinds if isinstance(kinds, list) else [kinds]) if one != "null"]
        return self._of_type(named[0], schema, document, depth) if len(named) == 1 else StringType()

    def _of_type(self, kind: Any, schema: Mapping[str, Any], document: str, depth: int) -> DataType:
        if kind == "string":
            return STRINGS.get(str(schema.get("format")), StringType())
        if kind == "array" and isinstance(schema.get("items"), dict):
            return ArrayType(self.of(schema["items"], document, depth + 1))
        if kind == "object":
            return self._of_object(schema, document, depth)
        return PLAIN.get(str(kind), StringType())

    def _of_object(self, schema: Mapping[str, Any], document: str, depth: int) -> DataType:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            fields = [StructField(name, self.of(one, document, depth + 1)) for name, one in properties.items()]
            return StructType(fields)
        return MapType(StringType(), self.of(more, document, depth + 1)) if isinstance(more, dict) else StringType()

    def _referred(self, reference: str, document: str) -> tuple[Any, str]:
        """Returns the schema that a `$ref` names, and the document that it is in. Raises PipelineError."""
        name, _, pointer = reference.partition("#")
        place = name or document
        found: Any = self._documents.get(place)
        try:
            for part in filter(None, unquote(pointer).split("/")):
                key = part.replace("~1", "/").replace("~0", "~")
                found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            found = None
        if found is None:
            raise PipelineError(f"the JSON Schema refers to {reference}, which it lacks")
        return found, place
