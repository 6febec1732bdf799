"""Ids of topics and clusters: random generation, and Kafka's text form of 22 characters (URL-safe base64 without
padding).
"""

from __future__ import annotations

import base64
import random
import re
import uuid

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")
_RESERVED = frozenset({0, 1})


def random_uuid(source: random.Random) -> uuid.UUID:
    """A version 4 id whose text does not start with a dash, for use on command lines (Kafka's `Uuid.randomUuid`)."""
    while True:
        candidate = uuid.UUID(int=source.getrandbits(128), version=4)
        if candidate.int not in _RESERVED and not uuid_text(candidate).startswith("-"):
            return candidate


def uuid_text(value: uuid.UUID) -> str:
    """The text of 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> uuid.UUID:
    """Parses the text of 22 characters. Raises ValueError."""
    if _TEXT.fullmatch(text) is None:
        raise ValueError(f"not an id of 22 characters: {text!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
