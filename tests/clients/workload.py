"""The records that every client writes and reads back, and what the broker stored of them.

One record is ``Sent``; what a client reads back is the same type. Keys, values and headers cover null, empty, short,
long, compressible and binary.
"""

from __future__ import annotations

import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek.protocol.records import iter_batches

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
BASE_TIMESTAMP_MS = 1_700_000_000_000

Header = tuple[str, bytes | None]


def record_count(otherwise: int = 20_000) -> int:
    """Records a client writes with each codec (five times as many over all): what ODRADEK_CLIENT_RECORDS says."""
    return int(os.environ.get("ODRADEK_CLIENT_RECORDS", otherwise))


@dataclass(frozen=True, slots=True)
class Sent:
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def binary_records(count: int, *, null_headers: bool = True, seed: int = 7) -> Iterator[Sent]:
    """``count`` records of arbitrary bytes with explicit timestamps, spread over the partitions in turn.

    No null key with a null value: kafka-python and aiokafka refuse them, kafka-python null headers too.
    """
    source = random.Random(seed)
    noise = source.randbytes(4096)
    for index in range(count):
        start = source.randrange(3500)
        key = None if index % 7 == 0 and index % 13 else b"" if index % 11 == 0 else b"key-%d" % index
        if index % 13 == 0:
            value = None
        elif index % 17 == 0:
            value = b""
        elif index % 501 == 0:
            value = noise * 5
        else:
            value = (b"value %d " % index) * (index % 4) + noise[start : start + index % 90]
        yield Sent(index % PARTITIONS, BASE_TIMESTAMP_MS + index, key, value, _headers(index, noise, null_headers))


def _headers(index: int, noise: bytes, nulls: bool) -> tuple[Header, ...]:
    match index % 5:
        case 0:
            return (("trace", b"%d" % index), ("empty", b""), ("trace", noise[: index % 200]))
        case 1:
            return (("nothing", None if nulls else b"null"), ("\N{GREEK SMALL LETTER KAPPA}", "\N{SNOWMAN}".encode()))
        case _:
            return ()


def text_records(count: int) -> Iterator[Sent]:
    """``count`` records that console tools can write: a line each with key, value and a header as text; some null."""
    for index in range(count):
        key = None if index % 7 == 0 else b"key-%d" % index
        value = None if index % 13 == 0 else b"value %d " % index * (1 + index % 5)
        yield Sent(0, 0, key, value.strip() if value else value, (("number", b"%d" % index),))


def by_partition(records: Iterable[Sent]) -> dict[int, list[Sent]]:
    """Records by partition, each in the order in which they were sent."""
    result: dict[int, list[Sent]] = defaultdict(list)
    for record in records:
        result[record.partition].append(record)
    return dict(result)


def assert_same(read: Iterable[Sent], sent: Iterable[Sent]) -> None:
    """Fails unless every partition holds what was sent to it, byte for byte and in order."""
    got, wanted = by_partition(read), by_partition(sent)
    assert {p: len(r) for p, r in got.items()} == {p: len(r) for p, r in wanted.items()}
    for partition, records in wanted.items():
        for place, (left, right) in enumerate(zip(got[partition], records, strict=True)):
            assert left == right, f"partition {partition}, record {place}"


def stored_codecs(data_dir: Path, topic: str, partitions: Sequence[int]) -> Counter[str]:
    """How many bytes of batches the segments of ``topic`` hold, by the name of the batch's codec."""
    codecs: Counter[str] = Counter()
    for partition in partitions:
        segments = sorted((data_dir / f"{topic}-{partition}").glob("*.log"))
        assert segments, f"no segment of {topic}-{partition} in {data_dir}"
        for segment in segments:
            for _, header in iter_batches(segment.read_bytes()):
                codecs[CODECS[header.compression]] += header.size_in_bytes
    return codecs
