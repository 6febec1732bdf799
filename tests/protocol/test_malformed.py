"""Damaged bodies are decoded or refused as by Apache Kafka's reader; and the cost of a refusal."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from odradek.protocol.compiler import decode, encode, read
from odradek.protocol.errors import MalformedMessage, UnsupportedMessageVersion, UnwritableMessage
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.registry import message_class
from odradek.protocol.messages.sasl import SaslHandshakeRequest
from odradek.protocol.primitives import LONGEST_REPLACED
from tests.protocol.vector_files import MESSAGE_FILES, message_vectors
from tests.soak import rounds

DAMAGED = list(message_vectors("malformed"))
DAMAGES = sorted({line["damage"] for line in DAMAGED})


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_bytes_are_decoded_or_refused_as_by_kafka(damage: str) -> None:
    for line in DAMAGED:
        if line["damage"] != damage:
            continue
        cls, version, data, java = (
            message_class(line["name"]),
            line["version"],
            bytes.fromhex(line["hex"]),
            line["java"],
        )
        if "exception" in java:
            with pytest.raises(MalformedMessage):
                read(cls, version, data)
            continue
        message, end = read(cls, version, data)
        assert len(data) - end == java["rest"], line
        if "againException" in java:
            with pytest.raises(UnwritableMessage):
                encode(message, version)
        else:
            assert encode(message, version).hex() == java["again"], line


def test_the_damaged_vectors_are_many_and_have_both_outcomes() -> None:
    refused = [line for line in DAMAGED if "exception" in line["java"]]
    assert len(DAMAGED) > 700
    assert len(DAMAGES) == 44
    assert 100 < len(refused) < len(DAMAGED) - 100


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xbf\xbf\xed\xa0\x80!", "\ufffd\ufffd!"),
        (b"\xed", "\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
        (b"\xe4\xbd", "\ufffd"),
        (b"\xf0\x9f\x99\x82", "\U0001f642"),
        (b"\xf8\x88\x80\x80\x80", "\ufffd" * 5),
    ],
)
def test_bad_utf8_becomes_replacement_characters_as_in_java(data: bytes, text: str) -> None:
    body = len(data).to_bytes(2, "big") + data
    assert decode(SaslHandshakeRequest, 0, body).mechanism == text


def test_bad_utf8_that_cannot_be_written_back_is_refused() -> None:
    longest = b"\xff" * LONGEST_REPLACED
    decoded = decode(SaslHandshakeRequest, 0, len(longest).to_bytes(2, "big") + longest)
    assert decode(SaslHandshakeRequest, 0, encode(decoded, 0)) == decoded
    longer = longest + b"\xff"
    with pytest.raises(MalformedMessage, match="not valid UTF-8"):
        decode(SaslHandshakeRequest, 0, len(longer).to_bytes(2, "big") + longer)


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_built() -> None:
    def refused() -> None:
        for version, data in ((1, b"\x7f\xff\xff\xff\x00\x01A"), (9, b"\xff\xff\xff\xff\x07\x02A\x00")):
            with pytest.raises(MalformedMessage):
                decode(MetadataRequest, version, data)

    refused()  # the first time, the decoders of these versions are compiled
    tracemalloc.start()
    try:
        refused()
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_a_tag_section_that_claims_billions_of_fields_is_refused() -> None:
    with pytest.raises(MalformedMessage):
        decode(ApiVersionsRequest, 3, b"\x02A\x02A\xff\xff\xff\xff\x07" + b"\x05\x00" * 1000)


def test_an_error_names_the_message_the_field_and_the_position() -> None:
    with pytest.raises(MalformedMessage, match=r"^FetchRequest v11 Topics: 9 elements in the remaining 2 bytes$"):
        decode(FetchRequest, 11, bytes(28) + b"\x09\x00\x00")
    with pytest.raises(MalformedMessage, match="SaslHandshakeRequest v0 Mechanism: null before byte 2"):
        decode(SaslHandshakeRequest, 0, b"\xff\xff")
    with pytest.raises(MalformedMessage, match="SaslHandshakeRequest v0: truncated at byte 3"):
        decode(SaslHandshakeRequest, 0, b"\x00\x05A")


def test_an_unknown_version_is_refused_by_name() -> None:
    for version in (-1, 19, 32767):
        with pytest.raises(UnsupportedMessageVersion, match="FetchRequest has versions 0 to 18"):
            decode(FetchRequest, version, b"")
        with pytest.raises(UnsupportedMessageVersion):
            encode(FetchRequest(), version)


@pytest.mark.soak("2,000 changed vectors of each message", minutes=0.5)
@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_randomly_changed_bytes_are_decoded_or_refused(name: str) -> None:
    """Decoded values can be encoded, unless unknown tags are out of order; encoded bytes decode to the same value."""
    chance = random.Random(name)
    cls = message_class(name)
    vectors = [(line["version"], bytes.fromhex(line["hex"])) for line in message_vectors(name)]
    for _ in range(rounds(300, in_soak=2000)):
        version, data = chance.choice(vectors)
        changed = bytearray(data[:3000])
        for _ in range(chance.randint(1, 4)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            message, _ = read(cls, version, bytes(changed))
            again = encode(message, version)
        except (MalformedMessage, UnwritableMessage):
            continue
        assert encode(decode(cls, version, again), version) == again
