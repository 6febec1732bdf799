"""Messages as JSON documents and back, for users, scripts and test vectors.

A document holds every field that exists in the version, under the name in Kafka's specification, including tagged
fields. bool and integers are JSON values; float64 is a number or the text NaN, Infinity or -Infinity; bytes and records
are base64; a uuid is its canonical text; null is null. A structure's unknown tagged fields are under
`_unknownTaggedFields` as `[{"tag": 7, "data": "<base64>"}]`, in ascending order.

Reading a document is strict about names and types (`BadDocument` names the place) and lenient about omissions: a
missing field gets Kafka's default.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from odradek.protocol.compiler import check_version
from odradek.protocol.schema import FIXED, Field, Message

UNKNOWN_TAGS = "_unknownTaggedFields"
_FLOAT_TEXTS = ("NaN", "Infinity", "-Infinity")
_UNSIGNED = ("uint16", "uint32")
_INTEGERS = ("int8", "int16", "int32", "int64", *_UNSIGNED)

M = TypeVar("M", bound=Message)


class BadDocument(ValueError):
    """The document does not fit the message: an unknown field, or a value of the wrong type."""


def to_document(message: Message, version: int) -> dict[str, Any]:
    """Returns the document of a message in a supported version."""
    check_version(type(message), version)
    return _structure_to_document(message, version)


def from_document(cls: type[M], version: int, document: object) -> M:
    """Returns the message of a document in a supported version."""
    check_version(cls, version)
    return _structure_from_document(cls, version, document, cls.__schema__.name)


# To documents


def _structure_to_document(message: Message, version: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for field in message.__schema__.fields:
        if version in field.versions:
            document[field.name] = _value_to_document(field, getattr(message, field.attribute), version)
    if message.unknown_tagged_fields:
        document[UNKNOWN_TAGS] = [
            {"tag": tag, "data": _base64_text(data)} for tag, data in message.unknown_tagged_fields
        ]
    return document


def _value_to_document(field: Field, value: Any, version: int) -> Any:
    if field.type == "array":
        if value is None:
            return None
        if field.element == "struct":
            return [_structure_to_document(element, version) for element in value]
        return [_plain_to_document(field.element or "", element) for element in value]
    if field.type == "struct":
        if value is None and version not in field.nullable:
            value = field.structure()
        return None if value is None else _structure_to_document(value, version)
    return _plain_to_document(field.type, value)


def _plain_to_document(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind in ("bytes", "records"):
        return _base64_text(value)
    if kind == "uuid":
        return str(value)
    if kind == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _base64_text(data: Any) -> str:
    return base64.b64encode(data).decode("ascii")


# From documents


def _structure_from_document(cls: type[M], version: int, document: object, where: str) -> M:
    if not isinstance(document, Mapping):
        raise BadDocument(f"{where}: expected an object, not {_shown(document)}")
    message = cls()
    rest = dict(document)
    for field in cls.__schema__.fields:
        if version in field.versions and field.name in rest:
            place = f"{where}.{field.name}"
            setattr(message, field.attribute, _value_from_document(field, rest.pop(field.name), version, place))
    if UNKNOWN_TAGS in rest:
        message.unknown_tagged_fields = _tags_from_document(rest.pop(UNKNOWN_TAGS), where)
    if rest:
        known = ", ".join(field.name for field in cls.__schema__.fields if version in field.versions)
        raise BadDocument(
            f"{where} has no {', '.join(map(str, rest))} in version {version}; it has {known or 'no fields'}"
        )
    return message


def _value_from_document(field: Field, value: Any, version: int, where: str) -> Any:
    if value is None:
        if version not in field.nullable:
            raise BadDocument(f"{where}: null is not allowed")
        return None
    if field.type == "struct":
        return _structure_from_document(field.structure, version, value, where)
    if field.type != "array":
        return _plain_from_document(field.type, value, where)
    if not isinstance(value, list):
        raise BadDocument(f"{where}: expected an array, not {_shown(value)}")
    places = (f"{where}[{index}]" for index in range(len(value)))
    if field.element == "struct":
        return [
            _structure_from_document(field.structure, version, element, place)
            for element, place in zip(value, places, strict=True)
        ]
    return [
        _plain_from_document(field.element or "", element, place) for element, place in zip(value, places, strict=True)
    ]


def _plain_from_document(kind: str, value: Any, where: str) -> Any:
    read, expected = _PLAIN[kind]
    try:
        return read(value)
    except (TypeError, ValueError) as error:
        reason = f" ({error})" if str(error) else ""
        raise BadDocument(f"{where}: expected {expected} for {kind}, not {_shown(value)}{reason}") from error


def _integer_reader(kind: str) -> Callable[[Any], Any]:
    bits = 8 * FIXED[kind][1]
    lowest = 0 if kind in _UNSIGNED else -(1 << (bits - 1))
    highest = lowest + (1 << bits) - 1

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError
        if not lowest <= value <= highest:
            raise ValueError(f"allowed: {lowest} to {highest}")
        return value

    return read


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _read_base64(value: Any) -> bytes:
    return base64.b64decode(_read_text(value), validate=True)


def _read_uuid(value: Any) -> UUID:
    return UUID(_read_text(value))


def _read_float(value: Any) -> float:
    if isinstance(value, str) and value in _FLOAT_TEXTS:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)


_PLAIN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "bool": (_read_bool, "true or false"),
    "string": (_read_text, "a text"),
    "bytes": (_read_base64, "base64"),
    "records": (_read_base64, "base64"),
    "uuid": (_read_uuid, "a uuid"),
    "float64": (_read_float, "a number"),
    **{kind: (_integer_reader(kind), "a number") for kind in _INTEGERS},
}


def _tags_from_document(value: Any, where: str) -> list[tuple[int, bytes]]:
    try:
        return [(_read_tag(tag["tag"]), _read_base64(tag["data"])) for tag in value]
    except (KeyError, TypeError, ValueError) as error:
        raise BadDocument(f'{where}.{UNKNOWN_TAGS}: expected [{{"tag": 7, "data": "<base64>"}}]') from error


_read_tag = _integer_reader("uint32")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
