"""Kafka's primitive types that have no `struct` format: varints, text, uuids, tagged fields.

Compiled readers and writers (`protocol.compiler`) handle the common case inline and call these functions for the rest.
Reading functions take the bytes and a position and return the value and the next position; they raise
`MalformedMessage`, or `IndexError` if the bytes end too early (a compiled reader converts it to `MalformedMessage`).

They are as lenient as Kafka's reader: overlong varints are accepted up to their five or ten bytes, bits beyond the 32nd
or 64th are dropped, a negative length is null, invalid UTF-8 decodes to U+FFFD (a surrogate to one, not three). U+FFFD
has three bytes: invalid UTF-8 in a string of more than LONGEST_REPLACED bytes is refused, as it could not be encoded.
"""

from __future__ import annotations

import base64
import codecs
import re
from functools import lru_cache
from typing import Final
from uuid import UUID, SafeUUID

from odradek.protocol.errors import MalformedMessage

TEXT_ERRORS = "kafka-replace"
LONGEST_STRING = 32767
LONGEST_REPLACED = LONGEST_STRING // 3
MOST_TAGS = 1000
"""Limit on the tagged fields in one section. Kafka's messages have at most five."""
NO_LIMIT: Final = 1 << 62
"""A limit above every number of bytes or items."""
_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()
_UUID_TEXT = re.compile("[A-Za-z0-9_-]{22}")


# Varints


