"""Requests and answers as documents, which both brokers get and which are compared.

Requests are dictionaries with the attributes of the message classes: missing fields have Kafka's default, and fields
that a version lacks are not sent. Answers are documents (see `protocol.documents`), with the specification's names.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from odradek.clients.recording.comparison import Rules, rules_at
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message

Document = dict[str, Any]
T = 1_700_000_000_000
"""The timestamp of records whose timestamp does not matter."""
RULES: Rules = {
    **rules_at(lambda: time.time() * 1000),
    "ProducerId": lambda value: value if value < 0 or value >= 7000 else "PRODUCER",
}
"""What of an answer is replaced before it is compared."""


def batch(*values: bytes | None, key: bytes | None = b"k", first_time: int = T, **more: Any) -> bytes:
    """A batch of records a millisecond apart."""
    records = [Record(index, first_time + index, key, value) for index, value in enumerate(values or (b"v",))]
    return build_batch(records, **more)


def message_of(cls: type[Message], document: Document) -> Message:
    """The message of a dictionary whose fields can belong to any version."""
    made = cls()
    fields = {field.attribute: field for field in cls.__schema__.fields}
    for attribute, value in document.items():
        field = fields[attribute]
        if field.type == "array" and field.element == "struct" and value is not None:
            value = [message_of(field.structure, element) for element in value]
        elif field.type == "struct" and value is not None:
            value = message_of(field.structure, value)
        elif field.type == "uuid":
            value = UUID(value)
        setattr(made, attribute, value)
    return made
