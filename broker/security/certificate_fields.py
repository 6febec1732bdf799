"""What a certificate in DER says: whose it is, for which hosts, and from when until when.

The name of the subject is written as Java's programs write it, `X500Principal.getName()`:

    (A) The parts of a name stand in the reverse order of the certificate, separated by commas; several attributes of
        one part are joined by +, in the order of the certificate.
    (B) KEYWORDS have names; any other attribute is its number and # with the value's bytes in hexadecimal. So an
        e-mail address is 1.2.840.113549.1.9.1=#16..., where other programs write emailAddress=.
    (C) A value is text if its type is one of TEXTS, and is decoded as UTF-8 whatever the type; other types are
        hexadecimal, too.
    (D) A backslash stands before , + < > # ; " = \\ wherever they stand, and before each space or carriage return at
        either end. A null character is \\00.

Source: RFC 2253 and Java's documentation of `X500Principal`; recorded from Java in tests/vectors.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
VERSION = 0xA0
"""The tag of a certificate's version, which may be missing."""
EXTENSIONS = 0xA3
SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
EMAIL, DNS, URI, IP = 0x81, 0x82, 0x86, 0x87
NAMES = {EMAIL: "email", DNS: "DNS", URI: "URI"}
UTC_TIME = 0x17
"""The tag of a time whose year has two digits: 1950 to 2049 (RFC 5280). The other kind has four."""
FIRST_YEAR = 1950
UTF8, PRINTABLE, T61, IA5, GENERAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
TEXTS = {UTF8, PRINTABLE, T61, IA5, GENERAL, BMP}
ESCAPED = ',+<>#;"=\\'
BLANKS = " \r"


def subject_of(certificate: bytes) -> bytes:
    """Returns the subject of a certificate, both in DER. Raises ValueError."""
    _serial, _algorithm, _issuer, _validity, subject, *_ = certificate_fields(certificate)
    return subject.whole


def java_name(name: bytes) -> str:
    """Returns the text of a name in DER. Raises ValueError."""
    (sequence,) = elements(name)
    parts = [[_attribute(each.content) for each in elements(part.content)] for part in elements(sequence.content)]
    return ",".join("+".join(attributes) for attributes in reversed(parts))


def _attribute(content: bytes) -> str:
    kind, value = elements(content)
    number = object_identifier(kind.content)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """Case D."""
    inner = text.strip(BLANKS)
    if not inner:
        return "".join(f"\\{character}" for character in text)
    start = text.index(inner)
    end = start + len(inner)
    escaped = "".join("\\00" if each == "\0" else f"\\{each}" if each in ESCAPED else each for each in inner)
    return "".join((*(f"\\{each}" for each in text[:start]), escaped, *(f"\\{each}" for each in text[end:])))


def alternative_names(certificate: bytes) -> frozenset[str]:
    """Returns the names of a certificate in DER as KIND:NAME; those of other kinds as their bytes in hexadecimal.

    Raises ValueError.
    """
    for field in certificate_fields(certificate):
        if field.tag == EXTENSIONS:
            (sequence,) = elements(field.content)
            for extension in elements(sequence.content):
                number, *_, value = elements(extension.content)
                if object_identifier(number.content) == SUBJECT_ALTERNATIVE_NAME:
                    (names,) = elements(value.content)
                    return frozenset(map(_alternative, elements(names.content)))
    return frozenset()


def _alternative(name: Element) -> str:
    tag, content, whole = name
    if tag in NAMES:
        return f"{NAMES[tag]}:{content.decode('ascii', 'replace')}"
    if tag == IP and len(content) in (4, 16):
        return f"IP:{ipaddress.ip_address(content)}"
    return whole.hex()


class Dated(NamedTuple):
    """A certificate's subject, and its first and its last moment as wall times."""

    subject: str
    not_before_ms: int
    not_after_ms: int


def dated(certificate: bytes) -> Dated:
    """Returns what a certificate in DER says. Raises ValueError."""
    _serial, _algorithm, _issuer, validity, *_ = certificate_fields(certificate)
    not_before, not_after = elements(validity.content)
    return Dated(java_name(subject_of(certificate)), _milliseconds(not_before), _milliseconds(not_after))


def _milliseconds(time: Element) -> int:
    text = time.content.decode("ascii")
    if time.tag == UTC_TIME:
        year = FIRST_YEAR + (int(text[:2]) - FIRST_YEAR) % 100
        text = f"{year}{text[2:]}"
    return int(datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1000)


# --- DER, the encoding of certificates, as much of it as this needs ---------------------------------------------------


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