def continue_unsigned_varint(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Reads the rest of an unsigned varint after its first byte, which was above 127, as a signed 32-bit number."""
    byte = data[position]
    if byte < 128:
        return first & 0x7F | byte << 7, position + 1
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return _signed(value, 32), position
    raise MalformedMessage(f"a varint of more than 5 bytes before byte {position}")


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads an unsigned 32-bit varint as a signed number: above 2**31 - 1 it is negative."""
    first = data[position]
    return (first, position + 1) if first < 128 else continue_unsigned_varint(data, position + 1, first)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Reads a 32-bit ZigZag varint."""
    value, position = read_unsigned_varint(data, position)
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """Reads a 64-bit ZigZag varint."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            value &= 0xFFFFFFFFFFFFFFFF
            return (value >> 1) ^ -(value & 1), position
    raise MalformedMessage(f"a varint of more than 10 bytes before byte {position}")


def unsigned_varint(value: int) -> bytes:
    """Encodes a number from 0 to 2**32 - 1."""
    if value < 128:
        return bytes((value,))
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def varint(value: int) -> bytes:
    """Encodes a signed 32-bit number in ZigZag."""
    return unsigned_varint((value << 1) ^ (value >> 31))


def varlong(value: int) -> bytes:
    """Encodes a signed 64-bit number in ZigZag."""
    return unsigned_varint((value << 1) ^ (value >> 63))


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


# Text and lengths


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Returns the decoded rest of the string, with the same U+FFFD replacements as in Java.

    Java replaces a surrogate once, Python each of its three bytes; they agree on all other errors.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    start, data = error.start, error.object
    if len(data) > LONGEST_REPLACED:
        raise MalformedMessage(f"a string of {len(data)} bytes is not valid UTF-8 at byte {start}")
    return _SURROGATE.sub(_REPLACEMENT, data[start:]).decode("utf-8", "replace"), len(data)


codecs.register_error(TEXT_ERRORS, _replace_as_java)


def continue_string_length(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Reads the length + 1 of a compact string, like `continue_unsigned_varint`."""
    length, position = continue_unsigned_varint(data, position, first)
    if length > LONGEST_STRING + 1:
        raise MalformedMessage(f"a string of {length - 1} bytes before byte {position} exceeds {LONGEST_STRING} bytes")
    return length, position


def string_length(length: int) -> bytes:
    """Encodes the length + 1 of a compact string; ValueError above 32767 bytes."""
    if length > LONGEST_STRING + 1:
        raise ValueError(f"a string of {length - 1} bytes exceeds {LONGEST_STRING} bytes")
    return unsigned_varint(length)


# Uuids


@lru_cache(maxsize=4096)
def read_uuid(data: bytes) -> UUID:
    """Returns the uuid of 16 bytes; equal bytes share one object while it is cached."""
    value = object.__new__(UUID)
    object.__setattr__(value, "int", int.from_bytes(data, "big"))
    object.__setattr__(value, "is_safe", SafeUUID.unknown)
    return value


def uuid_text(value: UUID) -> str:
    """Returns Kafka's text of a uuid: URL-safe base64 in 22 characters."""
    return base64.urlsafe_b64encode(value.bytes)[:22].decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """Parses Kafka's 22 characters (up to 24 with padding); ValueError for anything else."""
    stripped = text.rstrip("=")
    if len(text) > 24 or not _UUID_TEXT.fullmatch(stripped):
        raise ValueError(f"{text!r} is not a uuid in base64: expected 22 letters, digits, - and _")
    return UUID(bytes=base64.urlsafe_b64decode(stripped + "=="))


def uuid_hash(value: UUID) -> int:
    """Returns Java's hash code of a Kafka uuid, a signed 32-bit number."""
    folded = (value.int >> 64) ^ (value.int & 0xFFFFFFFFFFFFFFFF)
    return _signed((folded >> 32) ^ folded, 32)


# Tagged fields


def count_of_tags(data: bytes, position: int, first: int) -> tuple[int, int]:
    """Reads the number of tagged fields in a section, after its first byte; at most MOST_TAGS, and not negative, which
    releases before 4.4 read as none.
    """
    if first < 128:
        return first, position
    count, position = continue_unsigned_varint(data, position, first)
    if not 0 <= count <= MOST_TAGS:
        raise MalformedMessage(f"{count} tagged fields before byte {position}, not 0 to {MOST_TAGS}")
    return count, position


def read_unknown_tags(data: bytes, position: int, first: int) -> tuple[list[tuple[int, bytes]], int]:
    """Reads the tag section of a structure without declared tags, after the first byte of its count."""
    count, position = count_of_tags(data, position, first)
    unknown = []
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        value, position = read_tag_value(data, position)
        unknown.append((tag & 0xFFFFFFFF, value))
    return unknown, position


def read_tag_value(data: bytes, position: int) -> tuple[bytes, int]:
    """Reads the size of an unknown tagged field and returns its bytes."""
    size, position = _tag_size(data, position)
    return data[position : position + size], position + size


def skip_tag_value(data: bytes, position: int) -> int:
    """Returns the position after an unknown tagged field's size and bytes."""
    size, position = _tag_size(data, position)
    return position + size


def _tag_size(data: bytes, position: int) -> tuple[int, int]:
    size, position = read_unsigned_varint(data, position)
    if not 0 <= size <= len(data) - position:
        raise MalformedMessage(f"a tagged field of {size} bytes at byte {position}; {len(data) - position} are left")
    return size, position


def tag_section(known: list[tuple[int, bytes]], unknown: list[tuple[int, bytes]] | None) -> bytes:
    """Encodes the count, then each tag, size and value, ascending.

    ValueError if unknown tags do not ascend, or are above 2^31 - 1: for Kafka a tag is an int.
    """
    fields = known
    if unknown:
        tags = [tag for tag, _ in unknown]
        fields = sorted(known + unknown, key=lambda field: field[0])
        if tags != sorted(tags) or tags[-1] >= 1 << 31 or len({tag for tag, _ in fields}) < len(fields):
            raise ValueError(f"unknown tagged fields must ascend, not repeat, and be below 2^31: {tags}")
    parts = [unsigned_varint(len(fields))]
    for tag, value in fields:
        parts += (unsigned_varint(tag), unsigned_varint(len(value)), value)
    return b"".join(parts)
