"""Ids of topics and clusters: random, and as the 22 characters in which Kafka writes them (URL-safe base64 without
padding).
"""

from __future__ import annotations

import base64
import random
import uuid

_RESERVED = frozenset({0, 1})


def random_uuid(source: random.Random) -> uuid.UUID:
    """A version 4 id whose text does not begin with a dash, for use on command lines (Kafka's `Uuid.randomUuid`)."""
    while True:
        candidate = uuid.UUID(int=source.getrandbits(128), version=4)
        if candidate.int not in _RESERVED and not uuid_text(candidate).startswith("-"):
            return candidate


def uuid_text(value: uuid.UUID) -> str:
    """The 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> uuid.UUID:
    """The id that 22 characters stand for. Raises ValueError."""
    raw = base64.b64decode(text.encode("ascii", "replace") + b"==", altchars=b"-_", validate=True)
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not an id of 22 characters: {text!r}")
    return uuid.UUID(bytes=raw)
