"""Every message that Apache Kafka's own serializer wrote: decoded, encoded, truncated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odradek.protocol.compiler import (
    decode,
    decode_versioned,
    encode,
    encode_parts,
    encode_versioned,
    read,
    reader_of,
)
from odradek.protocol.documents import from_document, to_document
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.registry import API_KEYS, NAMES, message_class
from tests.protocol.vector_files import (
    COORDINATOR_FILES,
    MESSAGE_FILES,
    RELEASES,
    coordinator_vectors,
    cut_points,
    lines_of,
    message_vectors,
)

NOT_RECORDS = ["default_partitions"]
RECORD_FILES = [name for name in COORDINATOR_FILES if name not in NOT_RECORDS]


def same(document: Any, expected: Any) -> bool:
    """Whether two documents are equal as JSON: 1 is not true, and the order of fields does not matter."""
    return json.dumps(document, sort_keys=True) == json.dumps(expected, sort_keys=True)


def test_every_message_of_the_codec_has_vectors() -> None:
    assert sorted(MESSAGE_FILES + RECORD_FILES) == sorted(NAMES)
    assert list(API_KEYS) == list(range(95))


@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_a_message_has_exactly_the_versions_of_the_vectors(name: str) -> None:
    schema = message_class(name).__schema__
    vectors = list(message_vectors(name))
    versions = {vector["version"] for vector in vectors}
    assert versions == set(range(schema.versions.lowest, schema.versions.highest + 1))
    for vector in vectors:
        assert (vector["name"], vector["type"], vector["apiKey"]) == (schema.name, schema.kind, schema.api_key)
        assert vector["flexible"] == (vector["version"] in schema.flexible)


@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_every_vector_decodes_to_its_document_and_back_to_its_bytes(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        message, end = read(cls, version, data)
        assert end == len(data)
        assert same(to_document(message, version), vector["fields"]), vector
        assert encode(message, version) == data
        assert encode(from_document(cls, version, vector["fields"]), version) == data, vector


@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_a_message_is_read_from_the_middle_of_a_buffer_and_written_in_parts(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        version, data = vector["version"], bytes.fromhex(vector["hex"])
        message = decode(cls, version, b"\xff\xff\xff" + data + b"\xff", 3)
        parts: list[Any] = [b"head"]
        assert encode_parts(message, version, parts) == len(data)
        assert b"".join(parts) == b"head" + data


@pytest.mark.soak("every cut of every vector", minutes=1)
@pytest.mark.parametrize("name", MESSAGE_FILES)
def test_a_truncated_vector_is_refused(name: str) -> None:
    cls = message_class(name)
    for vector in message_vectors(name):
        data = bytes.fromhex(vector["hex"])
        reader = reader_of(cls, vector["version"])
        for size in cut_points(data):
            with pytest.raises(MalformedMessage):
                reader(data[:size], 0)


@pytest.mark.parametrize("name", RECORD_FILES)
def test_every_coordinator_record_decodes_to_its_document_and_back(name: str) -> None:
    cls = message_class(name)
    versions = set()
    for vector in coordinator_vectors(name):
        data = bytes.fromhex(vector["hex"])
        version, message = decode_versioned(cls, data)
        versions.add(version)
        assert version == vector["version"]
        assert same(to_document(message, version), vector["fields"]), vector
        assert encode_versioned(message, version) == data
        assert encode_versioned(from_document(cls, version, vector["fields"]), version) == data
    known = cls.__schema__.versions
    assert versions == set(range(known.lowest, known.highest + 1))


def test_a_version_of_a_message_has_the_vectors_of_one_release() -> None:
    for folder, names in (("messages", MESSAGE_FILES), ("coordinator_records", COORDINATOR_FILES)):
        for name in names:
            versions = [
                {line["version"] for line in lines_of(str(path))}
                for release in RELEASES
                if (path := release / folder / f"{name}.jsonl").exists()
            ]
            assert sum(map(len, versions)) == len(set().union(*versions)), name


@pytest.mark.soak("every cut of every coordinator record", minutes=0.1)
@pytest.mark.parametrize("name", RECORD_FILES)
def test_a_truncated_coordinator_record_is_refused(name: str) -> None:
    cls = message_class(name)
    for vector in coordinator_vectors(name):
        data = bytes.fromhex(vector["hex"])
        for size in cut_points(data):
            with pytest.raises(MalformedMessage):
                decode_versioned(cls, data[:size])
