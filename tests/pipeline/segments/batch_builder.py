"""Batches of message format 2 for tests, in any shape, valid or not."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence

from crc32c import crc32c

COMMIT, ABORT = 1, 0


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(
    delta: int, key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]] = ()
) -> bytes:
    body = b"\0" + varint(delta) + varint(delta) + field(key) + field(value) + varint(len(headers))
    body += b"".join(field(name) + field(content) for name, content in headers)
    return varint(len(body)) + body


def batch(
    base: int,
    values: Sequence[bytes | None],
    *,
    attributes: int = 0,
    producer_id: int = -1,
    payload: bytes | None = None,
    count: int | None = None,
) -> bytes:
    """Records with these values and the key 'k'. `payload` replaces their bytes, `count` the header's count."""
    if payload is None:
        payload = b"".join(record(delta, b"k", value) for delta, value in enumerate(values))
        if attributes & 7 == 1:
            payload = gzip.compress(payload)
    return wrapped(base, payload, len(values) if count is None else count, attributes, producer_id)


def marker(base: int, kind: int, producer_id: int) -> bytes:
    payload = record(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    return wrapped(base, payload, 1, 0x30, producer_id)


def wrapped(
    base: int, payload: bytes, count: int, attributes: int, producer_id: int = -1, last_delta: int | None = None
) -> bytes:
    delta = count - 1 if last_delta is None else last_delta
    checked = struct.pack(">hiqqqhii", attributes, delta, 1000, 1000 + count, producer_id, 0, 0, count) + payload
    return struct.pack(">qiibI", base, len(checked) + 9, 0, 2, crc32c(checked)) + checked
