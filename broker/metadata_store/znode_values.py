"""The values of the metadata store's entries: JSON as Kafka writes it, and the limits of what requests can carry.

The `valid_...` functions return a value of JSON in its type, or raise an error that `parsed` makes StoreDamaged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from odradek.broker.metadata_store.interface import StoreDamaged

T = TypeVar("T")

LARGEST_ID = 2**31 - 1
LARGEST_EPOCH = 2**30
"""Epochs grow by one with each change, and must stay below 2**31."""
LARGEST_PORT = 65535
LONGEST_TEXT = 2**15 - 1
LONGEST_CHARACTER = 4
"""Bytes of a character in UTF-8."""
FAULTS = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What may be raised by code that reads JSON of any form."""

_JSON = json.JSONEncoder(separators=(",", ":"))


def encoded(value: Any) -> bytes:
    """Encodes a value."""
    return _JSON.encode(value).encode("ascii")


class MapText:
    """The text of a JSON object, made from parts so that a long one is encoded in steps."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, part: Mapping[str, Any]) -> None:
        """Appends fields."""
        if part:
            self._parts.append(encoded(part)[1:-1])

    def whole(self) -> bytes:
        """Returns the object."""
        return b"{%b}" % b",".join(self._parts)


def parsed(path: str, data: bytes | None, read: Callable[[Any], T]) -> T:
    """Decodes the value at `path` and returns what `read` makes of it. Raises StoreDamaged."""
    try:
        return read(json.loads((data or b"").decode()))
    except FAULTS as error:
        raise StoreDamaged(path, f"contains an invalid value: {error!r}") from error


def valid_broker_id(value: Any) -> int:
    """The id of a broker."""
    return _at_most(LARGEST_ID, value, "broker id")


def valid_epoch(value: Any) -> int:
    """The epoch of a leader or controller."""
    return _at_most(LARGEST_EPOCH, value, "epoch")


def valid_port(value: Any) -> int:
    """A port."""
    return _at_most(LARGEST_PORT, value, "port")


def valid_text(value: str) -> str:
    """A text. Halves of surrogate pairs have no UTF-8."""
    size = len(value.encode())
    if size > LONGEST_TEXT:
        raise ValueError(f"a text of {size} bytes; {LONGEST_TEXT} are allowed")
    return value


def check_texts(values: Sequence[str]) -> None:
    """Raises what `valid_text` raises for one of these."""
    "".join(values).encode()
    for value in values:
        if len(value) > LONGEST_TEXT // LONGEST_CHARACTER:
            valid_text(value)


def _at_most(largest: int, value: Any, meaning: str) -> int:
    number = int(value)
    if not 0 <= number <= largest:
        raise ValueError(f"{number} is not a valid {meaning}")
    return number
