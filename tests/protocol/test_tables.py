"""Error codes, API keys, header versions and uuids, compared with Apache Kafka's own tables."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.headers import request_header_version, response_header_version
from odradek.protocol.messages.registry import codec_versions, message_class, request_class, response_class
from odradek.protocol.primitives import uuid_from_text, uuid_hash, uuid_text
from tests.protocol.vector_files import table

ERRORS = table("kafka_4.4/errors.json")
APIS = table("kafka_4.4/apis.json")
BEFORE = {row["key"]: row for row in table("apis.json")}
"""The APIs of 3.9."""
UUIDS = table("uuids.json")


def test_the_error_table_is_kafkas() -> None:
    ours = [(code.value, code.name, code.retriable, code.invalid_metadata) for code in ErrorCode]
    theirs = [(row["code"], row["name"], row["retriable"], row["invalidMetadata"]) for row in ERRORS]
    assert sorted(ours) == sorted(theirs)


def test_every_error_has_a_message_of_its_own() -> None:
    sentences = [code.message for code in ErrorCode]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len(set(sentences)) == len(sentences)


def test_a_code_that_is_not_in_the_table_is_an_unknown_error() -> None:
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ErrorCode.of(30000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_protocol_error_carries_its_code_and_text() -> None:
    with_text = ProtocolError(ErrorCode.INVALID_CONFIG, "no such setting")
    assert (with_text.code, with_text.error_message) == (40, "no such setting")
    assert str(with_text) == "INVALID_CONFIG: no such setting"
    without = ProtocolError(ErrorCode.NOT_CONTROLLER)
    assert without.error_message is None
    assert ErrorCode.NOT_CONTROLLER.message in str(without)


def test_a_message_that_quotes_a_large_part_of_a_request_is_truncated() -> None:
    quoting = ProtocolError(ErrorCode.INVALID_CONFIG, "no such setting: " + "x" * 32_767)
    assert quoting.error_message is not None
    assert len(quoting.error_message) < 1100
    assert quoting.error_message.startswith("no such setting: xxx")


def test_the_api_keys_are_kafkas() -> None:
    assert {key.name: key.value for key in ApiKey} == {row["constant"]: row["key"] for row in APIS}
    assert {key.api_name for key in ApiKey} == {row["name"] for row in APIS}


@pytest.mark.parametrize("row", APIS, ids=lambda row: row["name"])
def test_the_codec_knows_the_versions_and_headers_of_an_api(row: dict[str, Any]) -> None:
    key = ApiKey(row["key"])
    stable = range(BEFORE[key]["minVersion"], BEFORE[key]["maxVersion"] + 1) if key in BEFORE else ()
    versions = sorted({*stable, *range(row["minVersion"], row["maxVersionUnstable"] + 1)})
    assert codec_versions(key) == (versions[0], versions[-1])
    assert request_class(key).__schema__.versions == response_class(key).__schema__.versions
    assert request_class(key).__schema__.flexible == response_class(key).__schema__.flexible
    for rule, name in (
        (request_header_version, "requestHeaderVersion"),
        (response_header_version, "responseHeaderVersion"),
    ):
        theirs = {**(BEFORE[key][name] if stable else {}), **row[name]}
        assert {str(version): rule(key, version) for version in versions} == theirs


def test_unknown_versions_have_headers_by_the_same_rule() -> None:
    assert [request_header_version(ApiKey.API_VERSIONS, version) for version in (-1, 4, 99)] == [1, 2, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in (-1, 4, 99)] == [0, 0, 0]
    assert request_header_version(ApiKey.SASL_HANDSHAKE, 99) == 1


def test_an_unknown_api_key_or_name_is_a_key_error() -> None:
    for key in (-1, 95, 1000):
        with pytest.raises(KeyError):
            request_class(key)
        with pytest.raises(KeyError):
            request_header_version(key, 0)
    for name in ("Fetch", "FetchRequests", "request", "Request", ""):
        with pytest.raises(KeyError):
            message_class(name)


@pytest.mark.parametrize("row", UUIDS, ids=lambda row: row["kafka"])
def test_a_uuid_has_kafkas_string_and_hash(row: dict[str, object]) -> None:
    value = UUID(str(row["uuid"]))
    assert uuid_text(value) == row["kafka"]
    assert uuid_from_text(str(row["kafka"])) == value
    assert uuid_hash(value) == row["hashCode"]


@pytest.mark.parametrize("text", ["", "abc", "A" * 21, "A" * 23, "A" * 21 + "*", "A" * 21 + "+", "é" * 22, "A" * 25])
def test_a_string_that_is_not_a_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="uuid"):
        uuid_from_text(text)
