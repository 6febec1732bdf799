"""A coordinator's record: the key and value of a record of an internal topic, each a message prefixed with its int16
version.

The key's version is the record's type; the value is versioned separately. A record without a value is a tombstone: it
deletes what its key names.

Source: Kafka's `CoordinatorRecord`, `MessageUtil.toVersionPrefixedBytes`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from odradek.protocol.compiler import decode_versioned, encode_versioned, versioned_version
from odradek.protocol.errors import MalformedMessage, UnsupportedMessageVersion
from odradek.protocol.schema import Message

M = TypeVar("M", bound=Message)

encode_key = encode_versioned
"""encode_key(message, version) returns the key's bytes."""
encode_value = encode_versioned
"""encode_value(message, version) returns the value's bytes."""


class CoordinatorRecord(NamedTuple):
    """The key and value that are appended and replayed. `value` None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def kind(self) -> int:
        """The key's version. Raises MalformedMessage if the key is too short for a version."""
        return versioned_version(self.key)


def decode_key(cls: type[M], key: bytes) -> M:
    """Returns the decoded key. Raises MalformedMessage if it is truncated or of an unsupported version."""
    return decode_value(cls, key)[1]


def decode_value(cls: type[M], value: bytes) -> tuple[int, M]:
    """Returns (version, message). Raises MalformedMessage as `decode_key` does; replay skips such a record."""
    try:
        return decode_versioned(cls, value)
    except UnsupportedMessageVersion as error:
        raise MalformedMessage(str(error)) from error
