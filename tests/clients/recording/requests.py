"""Frames of requests and responses for these tests."""

from __future__ import annotations

from odradek.clients.recording.conversation import Asked, Conversation
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from odradek.protocol.schema import Message


def key_of(message: Message) -> ApiKey:
    key = type(message).__schema__.api_key
    assert key is not None
    return ApiKey(key)


def request_frame(message: Message, version: int, correlation_id: int = 1, client_id: str = "tester") -> bytes:
    key = key_of(message)
    header = RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode(header, request_header_version(key, version)) + encode(message, version)


def response_frame(message: Message, version: int, correlation_id: int = 1) -> bytes:
    header = ResponseHeader(correlation_id=correlation_id)
    return encode(header, response_header_version(key_of(message), version)) + encode(message, version)


def asked_by(frame: bytes) -> Asked:
    asked = Conversation().asked(frame)
    assert asked is not None
    return asked
