"""Records of `__consumer_offsets` and `__transaction_state` as text, for a dump (Kafka 4's OffsetsMessageParser and
TransactionLogMessageParser).

A key starts with an int16 record type; a value with its own version. A record that cannot be read is reported in its
place.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.compiler import decode, versioned_version
from odradek.protocol.documents import to_document
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.registry import message_class
from odradek.protocol.primitives import uuid_text
from odradek.protocol.records import Record
from odradek.protocol.schema import Message

# A record's texts for key and value; None if it has none.
Texts = tuple[str | None, str | None]
RecordTexts = Callable[[Record], Texts]

_GROUP_RECORDS = {
    0: "OffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    9: "ShareGroupPartitionMetadata",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
"""By record type: the names of the messages, without Key and Value."""
_TRANSACTION_RECORDS = {0: "TransactionLog"}
# The names of TransactionState, indexed by the number on disk.
_TRANSACTION_STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
_DELETED = "<DELETE>"
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")


def plain_texts(record: Record) -> Texts:
    """Keys and values as UTF-8."""
    return _utf8(record.key), _utf8(record.value)


def _utf8(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")


def offsets_texts(record: Record) -> Texts:
    """Groups and their offsets, as JSON."""
    return _texts(record, _GROUP_RECORDS, _show_members)


def transaction_texts(record: Record) -> Texts:
    """Transactional ids and their states, as JSON."""
    return _texts(record, _TRANSACTION_RECORDS, _name_status)


def _texts(record: Record, names: Mapping[int, str], show: Callable[[str, dict[str, Any]], None]) -> Texts:
    """`names`: of the messages, by record type. `show` changes the value of a record, by its name."""
    try:
        if record.key is None:
            raise MalformedMessage("the record has no key")
        kind = versioned_version(record.key)
        if kind not in names:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        name = names[kind]
        _, key = _read(message_class(f"{name}Key"), record.key)
        key_text = _json({"type": str(kind), "data": key})
        if record.value is None:
            return key_text, _DELETED
        version, value = _read(message_class(f"{name}Value"), record.value)
    except MalformedMessage as error:
        return f"Error at offset {record.offset}, skipping. {error}", None
    show(name, value)
    return key_text, _json({"version": str(version), "data": value})


def _show_members(name: str, value: dict[str, Any]) -> None:
    if name == "GroupMetadata" and value["protocolType"] == "consumer":
        for member in value["members"]:
            _open(member, "subscription", ConsumerProtocolSubscription)
            _open(member, "assignment", ConsumerProtocolAssignment)


def _name_status(_name: str, value: dict[str, Any]) -> None:
    status = value["transactionStatus"]
    known = 0 <= status < len(_TRANSACTION_STATES)
    value["transactionStatus"] = _TRANSACTION_STATES[status] if known else str(status)


def _read(cls: type[Message], data: bytes) -> tuple[int, dict[str, Any]]:
    """Returns (version, document with camel-case names). Raises MalformedMessage, also for an unknown version."""
    version = versioned_version(data)
    try:
        message = decode(cls, version, data, 2)
    except MalformedMessage:
        raise
    except ValueError as error:  # the codec does not know the version
        raise MalformedMessage(str(error)) from error
    return version, _document(message, version)


def _document(message: Message, version: int) -> dict[str, Any]:
    return _as_kafka(message, to_document(message, version), version)


def _as_kafka(message: Message, document: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns a document as Kafka's JSON converters write it: with camel-case names and its own text of a uuid, without
    tagged fields that are unknown or have their default.
    """
    shown = {}
    for field in message.__schema__.fields:
        if field.name not in document:
            continue
        value, plain = getattr(message, field.attribute), document[field.name]
        if field.is_tagged_in(version) and value == field.default_value():
            continue
        if value is not None and field.element == "struct":
            plain = [_as_kafka(*each, version) for each in zip(value, plain, strict=True)]
        elif value is not None and field.type == "struct":
            plain = _as_kafka(value, plain, version)
        elif field.type == "uuid":
            plain = uuid_text(value)
        shown[field.name[:1].lower() + field.name[1:]] = plain
    return shown


def _open(member: dict[str, Any], name: str, cls: type[Message]) -> None:
    """Decodes a consumer's subscription or assignment, which the group stores as bytes; undecodable bytes are kept.

    Versions newer than ours only add fields at the end, so they are read as our newest.
    """
    try:
        data = base64.b64decode(member[name])
        known = cls.__schema__.versions
        version = min(max(versioned_version(data), known.lowest), known.highest)
        member[name] = _document(decode(cls, version, data, 2), version)
    except (MalformedMessage, TypeError):
        pass


def _json(value: object) -> str:
    """Returns a value as Kafka's JSON library writes it: the hexadecimal digits of escapes are capitals."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda found: found[0][:2] + found[0][2:].upper(), text)
