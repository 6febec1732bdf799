"""Batches of all codecs whose bodies are damaged in up to four ways, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from odradek.protocol.errors import ProtocolError
from odradek.protocol.record import record_bytes
from odradek.protocol.records import Compression, Record, read_batch_header, read_records
from tests.clients.bodies.streams import SPECIAL_PARTS, Parts, parts_of, sealed
from tests.scenarios.hostile_batches import batch_of

CODECS = tuple(Compression)


@dataclass(frozen=True, slots=True)
class Body:
    codec: Compression
    data: bytes
    record_count: int
    history: tuple[str, ...]
    """How it was made."""

    @property
    def batch(self) -> bytes:
        return batch_of(self.data, self.record_count, self.codec)

    def is_in_order(self) -> bool:
        """Whether the offsets of the records count up, if there are records."""
        try:
            records = read_records(self.batch, 0, read_batch_header(self.batch))
        except ProtocolError:
            return True
        return [record.offset for record in records] == list(range(len(records)))

    def __str__(self) -> str:
        return f"{self.codec.name} of {self.record_count} records, {', '.join(self.history)}: {self.data.hex()}"


def mutated_bodies(seed: int) -> Iterator[Body]:
    """Endless, and the same for the same seed.

    As in Kafka, the offsets of an uncompressed batch may be in any order, and clients then skip some records. So no
    body is such a batch.
    """
    rng = random.Random(seed)
    while True:
        body = _mutated_body(rng)
        if body.codec or body.is_in_order():
            yield body


def _mutated_body(rng: random.Random) -> Body:
    codec = rng.choice(CODECS)
    records = [_record(rng, delta) for delta in range(rng.randint(1, 4))]
    history: list[str] = []
    parts = parts_of(codec, _pieces(records, rng), rng)
    for _ in range(rng.choice([0, 1, 1, 2])):
        damage = rng.choice(DAMAGE_TO_PARTS)
        history.append(damage.__name__.strip("_"))
        damage(parts, codec, rng)
    body = b"".join(parts)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        change = rng.choice(DAMAGE_TO_BYTES)
        history.append(change.__name__.strip("_"))
        body = change(body, rng)
    if rng.random() < 0.7:
        body = sealed(codec, body)
    return Body(codec, body, len(records), tuple(history))


def _record(rng: random.Random, delta: int) -> bytes:
    size = rng.choice([0, 3, 20, 20, 200, 200, 2000, 2000, 70_000 if rng.random() < 0.1 else 50])
    value = rng.randbytes(size) if rng.random() < 0.5 else (b"%d,%d;" % (size, delta) * size)[:size]
    key = rng.choice([None, b"", b"key %d" % delta])
    headers: list[tuple[str, bytes | None]] = [("name", b"value")] if rng.random() < 0.2 else []
    return record_bytes(Record(offset=delta, timestamp=delta, key=key, value=value, headers=headers), delta, delta)


def _pieces(records: list[bytes], rng: random.Random) -> list[bytes]:
    """The records, cut between them or at any byte."""
    whole = b"".join(records)
    if rng.random() < 0.5:
        return records
    cuts = sorted(rng.randrange(len(whole) + 1) for _ in range(rng.randint(0, 2)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True) if start < end]


def _insert_special(parts: Parts, codec: int, rng: random.Random) -> None:
    parts.insert(rng.randint(0, len(parts)), rng.choice(SPECIAL_PARTS[codec]))


def _repeat(parts: Parts, codec: int, rng: random.Random) -> None:
    parts.insert(rng.randint(0, len(parts)), rng.choice(parts))


def _drop(parts: Parts, codec: int, rng: random.Random) -> None:
    if len(parts) > 1:
        del parts[rng.randrange(len(parts))]


def _exchange(parts: Parts, codec: int, rng: random.Random) -> None:
    one, other = rng.randrange(len(parts)), rng.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]


def _change_header(parts: Parts, codec: int, rng: random.Random) -> None:
    """Within the first 20 bytes, where flags, sizes and versions are."""
    body = b"".join(parts)
    parts[:] = [_changed_at(body, rng.randrange(min(len(body), 20)) if body else 0, rng)]


def _append_special(parts: Parts, codec: int, rng: random.Random) -> None:
    parts.append(rng.choice(SPECIAL_PARTS[codec]))


DAMAGE_TO_PARTS: list[Callable[[Parts, int, random.Random], None]] = [
    _insert_special,
    _insert_special,
    _append_special,
    _repeat,
    _drop,
    _exchange,
    _change_header,
]


def _changed_at(body: bytes, at: int, rng: random.Random) -> bytes:
    if not body:
        return body
    changed = rng.choice([body[at] ^ 1 << rng.randrange(8), rng.choice([0, 1, 0x7F, 0x80, 0xFF]), rng.randrange(256)])
    return body[:at] + bytes([changed]) + body[at + 1 :]


def _change_byte(body: bytes, rng: random.Random) -> bytes:
    return _changed_at(body, rng.randrange(len(body)) if body else 0, rng)


def _insert_byte(body: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(body))
    return body[:at] + rng.randbytes(1) + body[at:]


def _remove_byte(body: bytes, rng: random.Random) -> bytes:
    at = rng.randint(0, len(body))
    return body[:at] + body[at + 1 :]


def _cut(body: bytes, rng: random.Random) -> bytes:
    return body[: max(0, len(body) - rng.choice([1, 2, 3, 4, 8, 20]))]


def _append(body: bytes, rng: random.Random) -> bytes:
    return body + rng.randbytes(rng.choice([1, 2, 3, 4, 8, 20]))


DAMAGE_TO_BYTES: list[Callable[[bytes, random.Random], bytes]] = [
    _change_byte,
    _change_byte,
    _insert_byte,
    _remove_byte,
    _cut,
    _append,
]
