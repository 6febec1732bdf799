"""Reads DER, the encoding of certificates: as much of it as their names need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VERSION = 0xA0
"""The tag of a certificate's version, which may be missing."""


class Element(NamedTuple):
    """One element: its tag, the bytes of its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def certificate_fields(certificate: bytes) -> list[Element]:
    """Returns the fields of a certificate from its serial number on. Raises ValueError if it is cut off."""
    (whole,) = elements(certificate)
    signed, _, _ = elements(whole.content)
    return [field for field in elements(signed.content) if field.tag != VERSION]


def object_identifier(content: bytes) -> str:
    """Returns an object identifier in dotted form."""
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def elements(data: bytes) -> Iterator[Element]:
    """Yields the elements, one after the other. Raises ValueError."""
    position = 0
    while position < len(data):
        start = position
        if len(data) - position < 2:
            raise ValueError("the certificate is cut off")
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise ValueError("the certificate is cut off")
        yield Element(tag, data[position:end], data[start:end])
        position = end
