"""Avro schemas that refer to types of other registered schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from odradek.pipeline.errors import PipelineError

NAMED = ("record", "error", "enum", "fixed")


def with_references(text: str, references: Mapping[str, str]) -> str:
    """Returns a schema in which the first mention of each type of `references` (texts by full name) is its definition.
    Raises PipelineError."""
    if not references:
        return text
    try:
        types = {name: json.loads(one) for name, one in references.items()}
        return json.dumps(_Inlined(types).of(json.loads(text), ""))
    except (ValueError, AttributeError, TypeError) as error:
        raise PipelineError(f"the Avro schema or one that it refers to is invalid: {error}") from error


class _Inlined:
    def __init__(self, types: dict[str, Any]) -> None:
        self._missing = types

    def of(self, schema: Any, namespace: str) -> Any:
        """Returns a schema in a namespace, with definitions. A type that is defined is not defined again."""
        if isinstance(schema, str):
            full = schema if "." in schema or not namespace else f"{namespace}.{schema}"
            name = full if full in self._missing else schema
            return self.of(self._missing.pop(name), "") if name in self._missing else schema
        if isinstance(schema, list):
            return [self.of(one, namespace) for one in schema]
        made = dict(schema)
        if schema.get("type") in NAMED:
            name = str(schema.get("name", ""))
            namespace = name.rpartition(".")[0] if "." in name else schema.get("namespace", namespace)
            self._missing.pop(name if "." in name or not namespace else f"{namespace}.{name}", None)
        if "fields" in schema:
            made["fields"] = [{**one, "type": self.of(one["type"], namespace)} for one in schema["fields"]]
        for key in ("items", "values"):
            if key in schema:
                made[key] = self.of(schema[key], namespace)
        if isinstance(schema.get("type"), dict | list):
            made["type"] = self.of(schema["type"], namespace)
        return made
