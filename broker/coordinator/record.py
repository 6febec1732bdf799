"""A coordinator's record: a key and a value of an internal topic, each a message behind its int16 version.

The key's version tells of what kind a record is; the value has versions of its own. A record without value is a
tombstone: what its key names is gone.

Source: Kafka's `CoordinatorRecord`, `MessageUtil.toVersionPrefixedBytes`.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from odradek.protocol.compiler import decode_versioned, encode_versioned, versioned_version
from odradek.protocol.errors import MalformedMessage, UnsupportedMessageVersion
from odradek.protocol.schema import Message

M = TypeVar("M", bound=Message)

encode_key = encode_versioned
"""encode_key(message, version): the bytes of a key."""
encode_value = encode_versioned
"""encode_value(message, version): the bytes of a value."""


class CoordinatorRecord(NamedTuple):
    """What is appended and replayed. `value` None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def kind(self) -> int:
        """The key's version. Raises MalformedMessage where the key has not even that."""
        return versioned_version(self.key)


def decode_key(cls: type[M], key: bytes) -> M:
    """Raises MalformedMessage for a key that is cut, or of a version that this message does not have."""
    return decode_value(cls, key)[1]


def decode_value(cls: type[M], value: bytes) -> tuple[int, M]:
    """(version, message). Raises MalformedMessage as `decode_key`: who replays it passes over the record."""
    try:
        return decode_versioned(cls, value)
    except UnsupportedMessageVersion as error:
        raise MalformedMessage(str(error)) from error
