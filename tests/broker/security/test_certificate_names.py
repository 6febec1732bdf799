"""The names of certificates and their mapping, against what Java and Kafka make of them (java_names/recorder.py)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.broker.security.certificate_fields import java_name, subject_of
from odradek.broker.security.principal_mapping import PrincipalMapping
from tests.broker.security.java_names.recorder import VECTORS, vectors
from tests.zookeeper.certificates import Authority

RECORDED: list[dict[str, Any]] = [json.loads(line) for line in VECTORS.read_text().splitlines()]
NAMES = [one for one in RECORDED if "der" in one]
MAPPINGS = [one for one in RECORDED if "rules" in one]


def mapped(rules: str, subject: str) -> str | None:
    try:
        return PrincipalMapping(rules).name_of(subject)
    except ValueError:
        return None


def test_names_are_written_as_java_writes_them() -> None:
    assert len(NAMES) > 200
    for one in NAMES:
        assert java_name(bytes.fromhex(one["der"])) == one["name"], one["der"]


def test_rules_map_names_as_in_kafka() -> None:
    assert len(MAPPINGS) > 200
    assert {one["name"] is None for one in MAPPINGS} == {True, False}
    for one in MAPPINGS:
        assert mapped(one["rules"], one["subject"]) == one["name"], (one["rules"], one["subject"])


def test_java_still_says_what_is_recorded(kafka_control: list[str]) -> None:
    assert vectors(kafka_control) == RECORDED


def test_the_subject_of_a_certificate_is_found() -> None:
    signed = Authority().sign("alice, the first")
    assert java_name(subject_of(signed.certificate.public_bytes(Encoding.DER))) == "CN=alice\\, the first"


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x03\x30\x05", b"\x30\x82\xff", b"\x30\x02\x30\x00"])
def test_what_is_no_certificate_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"unpack|cut off"):
        subject_of(data)


def test_a_group_that_does_not_take_part_is_empty() -> None:
    assert PrincipalMapping("RULE:CN=(a)?(b)/<$1$2>/").name_of("CN=b") == "<b>"


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("RULE:^CN=(.*)$/$1", "not DEFAULT or RULE"),
        ("everybody", "everybody"),
        ("RULE:(/x/", "not a regular expression"),
        ("DEFAULT RULE:a/b/", "not DEFAULT or RULE"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        PrincipalMapping(rules)
