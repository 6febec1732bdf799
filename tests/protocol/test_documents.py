"""JSON documents: their content, and the errors of invalid ones."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.protocol.documents import BadDocument, from_document, to_document
from odradek.protocol.errors import UnsupportedMessageVersion
from odradek.protocol.messages.client_quotas import DescribeClientQuotasResponse
from odradek.protocol.messages.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.registry import message_class


def test_missing_fields_have_kafkas_defaults() -> None:
    assert from_document(FetchRequest, 12, {}) == FetchRequest()
    assert from_document(MetadataRequest, 12, {"Topics": None}).topics is None


def test_a_document_has_default_tagged_fields_and_no_fields_of_other_versions() -> None:
    partition = FetchResponse.PartitionData()
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[partition])])
    shown = to_document(response, 12)["Responses"][0]["Partitions"][0]
    assert shown["DivergingEpoch"] == {"Epoch": -1, "EndOffset": -1}
    assert "DivergingEpoch" not in to_document(response, 11)["Responses"][0]["Partitions"][0]


@pytest.mark.parametrize(("text", "value"), [("NaN", None), ("Infinity", float("inf")), ("-Infinity", float("-inf"))])
def test_numbers_that_json_lacks_are_strings(text: str, value: float | None) -> None:
    document = {"Entries": [{"Entity": [], "Values": [{"Key": "k", "Value": text}]}]}
    message = from_document(DescribeClientQuotasResponse, 0, document)
    read = (message.entries or [])[0].values[0].value
    assert read == value if value is not None else read != read
    assert to_document(message, 0)["Entries"] == document["Entries"]


@pytest.mark.parametrize(
    ("name", "version", "document", "complaint"),
    [
        ("FetchRequest", 11, [], "FetchRequest: expected an object"),
        ("FetchRequest", 11, {"MaxWait": 1}, "FetchRequest has no MaxWait in version 11; it has ReplicaId, MaxWaitMs"),
        ("FetchRequest", 2, {"SessionId": 1}, "has no SessionId in version 2"),
        ("FetchRequest", 11, {"MaxWaitMs": "1"}, "FetchRequest.MaxWaitMs: expected a number for int32, not '1'"),
        ("FetchRequest", 11, {"MaxWaitMs": True}, "a number for int32"),
        ("FetchRequest", 11, {"MaxWaitMs": 1.0}, "a number for int32"),
        ("FetchRequest", 11, {"MaxWaitMs": 1 << 31}, "allowed: -2147483648 to 2147483647"),
        ("FetchRequest", 11, {"MaxWaitMs": None}, "null is not allowed"),
        ("FetchRequest", 11, {"IsolationLevel": 128}, "int8"),
        ("FetchRequest", 11, {"Topics": {}}, "expected an array"),
        ("FetchRequest", 11, {"Topics": [{}, 5]}, r"FetchRequest.Topics\[1\]: expected an object, not 5"),
        ("FetchRequest", 11, {"ForgottenTopicsData": [{"Partitions": [1, "x"]}]}, r"\[0\].Partitions\[1\]"),
        ("FetchRequest", 13, {"Topics": [{"TopicId": "abc"}]}, "expected a uuid for uuid"),
        ("FetchRequest", 12, {"_unknownTaggedFields": 5}, "_unknownTaggedFields"),
        ("FetchRequest", 12, {"_unknownTaggedFields": [{"tag": -1, "data": ""}]}, "_unknownTaggedFields"),
        ("FetchRequest", 12, {"_unknownTaggedFields": [{"tag": 1, "data": "?"}]}, "_unknownTaggedFields"),
        ("SaslAuthenticateRequest", 0, {"AuthBytes": "not base64!"}, "expected base64 for bytes"),
        ("MetadataRequest", 4, {"AllowAutoTopicCreation": 1}, "true or false for bool"),
        ("SaslHandshakeRequest", 0, {"Mechanism": 5}, "a text for string"),
        ("AlterClientQuotasRequest", 0, {"Entries": [{"Ops": [{"Value": "nan"}]}]}, "a number for float64"),
        ("AlterClientQuotasRequest", 0, {"Entries": [{"Ops": [{"Value": False}]}]}, "a number for float64"),
    ],
)
def test_an_invalid_document_is_refused_with_the_place(name: str, version: int, document: Any, complaint: str) -> None:
    with pytest.raises(BadDocument, match=complaint):
        from_document(message_class(name), version, document)


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(UnsupportedMessageVersion):
        to_document(FetchRequest(), 19)
    with pytest.raises(UnsupportedMessageVersion):
        from_document(FetchRequest, 19, {})
