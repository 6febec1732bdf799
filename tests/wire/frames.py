"""Requests as frames of Kafka's protocol, and responses out of frames."""

from __future__ import annotations

import struct
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.headers import RequestHeader, request_header_version, response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.schema import Message

API_VERSIONS_V0 = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 77, -1)


def api_key_of(request: Message) -> ApiKey:
    assert request.__schema__.api_key is not None
    return ApiKey(request.__schema__.api_key)


def framed(payload: bytes) -> bytes:
    """A frame with its length."""
    return len(payload).to_bytes(4, "big") + payload


def request_payload(request: Message, version: int, *, correlation_id: int = 1, client_id: str = "raw") -> bytes:
    """Header and body of a request."""
    api_key = api_key_of(request)
    header = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    return encode(header, request_header_version(api_key, version)) + encode(request, version)


def request_bytes(request: Message, version: int, correlation_id: int = 7) -> bytes:
    """A request as a frame, with its length."""
    return framed(request_payload(request, version, correlation_id=correlation_id, client_id="test"))


def body_of(frame: bytes, api_key: int, version: int) -> Any:
    """Decodes a response to a request of that API."""
    key = ApiKey(api_key)
    return decode(response_class(key), version, frame, 4 + response_header_version(key, version))


def response_of(frame: bytes, request: Message, version: int) -> Any:
    """Decodes the response to a request."""
    return body_of(frame, api_key_of(request), version)
