"""`<offset>.snapshot`: the producers known to the log at an offset, in Kafka's format (ProducerStateManager, version
1).

int16 version, uint32 CRC-32C of everything after it, int32 count, then per producer (big-endian): int64 id, int16
epoch, int32 last sequence, int64 last offset, int32 offset delta of the last batch, int64 last timestamp (ms), int32
coordinator epoch, int64 first offset of the open transaction (-1: none). The file has only the last batch of a
producer; memory has the last five.
"""

import struct
from collections.abc import Collection

from crc32c import crc32c

from odradek.storage.producers.producer_state_entry import BatchMetadata, ProducerStateEntry

VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CHECKED_FROM = 6


class CorruptSnapshot(Exception):
    """The snapshot is damaged. The state is rebuilt from an earlier snapshot and the log."""


def read_snapshot(data: bytes) -> list[ProducerStateEntry]:
    """Raises CorruptSnapshot if the version is unknown, the checksum does not match, or the count exceeds the data."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} of a producer snapshot is unknown")
    if crc32c(memoryview(data)[_CHECKED_FROM:]) != crc:
        raise CorruptSnapshot("the checksum of a producer snapshot does not match")
    if count < 0 or count * _ENTRY.size > len(data) - _HEAD.size:
        raise CorruptSnapshot(f"a producer snapshot of {len(data)} bytes is too short for {count} producers")
    return [_entry(data, _HEAD.size + number * _ENTRY.size) for number in range(count)]


def _entry(data: bytes, position: int) -> ProducerStateEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction = _ENTRY.unpack_from(
        data, position
    )
    entry = ProducerStateEntry(
        producer_id, epoch, coordinator_epoch, timestamp, transaction if transaction >= 0 else -1
    )
    if offset >= 0:
        entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
    return entry


def write_snapshot(entries: Collection[ProducerStateEntry]) -> bytes:
    parts = [struct.pack(">i", len(entries))]
    for entry in entries:
        last = entry.batches[-1] if entry.batches else BatchMetadata(-1, -1, 0, -1)
        parts.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
            )
        )
    body = b"".join(parts)
    return struct.pack(">hI", VERSION, crc32c(body)) + body
