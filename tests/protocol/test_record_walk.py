"""The walk over records compared with the plain reader, in compiled form and from source."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from odradek.protocol import record_walk
from odradek.protocol.record import MalformedRecord, Record, read_each, record_bytes, varint_bytes
from tests.soak import rounds

STRICTER = {record_walk.BAD_NULL, record_walk.BAD_VARINT}
"""Where the walk refuses what the reader takes, as records in a log may come from Kafka."""
ROUNDS = rounds(3_000, in_soak=40_000)
IN_PIECES = rounds(80, in_soak=4_000)
EDGES = [0, 1, -1, 63, 64, -64, -65, 8191, 8192, -8193, 1 << 20, 1 << 27, 1 << 28, -(1 << 28) - 1, 1 << 34, 1 << 62]


@pytest.fixture(scope="module")
def source() -> ModuleType:
    """The source module record_walk.py, whichever form is loaded."""
    file = Path(__file__).parents[2] / "protocol" / "record_walk.py"
    spec = spec_from_file_location("record_walk_source", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walked(module: ModuleType, data: bytes, end: int, count: int, items: int = 1 << 40) -> tuple[int, ...]:
    """The result of a walk from the start of the data, `items` at a time."""
    walk = module.RecordWalk(data, 0, end, count)
    while not walk.take(items):
        pass
    return walk.outcome, walk.index, walk.least, walk.most, walk.without_key, walk.out_of_sequence


def refused_of(module: ModuleType, data: bytes, count: int, items: int) -> list[tuple[int, bool, int]]:
    """The first two records without a key or with a timestamp delta that is neither from -5 to 100 nor 2 ** 40."""
    search = module.RefusedRecords(data, 0, count, True, -5, 100, 1 << 40, 2)
    while not search.take(items):
        pass
    return search.found  # type: ignore[no-any-return]


def in_pieces(module: ModuleType, data: bytes, cuts: Iterable[int], count: int, items: int) -> tuple[int, ...]:
    """The result of a walk over the data cut at these positions, and then an empty last piece. Of a walk that fails,
    the statistics are left out: they depend on how far it has read.
    """
    walk = module.RecordWalk(b"", 0, 0, count, True)
    for piece, is_last in cut(data, cuts):
        walk.feed(piece, is_last)
        while not walk.take(items):
            pass
        if walk.has_failed:
            return walk.outcome, walk.index
    return walk.outcome, walk.index, walk.least, walk.most, walk.without_key, walk.out_of_sequence


def refused_in_pieces(module: ModuleType, data: bytes, cuts: Iterable[int], count: int) -> list[tuple[int, bool, int]]:
    """`refused_of` over the data cut at these positions."""
    search = module.RefusedRecords(b"", 0, count, True, -5, 100, 1 << 40, 2, True)
    for piece, is_last in cut(data, cuts):
        search.feed(piece, is_last)
        while not search.take(2):
            pass
        if search.has_ended:
            break
    return search.found  # type: ignore[no-any-return]


def cut(data: bytes, cuts: Iterable[int]) -> list[tuple[bytes, bool]]:
    edges = [0, *cuts, len(data)]
    return [*((data[start:end], False) for start, end in itertools.pairwise(edges)), (b"", True)]


def some_cuts(chance: random.Random, size: int) -> Iterator[Iterable[int]]:
    """Each position alone, all at once, and a few at random."""
    yield from ([position] for position in range(size + 1))
    yield range(1, size)
    for _ in range(10):
        yield sorted(chance.choices(range(size + 1), k=chance.randrange(2, 9)))


def random_record(chance: random.Random, offset: int) -> bytes:
    def some_bytes(most: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randrange(most))

    headers = [(f"h{index}", some_bytes(5)) for index in range(chance.choice([0, 0, 0, 1, 3]))]
    record = Record(key=some_bytes(80), value=some_bytes(chance.choice([3, 70, 300])), headers=headers)
    return record_bytes(record, offset, chance.choice([0, 1, -3, 64, -70, 9000, 1 << 40]))


def damaged(chance: random.Random, data: bytes) -> bytes:
    damage = bytearray(data)
    for _ in range(chance.randrange(3)):
        position = chance.randrange(len(damage))
        damage[position] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, damage[position] ^ (1 << chance.randrange(8))])
    kind = chance.randrange(6)
    if kind == 0:
        del damage[chance.randrange(len(damage)) :]
    elif kind == 1:
        damage += chance.randbytes(3)
    return bytes(damage)


@pytest.mark.soak("40,000 damaged batches", minutes=0.2)
def test_the_walk_accepts_and_refuses_the_same_bytes_as_the_reader(source: ModuleType) -> None:
    chance = random.Random(20_260)
    taken = 0
    for _ in range(ROUNDS):
        count = chance.randrange(1, 6)
        data = damaged(chance, b"".join(random_record(chance, chance.choice([index, 70])) for index in range(count)))
        counted = max(0, count + chance.choice([0, 0, 0, 0, 1, -1]))
        found = walked(record_walk, data, len(data), counted)
        outcome, index, least, most, without_key, out_of_sequence = found
        for items in (1, 2, 3, 1 << 40):
            assert walked(source, data, len(data), counted, items) == found
            assert walked(record_walk, data, len(data), counted, items) == found
        try:
            records = list(read_each(data, 0, counted, 0, 0, -1, None))
        except MalformedRecord:
            assert outcome != record_walk.WHOLE, data.hex()
            continue
        if counted == 0:
            assert outcome == (record_walk.BYTES_LEFT_IN_BATCH if data else record_walk.WHOLE)
            continue
        taken += 1
        if outcome in STRICTER:
            continue
        assert outcome == record_walk.WHOLE, data.hex()
        assert index == counted
        assert least == min(record.timestamp for record in records)
        assert most == max(record.timestamp for record in records)
        assert without_key == sum(record.key is None for record in records)
        assert out_of_sequence == sum(record.offset != place for place, record in enumerate(records))
        refused = refused_of(source, data, counted, 1)
        assert refused == refused_of(record_walk, data, counted, 1 << 40)
        assert (
            refused
            == [
                (place, record.key is None, record.timestamp)
                for place, record in enumerate(records)
                if record.key is None or (not -5 <= record.timestamp <= 100 and record.timestamp != 1 << 40)
            ][:2]
        )
    assert taken > ROUNDS / 10


@pytest.mark.soak("4,000 damaged batches, cut at every position", minutes=0.5)
def test_a_walk_in_pieces_has_the_result_of_a_walk_over_the_whole(source: ModuleType) -> None:
    """Wherever the records are cut, and however many turns a piece takes."""
    chance = random.Random(30)
    outcomes: Counter[int] = Counter()
    for _ in range(IN_PIECES):
        count = chance.randrange(1, 5)
        records = [random_record(chance, index) for index in range(count)]
        if chance.random() < 0.5:
            records[-1] = record_with_headers(chance, count - 1)
        data = damaged(chance, b"".join(records))
        counted = max(0, count + chance.choice([0, 0, 0, 0, 1, -1]))
        found = walked(record_walk, data, len(data), counted)
        outcomes[found[0]] += 1
        is_whole = found[0] == record_walk.WHOLE
        refused = refused_of(record_walk, data, counted, 9) if is_whole else []
        for cuts in some_cuts(chance, len(data)):
            expected = found if is_whole else found[:2]
            assert in_pieces(record_walk, data, cuts, counted, chance.choice([1, 1 << 40])) == expected, data.hex()
            assert in_pieces(source, data, cuts, counted, chance.choice([1, 1 << 40])) == expected, data.hex()
            if is_whole:
                assert refused_in_pieces(record_walk, data, cuts, counted) == refused
                assert refused_in_pieces(source, data, cuts, counted) == refused
    assert outcomes[record_walk.WHOLE] > IN_PIECES / 10
    assert len(outcomes) > record_walk.BAD_NULL / 2


def record_with_headers(chance: random.Random, offset: int) -> bytes:
    headers = [("h" * chance.randrange(4), chance.choice([None, b"", b"v"])) for _ in range(chance.randrange(12))]
    delta = chance.choice([0, (1 << 63) - 1, -(1 << 63)])
    return record_bytes(Record(key=b"k" * chance.randrange(90), headers=headers), offset, delta)


def test_a_walk_in_pieces_keeps_no_bytes_of_a_long_key_or_value() -> None:
    """A record of 128 MB would be in memory, and copied with every piece."""
    piece = 1 << 14
    long = b"x" * (40 * piece)
    data = record_bytes(Record(key=long, value=long, headers=[("h" * 40 * piece, long)]), 0, 0)
    walk = record_walk.RecordWalk(b"", 0, 0, 1, True)
    tracemalloc.start()
    try:
        for start in range(0, len(data), piece):
            walk.feed(data[start : start + piece], start + piece >= len(data))
            assert walk.take(1 << 40)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (walk.outcome, walk.index) == (record_walk.WHOLE, 1)
    assert peak < 4 * piece


def record_of(
    key: bytes = b"\x02k", value: bytes = b"\x02v", headers: bytes = b"\x02\x02h\x02x", offset: bytes = b"\0"
) -> bytes:
    """A record of these encoded fields, each with its length."""
    fields = b"\0\0" + offset + key + value + headers
    return varint_bytes(len(fields)) + fields


def with_high_bits(varint: bytes) -> bytes:
    """The varint in five bytes, with all bits beyond the 32 set."""
    number = int.from_bytes(varint, "little")
    return bytes([number | 0x80, 0x80, 0x80, 0x80, 0x70])


@pytest.mark.parametrize("form", ["compiled or not", "source"])
@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({}, record_walk.WHOLE),
        ({"key": b"\x01", "value": b"\x01", "headers": b"\x02\x02h\x01"}, record_walk.WHOLE),
        ({"key": b"\x03"}, record_walk.BAD_NULL),
        ({"value": b"\x5b"}, record_walk.BAD_NULL),
        ({"headers": b"\x02\x02h\x03"}, record_walk.BAD_NULL),
        ({"headers": b"\x10" + b"\x02h\x03" * 8}, record_walk.BAD_NULL),
        ({"offset": b"\x80\x80\x80\x80\0"}, record_walk.WHOLE),
        ({"offset": with_high_bits(b"\0")}, record_walk.BAD_VARINT),
        ({"key": with_high_bits(b"\x02") + b"k"}, record_walk.BAD_VARINT),
        ({"key": with_high_bits(b"\x01")}, record_walk.BAD_VARINT),
        ({"value": with_high_bits(b"\x02") + b"v"}, record_walk.BAD_VARINT),
        ({"headers": with_high_bits(b"\x02") + b"\x02h\x02x"}, record_walk.BAD_VARINT),
        ({"headers": b"\x02" + with_high_bits(b"\x02") + b"h\x02x"}, record_walk.BAD_VARINT),
        ({"headers": b"\x02\x02h" + with_high_bits(b"\x02") + b"x"}, record_walk.BAD_VARINT),
    ],
)
def test_what_kafka_reads_and_librdkafka_does_not_is_refused(
    source: ModuleType, form: str, fields: dict[str, bytes], outcome: int
) -> None:
    """librdkafka does not drop bits beyond the 32, and knows no null but -1: it waits forever at such a record."""
    module = source if form == "source" else record_walk
    data = record_of(**fields)
    assert walked(module, data, len(data), 1)[0] == outcome
    assert len(list(read_each(data, 0, 1, 0, 0, -1, None))) == 1


def test_a_record_length_with_bits_beyond_the_32_is_refused(source: ModuleType) -> None:
    data = record_of()
    data = with_high_bits(data[:1]) + data[1:]
    assert walked(source, data, len(data), 1)[0] == walked(record_walk, data, len(data), 1)[0] == record_walk.BAD_VARINT


@pytest.mark.parametrize("delta", [*EDGES, *(-edge for edge in EDGES), (1 << 63) - 1, -(1 << 63)])
def test_timestamp_deltas_of_every_length_are_found(source: ModuleType, delta: int) -> None:
    data = record_bytes(Record(value=b"v"), 0, delta) + record_bytes(Record(value=b"v"), 1, 0)
    expected = (record_walk.WHOLE, 2, min(delta, 0), max(delta, 0), 2, 0)
    assert walked(record_walk, data, len(data), 2) == expected
    assert walked(source, data, len(data), 2) == expected


@pytest.mark.parametrize("offset", [-1, 63, 64, 8192, 2_000_000, 300_000_000, 2_147_483_647, -2_147_483_648])
def test_an_offset_delta_that_is_not_the_index_is_counted(source: ModuleType, offset: int) -> None:
    data = record_bytes(Record(key=b"k"), offset, 0)
    expected = (record_walk.WHOLE, 1, 0, 0, 0, 1)
    assert walked(record_walk, data, len(data), 1) == expected
    assert walked(source, data, len(data), 1) == expected


def test_the_expected_offset_delta_of_every_index_is_recognized() -> None:
    data = b"".join(record_bytes(Record(key=b"k"), index, index) for index in range(20_000))
    assert walked(record_walk, data, len(data), 20_000) == (record_walk.WHOLE, 20_000, 0, 19_999, 0, 0)


@pytest.mark.parametrize("form", ["compiled or not", "source"])
def test_nothing_is_read_beyond_the_given_end(source: ModuleType, form: str) -> None:
    module = source if form == "source" else record_walk
    data = record_bytes(Record(key=b"key", value=b"value", headers=[("h", b"x")]), 0, 0)
    for end in range(len(data)):
        assert walked(module, data, end, 1)[0] != record_walk.WHOLE
    assert walked(module, data, 10**9, 1)[0] == record_walk.WHOLE
    assert walked(module, data[:0], 0, 1)[0] == record_walk.TOO_FEW_RECORDS


@pytest.mark.parametrize("form", ["compiled or not", "source"])
def test_a_piece_of_a_walk_is_limited_in_records_and_headers(source: ModuleType, form: str) -> None:
    module = source if form == "source" else record_walk
    many_headers = record_bytes(Record(key=b"k", headers=[("h", None)] * 100), 0, 0)
    data = many_headers + b"".join(record_bytes(Record(key=b"k"), index, 0) for index in range(1, 50))
    walk, pieces = module.RecordWalk(data, 0, len(data), 50), 1
    while not walk.take(10):
        pieces += 1
    assert (walk.outcome, walk.index, walk.out_of_sequence, pieces) == (record_walk.WHOLE, 50, 0, 15)


def test_varints_are_zigzag() -> None:
    assert [varint_bytes(value).hex() for value in (0, -1, 1, -64, 64, 300)] == ["00", "01", "02", "7f", "8001", "d804"]
