"""Batches that cost a broker much more than their size, which no library sends."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import cramjam
import lz4.frame
import zstandard

from odradek.protocol.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, Compression
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.record import varint_bytes

MEBIBYTE = 1 << 20
TINY_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
"""A record without key, value and headers. Its offset delta is wrong except in first place; leaders accept that."""


def batch_of(
    body: bytes,
    count: int = 1,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """A batch with these already compressed records and a valid checksum."""
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, 0, 0, producer_id, producer_epoch, base_sequence, count)
    header.seal(body)
    return header.pack() + body


def zeros_record(size: int, value: bytes = b"") -> Iterator[bytes]:
    """One record, in pieces, whose value is `value` padded with zeros to `size` bytes."""
    fields = b"\x00\x00\x00\x01" + varint_bytes(size)
    yield varint_bytes(len(fields) + size + 1) + fields + value
    for left in range(size - len(value), 0, -MEBIBYTE):
        yield bytes(min(left, MEBIBYTE))
    yield b"\x00"


def record_of_time(timestamp_delta: int, offset_delta: int) -> bytes:
    """A record without key, value and headers."""
    fields = b"\x00" + varint_bytes(timestamp_delta) + varint_bytes(offset_delta) + b"\x01\x01\x00"
    return varint_bytes(len(fields)) + fields


def record_of_headers(count: int) -> bytes:
    """One record with `count` headers of two bytes each."""
    fields = b"\x00\x00\x00\x01\x01" + varint_bytes(count) + b"\x00\x01" * count
    return varint_bytes(len(fields)) + fields


def compressed(codec: int, pieces: Iterable[bytes]) -> bytes:
    """The pieces as one stream, compressed as much as the codec can."""
    if codec == Compression.ZSTD:
        stream = zstandard.ZstdCompressor(level=3).compressobj()
        return b"".join(map(stream.compress, pieces)) + stream.flush()
    if codec == Compression.GZIP:
        deflating = zlib.compressobj(6, zlib.DEFLATED, 31)
        return b"".join(map(deflating.compress, pieces)) + deflating.flush()
    if codec == Compression.LZ4:
        with lz4.frame.LZ4FrameCompressor(block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False) as frame:
            return bytes(frame.begin() + b"".join(map(frame.compress, pieces)) + frame.flush())
    return bytes(cramjam.snappy.compress_raw(b"".join(pieces)))


@cache
def bomb(codec: int, size: int) -> bytes:
    """A valid batch of one record that inflates to a little more than `size` bytes."""
    return batch_of(compressed(codec, zeros_record(size)), codec=codec)


def produce_of(topic: str, batches: Sequence[bytes], *, acks: int = 1, first_partition: int = 0) -> ProduceRequest:
    """A Produce with each batch for a different partition."""
    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=batch)
        for index, batch in enumerate(batches, first_partition)
    ]
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=partitions)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
