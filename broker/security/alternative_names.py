"""The names that a certificate has beside its subject's: host names, IP addresses and others."""

from __future__ import annotations

import ipaddress

from odradek.broker.security.der import certificate_fields, elements, object_identifier

EXTENSIONS = 0xA3
SUBJECT_ALTERNATIVE_NAME = "2.5.29.17"
EMAIL, DNS, URI, IP = 0x81, 0x82, 0x86, 0x87
TEXTS = {EMAIL: "email", DNS: "DNS", URI: "URI"}


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
                    return frozenset(_text(each.tag, each.content, each.whole) for each in elements(names.content))
    return frozenset()


def _text(tag: int, content: bytes, whole: bytes) -> str:
    if tag in TEXTS:
        return f"{TEXTS[tag]}:{content.decode('ascii', 'replace')}"
    if tag == IP and len(content) in (4, 16):
        return f"IP:{ipaddress.ip_address(content)}"
    return whole.hex()
