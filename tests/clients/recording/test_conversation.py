"""Responses find their requests, and tokens of logins are distinguished from requests."""

from __future__ import annotations

from odradek.clients.recording.conversation import MOST_UNANSWERED, Conversation, answered_of
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import ProduceRequest
from odradek.protocol.messages.sasl import SaslHandshakeRequest
from tests.clients.recording.requests import request_frame


def response(correlation_id: int) -> bytes:
    return correlation_id.to_bytes(4, "big") + b"body"


def test_responses_answer_requests_in_their_order() -> None:
    conversation = Conversation()
    conversation.asked(request_frame(MetadataRequest(), 9, 5))
    conversation.asked(request_frame(ApiVersionsRequest(), 3, 6))
    first, second = conversation.answered(response(5)), conversation.answered(response(6))
    assert first is not None
    assert second is not None
    assert (first.api_key, first.version, first.client_id, first.number) == (ApiKey.METADATA, 9, "tester", 0)
    assert (second.api_name, second.number) == ("ApiVersions", 1)
    assert conversation.answered(response(6)) is None


def test_requests_that_want_no_answer_are_passed_over() -> None:
    conversation = Conversation()
    frame = request_frame(ProduceRequest(acks=0), 9, 0)
    for correlation_id in range(MOST_UNANSWERED + 3):
        conversation.asked(frame[:4] + correlation_id.to_bytes(4, "big") + frame[8:])
    conversation.asked(request_frame(MetadataRequest(), 9, 7_000_000))
    found = conversation.answered(response(7_000_000))
    assert found is not None
    assert found.api_key == ApiKey.METADATA


def test_a_response_to_nothing_leaves_the_requests_alone() -> None:
    conversation = Conversation()
    conversation.asked(request_frame(MetadataRequest(), 9, 5))
    assert conversation.answered(response(99)) is None
    assert conversation.answered(b"") is None
    assert conversation.answered(response(5)) is not None


def test_frames_after_a_handshake_of_version_0_are_tokens_until_a_request_comes() -> None:
    conversation = Conversation()
    conversation.asked(request_frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0, 1))
    tokens = [conversation.asked(data) for data in (b"\0\x12\0\0plain as a request", b"c=biws", b"")]
    metadata = conversation.asked(request_frame(MetadataRequest(), 1, 2))
    assert all(token is not None and token.is_token for token in tokens)
    assert metadata is not None
    assert metadata.api_key == ApiKey.METADATA
    assert conversation.answered(response(1)) is not None
    for _ in tokens:
        found = conversation.answered(b"a token")
        assert found is not None
        assert found.is_token
    assert conversation.answered(response(2)) is not None


def test_frames_after_a_handshake_of_version_1_are_requests() -> None:
    conversation = Conversation()
    conversation.asked(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1))
    asked = conversation.asked(request_frame(MetadataRequest(), 1, 2))
    assert asked is not None
    assert not asked.is_token


def test_a_request_that_is_too_short_is_none() -> None:
    assert Conversation().asked(b"\0\3\0") is None


def test_what_is_kept_for_requests_without_an_answer_is_dropped_with_the_next_answer() -> None:
    kept = {0: "a", 1: "b", 2: "c", 3: "d"}
    assert answered_of(kept, 2) == "c"
    assert kept == {3: "d"}
    assert answered_of(kept, 2) is None
