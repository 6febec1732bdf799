"""Which partition of an internal topic an id belongs to: Java's String.hashCode, as Kafka's coordinators use it."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

_INT_RANGE = 1 << 32
_SMALLEST_INT = -(1 << 31)
_LONGEST_KNOWN = 256
"""Ids that are longer are hashed each time: a client's bytes shall not fill the memory."""


def java_string_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 code units, in 32 bits, signed."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    result = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) % _INT_RANGE
    return result if result < 1 << 31 else result - _INT_RANGE


_known_hash = lru_cache(maxsize=8192)(java_string_hash)


def partition_for(key: str, partition_count: int) -> int:
    """A group's or a transactional id's partition. As `Utils.abs`, the smallest int counts as 0."""
    value = _known_hash(key) if len(key) <= _LONGEST_KNOWN else java_string_hash(key)
    return 0 if value == _SMALLEST_INT else abs(value) % partition_count
