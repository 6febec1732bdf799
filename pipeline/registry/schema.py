"""A registered schema, and the schemas that a pipeline knows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_SCHEMAS = 100
"""The maximum number of schemas that a pipeline remembers, and that a batch may have."""


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as registered. `kind`: AVRO, JSON or PROTOBUF. `references`: the texts of the schemas that it refers to,
    directly or not, by the names that it uses; those that others need come first."""

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)

    def is_same(self, other: Schema) -> bool:
        """Whether both are one schema: a registry may format a schema that is JSON anew."""
        return (self.kind, _content(self.text)) == (other.kind, _content(other.text)) and {
            name: _content(text) for name, text in self.references.items()
        } == {name: _content(text) for name, text in other.references.items()}


def _content(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@dataclass(frozen=True, slots=True)
class KnownSchemas:
    """The schemas by id, in the order in which they became known, and what rows they make.

    `columns`: the columns of all of them, as the JSON of Spark's type. `unfit`: why a schema has no rows that fit these
    columns, by id."""

    columns: str = ""
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    unfit: Mapping[int, str] = field(default_factory=dict)

    def with_schema(self, number: int, schema: Schema, columns: str, unfit: str = "") -> KnownSchemas:
        """Returns these schemas and another one. `columns`: of all of them. `unfit`: why it does not fit, or ""."""
        others = {one: why for one, why in self.unfit.items() if one != number}
        return KnownSchemas(
            columns,
            {**{one: there for one, there in self.schemas.items() if one != number}, number: schema},
            {**others, number: unfit} if unfit else others,
        )

    def only(self, kept: frozenset[int]) -> KnownSchemas:
        """Returns at most MOST_SCHEMAS of them: those in `kept` and the ones that became known last."""
        spare = [one for one in self.schemas if one not in kept]
        dropped = set(spare[: max(0, len(self.schemas) - MOST_SCHEMAS)])
        return KnownSchemas(
            self.columns,
            {one: there for one, there in self.schemas.items() if one not in dropped},
            {one: why for one, why in self.unfit.items() if one not in dropped},
        )

    def to_text(self) -> str:
        """Returns the schemas as JSON."""
        schemas = {
            str(number): {"kind": one.kind, "text": one.text, "references": dict(one.references)}
            for number, one in self.schemas.items()
        }
        unfit = {str(number): why for number, why in self.unfit.items()}
        return json.dumps({"columns": self.columns, "schemas": schemas, "unfit": unfit}, indent=1)

    @classmethod
    def of_text(cls, text: str) -> KnownSchemas:
        """Reads what `to_text` returns. Raises ValueError, KeyError, TypeError and AttributeError for anything else."""
        content = json.loads(text)
        schemas = {int(number): Schema(**one) for number, one in content["schemas"].items()}
        return cls(content["columns"], schemas, {int(number): why for number, why in content["unfit"].items()})
