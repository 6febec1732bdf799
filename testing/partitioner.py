"""The partition of a key, as Kafka's producers choose it: murmur2 of the key, without the sign.

Source: Kafka's `BuiltInPartitioner`, `Utils.murmur2`.
"""

from __future__ import annotations

SEED = 0x9747B28C
FACTOR, SHIFT = 0x5BD1E995, 24
MASK = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of a key, of so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Returns the hash as an unsigned number of 32 bits."""
    found = SEED ^ len(data)
    end = len(data) - len(data) % 4
    for position in range(0, end, 4):
        word = int.from_bytes(data[position : position + 4], "little") * FACTOR & MASK
        word = (word ^ word >> SHIFT) * FACTOR & MASK
        found = found * FACTOR & MASK ^ word
    if end < len(data):
        found = (found ^ int.from_bytes(data[end:], "little")) * FACTOR & MASK
    found = (found ^ found >> 13) * FACTOR & MASK
    return found ^ found >> 15
