"""Maps an id to its partition of an internal topic with Java's String.hashCode, as Kafka's coordinators do."""

from __future__ import annotations

from functools import lru_cache
from struct import unpack

_INT_RANGE = 1 << 32
_SMALLEST_INT = -(1 << 31)
_LONGEST_KNOWN = 256
"""Longer ids are not cached, so that clients cannot fill the memory."""


def java_string_hash(text: str) -> int:
    """Returns `String.hashCode`: computed over UTF-16 code units, as a signed 32-bit integer."""
    encoded = text.encode("utf-16-le", "surrogatepass")
    result = 0
    for unit in unpack(f"<{len(encoded) // 2}H", encoded):
        result = (31 * result + unit) % _INT_RANGE
    return result if result < 1 << 31 else result - _INT_RANGE


_known_hash = lru_cache(maxsize=8192)(java_string_hash)


def partition_for(key: str, partition_count: int) -> int:
    """Returns the partition of a group id or transactional id. As in `Utils.abs`, the smallest int counts as 0."""
    value = _known_hash(key) if len(key) <= _LONGEST_KNOWN else java_string_hash(key)
    return 0 if value == _SMALLEST_INT else abs(value) % partition_count
