"""Compares what two brokers answer to the same requests: what may differ is made equal, the rest is a difference.

Responses are documents (see `protocol.documents`), with the specification's names.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from odradek.clients.recording.decoding import Document
from odradek.protocol.records import iter_batches, read_records

ZERO_ID = "00000000-0000-0000-0000-000000000000"
DAY_MS = 86_400_000

Rules = Mapping[str, Callable[[Any], Any]]
"""What is done to the values of a field, by its name."""


def rules_at(*now_ms: Callable[[], float]) -> Rules:
    """Returns what makes messages, ids, ports and current times equal. `now_ms` are the times of the responses."""

    def time(value: int) -> Any:
        return "NOW" if any(abs(value - now()) < DAY_MS for now in now_ms) else value

    return {
        "ErrorMessage": _or_text("TEXT"),
        "BatchIndexErrorMessage": _or_text("TEXT"),
        "Documentation": _or_text("TEXT"),
        "TopicId": lambda value: value if value == ZERO_ID else "ID",
        "ClusterId": _or_text("CLUSTER"),
        "Port": lambda value: value if value <= 0 else "PORT",
        "SessionId": _or_text("SESSION"),
        "LogDir": _or_text("DIRECTORY"),
        "LogAppendTimeMs": time,
        "MemberId": _member,
        "Leader": _member,
        "Timestamp": time,
        "LastTimestamp": time,
        "ProducerId": lambda value: value if value < 0 else "PRODUCER",
        "Records": lambda value: _records(value, time),
    }


def comparable(response: Any, rules: Rules) -> Any:
    """Applies the rules, and sorts arrays of structures."""
    if isinstance(response, list):
        items = [comparable(item, rules) for item in response]
        return sorted(items, key=_order) if items and isinstance(items[0], dict) else items
    if isinstance(response, dict):
        return {key: _comparable_field(key, value, rules) for key, value in response.items()}
    return response


def _comparable_field(key: str, value: Any, rules: Rules) -> Any:
    rule = rules.get(key)
    return comparable(value, rules) if rule is None else rule(value)


def differences(expected: Any, found: Any, path: str = "") -> Iterable[tuple[str, Any, Any]]:
    """Yields (where, expected, found) of every value that differs."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in [*expected, *(key for key in found if key not in expected)]:
            yield from differences(expected.get(key, "nothing"), found.get(key, "nothing"), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from differences(one, other, f"{path}[{_label(one, index)}]")
    elif expected != found:
        yield path, expected, found


def without_internal_of_one(one: Document, other: Document) -> tuple[Document, Document]:
    """Leaves the internal topics out of two Metadata responses that only one of them has: brokers create them when
    somebody first needs them.
    """
    common = _internal(one) & _internal(other)

    def compared(response: Document) -> Document:
        topics = [topic for topic in response["Topics"] if not topic.get("IsInternal") or topic["Name"] in common]
        return {**response, "Topics": topics}

    return compared(one), compared(other)


def without_offsets(response: Document) -> Document:
    """Leaves the offsets out of a ListOffsets response."""

    def compared(topic: Document) -> Document:
        partitions = [{name: value for name, value in each.items() if name != "Offset"} for each in topic["Partitions"]]
        return {**topic, "Partitions": partitions}

    return {**response, "Topics": [compared(topic) for topic in response["Topics"]]}


def _internal(response: Document) -> set[str]:
    return {topic["Name"] for topic in response["Topics"] if topic.get("IsInternal")}


def _or_text(placeholder: str) -> Callable[[Any], Any]:
    return lambda value: placeholder if value else value


def _member(value: Any) -> Any:
    """A member id ends with a random id of the broker. (The leader of a partition is a number.)"""
    return re.sub(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "-ID", value) if isinstance(value, str) else value


def _records(value: str | None, time: Callable[[int], Any]) -> Any:
    """The bytes of batches, without times that the broker wrote; an incomplete batch by its length."""
    if not value:
        return value
    data = base64.b64decode(value)
    found: list[Any] = []
    end = 0
    for position, header in iter_batches(data):
        end = position + header.size_in_bytes
        whole = data[position:end]
        if header.timestamp_type:
            records = [
                (each.offset, each.key, each.value, each.headers) for each in read_records(data, position, header)
            ]
            whole = repr((header.base_offset, time(header.max_timestamp), records)).encode()
        found.append(whole.hex())
    return [*found, len(data) - end]


_IDENTITIES = (
    "Name",
    "Topic",
    "ResourceName",
    "GroupId",
    "MemberId",
    "PartitionIndex",
    "Partition",
    "Index",
    "Key",
    "ApiKey",
    "TopicId",
)


def _order(item: Any) -> tuple[str, str]:
    """The sort key of an item: its name, so that items with the same name are compared."""
    return _label(item, 0), repr(item)


def _label(item: Any, index: int) -> str:
    if isinstance(item, dict):
        for key in _IDENTITIES:
            if key in item:
                return str(item[key])
    return str(index)
