"""Documents with arrays that are repeated on the wire: megabytes of a request without its objects.

A document is as in `protocol.documents`, with bytes for `bytes` and `records`. It can contain three more values:

    Repeated({"Name": "t"}, 1000)               an array of a thousand equal elements
    Repeated({"Name": NUMBERED_NAME}, 1000)     an array whose elements are numbered, here in their names
    {..., UNKNOWN_TAGS: Tags(1000, b"x")}       a thousand unknown tagged fields of one byte each

The bytes come from the declared schema, field by field, not from the compiled writers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.documents import UNKNOWN_TAGS
from odradek.protocol.primitives import unsigned_varint
from odradek.protocol.schema import FIXED, Field, Message

NUMBERED_NAME = "name-#NUMBER#"
NUMBERED_INTEGER = 0x4E554D23
_NUMBERS: tuple[tuple[bytes, Callable[[int], bytes]], ...] = (
    (b"#NUMBER#", lambda number: b"%08d" % number),
    (struct.pack(">i", NUMBERED_INTEGER), struct.Struct(">i").pack),
)
FIRST_UNKNOWN_TAG = 1000
"""Above every tag that Kafka knows."""


class Repeated(NamedTuple):
    """An array of `times` elements. Their numbers count from 0; those of an inner array restart in each element."""

    element: Any
    times: int


class Tags(NamedTuple):
    """`number` unknown tagged fields, ascending, all with the same value."""

    number: int
    value: bytes


def encoded(cls: type[Message], version: int, document: Mapping[str, Any]) -> bytes:
    """The encoded message. Raises KeyError if the document lacks a field of the version."""
    return _structure(cls, version, document, version in cls.__schema__.flexible)


def encoded_element(cls: type[Message], version: int, field: Field, element: Any) -> bytes:
    """One element of an array of the message `cls`."""
    return _element(field, element, version, version in cls.__schema__.flexible)


def encoded_tags(tags: Tags) -> bytes:
    value = unsigned_varint(len(tags.value)) + tags.value
    numbers = range(FIRST_UNKNOWN_TAG, FIRST_UNKNOWN_TAG + tags.number)
    return unsigned_varint(tags.number) + b"".join(unsigned_varint(tag) + value for tag in numbers)


def _structure(cls: type[Message], version: int, document: Mapping[str, Any], flexible: bool) -> bytes:
    schema = cls.__schema__
    parts = [_value(field, document[field.name], version, flexible) for field in schema.plain_fields(version)]
    if flexible:
        parts.append(encoded_tags(document.get(UNKNOWN_TAGS) or Tags(0, b"")))
    return b"".join(parts)


def _value(field: Field, value: Any, version: int, flexible: bool) -> bytes:
    if field.type in FIXED:
        return _fixed(field.type, value)
    compact = flexible and field.flexible
    if field.type == "struct":
        presence = b"" if version not in field.nullable else b"\xff" if value is None else b"\x01"
        return presence if value is None else presence + _structure(field.structure, version, value, flexible)
    if value is None:
        return _length(field.type, -1, compact)
    if field.type != "array":
        return _buffer(field.type, value, compact)
    if isinstance(value, Repeated):
        element = _element(field, value.element, version, flexible)
        return _length("array", value.times, compact) + _numbered(element, value.times)
    elements = [_element(field, element, version, flexible) for element in value]
    return _length("array", len(elements), compact) + b"".join(elements)


def _element(field: Field, element: Any, version: int, flexible: bool) -> bytes:
    if field.struct_class is not None:
        return _structure(field.struct_class, version, element, flexible)
    kind = field.element or ""
    return _fixed(kind, element) if kind in FIXED else _buffer(kind, element, flexible and field.flexible)


def _numbered(element: bytes, count: int) -> bytes:
    for mark, number_as_bytes in _NUMBERS:
        if mark in element:
            pieces = element.split(mark)
            return b"".join(_renumbered(number_as_bytes(number).join(pieces), number) for number in range(count))
    return element * count


def _renumbered(element: bytes, number: int) -> bytes:
    for mark, number_as_bytes in _NUMBERS:
        if mark in element:
            element = element.replace(mark, number_as_bytes(number))
    return element


def _fixed(kind: str, value: Any) -> bytes:
    code, _ = FIXED[kind]
    return struct.pack(f">{code}", value.bytes if isinstance(value, UUID) else value)


def _buffer(kind: str, value: Any, compact: bool) -> bytes:
    data = value.encode() if isinstance(value, str) else bytes(value)
    return _length(kind, len(data), compact) + data


def _length(kind: str, length: int, compact: bool) -> bytes:
    """-1 for null."""
    if compact:
        return unsigned_varint(length + 1)
    return struct.pack(">h" if kind == "string" else ">i", length)
