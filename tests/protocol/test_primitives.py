"""Varints at the limits of their lengths, and what Kafka's reader tolerates."""

from __future__ import annotations

import pytest

from odradek.protocol.errors import MalformedMessage
from odradek.protocol.primitives import (
    read_unsigned_varint,
    read_varint,
    read_varlong,
    tag_section,
    unsigned_varint,
    varint,
    varlong,
)

STEPS = sorted({(1 << bits) + near for bits in range(64) for near in (-2, -1, 0, 1)})


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (300, "ac02"),
        (16383, "ff7f"),
        (16384, "808001"),
        (0xFFFFFFFF, "ffffffff0f"),
    ],
)
def test_an_unsigned_varint_has_seven_bits_per_byte_lowest_first(value: int, encoded: str) -> None:
    assert unsigned_varint(value).hex() == encoded


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (64, "8001"), ((1 << 31) - 1, "feffffff0f")],
)
def test_zigzag_interleaves_negative_and_positive_numbers(value: int, encoded: str) -> None:
    assert varint(value).hex() == encoded
    assert varlong(value).hex() == encoded


def test_varints_of_all_lengths_are_read_back() -> None:
    for step in STEPS:
        for value in (step, -step):
            if 0 <= value < 1 << 31:
                data = unsigned_varint(value)
                assert read_unsigned_varint(b"?" + data + b"?", 1) == (value, 1 + len(data))
            if -(1 << 31) <= value < 1 << 31:
                data = varint(value)
                assert read_varint(b"?" + data + b"?", 1) == (value, 1 + len(data))
            if -(1 << 63) <= value < 1 << 63:
                data = varlong(value)
                assert read_varlong(b"?" + data + b"?", 1) == (value, 1 + len(data))


def test_an_unsigned_varint_above_31_bits_is_a_negative_number_as_in_java() -> None:
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (-1, 5)
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x7f", 0) == (-1, 5)
    assert read_unsigned_varint(b"\x80\x80\x80\x80\x08", 0) == (-(1 << 31), 5)


def test_overlong_varints_are_accepted_up_to_their_longest_form() -> None:
    assert read_unsigned_varint(b"\x81\x80\x80\x80\x00", 0) == (1, 5)
    assert read_varint(b"\x82\x00", 0) == (1, 2)
    assert read_varlong(b"\x82" + b"\x80" * 8 + b"\x00", 0) == (1, 10)
    with pytest.raises(MalformedMessage):
        read_unsigned_varint(b"\x80" * 5 + b"\x00", 0)
    with pytest.raises(MalformedMessage):
        read_varlong(b"\x80" * 10 + b"\x00", 0)


def test_a_truncated_varint_is_an_index_error() -> None:
    for read in (read_unsigned_varint, read_varint, read_varlong):
        for data in (b"", b"\x80", b"\xff\xff\xff"):
            with pytest.raises(IndexError):
                read(data, 0)


def test_a_tag_section_is_a_count_then_tag_size_and_value() -> None:
    assert tag_section([], None) == b"\x00"
    assert tag_section([(0, b"ab")], [(200, b"")]) == b"\x02\x00\x02ab\xc8\x01\x00"
    for unknown in ([(5, b""), (5, b"")], [(6, b""), (5, b"")]):
        with pytest.raises(ValueError, match="ascend"):
            tag_section([], unknown)
