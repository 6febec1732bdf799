"""The name of a certificate's subject, as Java's programs write it: `X500Principal.getName()`.

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

from odradek.broker.security.der import certificate_fields, elements, object_identifier

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
