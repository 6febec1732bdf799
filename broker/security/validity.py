"""When a certificate is valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from odradek.broker.security.der import Element, certificate_fields, elements
from odradek.broker.security.distinguished_name import java_name, subject_of

UTC_TIME = 0x17
"""The tag of a time whose year has two digits: 1950 to 2049 (RFC 5280). The other kind has four."""
FIRST_YEAR = 1950


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
