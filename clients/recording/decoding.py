"""A recorded frame as a message and as a document. A frame of an API or version that the codec lacks stays bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

from odradek.clients.recording.conversation import Asked
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode, read
from odradek.protocol.documents import from_document, to_document
from odradek.protocol.errors import ErrorCode, MalformedMessage
from odradek.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from odradek.protocol.messages.registry import API_KEYS, codec_versions, request_class, response_class
from odradek.protocol.schema import Message

Document = dict[str, Any]


class Decoded(NamedTuple):
    """A frame's message. `version` is that of the body."""

    header: Message
    message: Message
    version: int

    @property
    def document(self) -> Document:
        return to_document(self.message, self.version)

    def with_document(self, document: Document) -> bytes:
        """Returns the frame with another body."""
        return self.with_message(from_document(type(self.message), self.version, document))

    def with_message(self, message: Message) -> bytes:
        schema = type(message).__schema__
        assert schema.api_key is not None
        if schema.kind == "request":
            header_version = request_header_version(schema.api_key, self.version)
        else:
            header_version = response_header_version(schema.api_key, self.version)
        return encode(self.header, header_version) + encode(message, self.version)


def is_decodable(asked: Asked) -> bool:
    """Whether the codec has this API and version."""
    return asked.api_key in API_KEYS and asked.version in codec_versions(asked.api_key)


def decoded_request(asked: Asked, data: bytes) -> Decoded | None:
    """Returns None if the codec lacks the version, or if the bytes are not the message."""
    if not is_decodable(asked):
        return None
    try:
        header, position = read(RequestHeader, request_header_version(asked.api_key, asked.version), data, 0)
        message, _ = read(request_class(asked.api_key), asked.version, data, position)
    except MalformedMessage:
        return None
    return Decoded(header, message, asked.version)


def decoded_response(asked: Asked, data: bytes) -> Decoded | None:
    """As `decoded_request`, for the response to `asked`."""
    if not is_decodable(asked) and asked.api_key != ApiKey.API_VERSIONS:
        return None
    version = _version_of_response(asked, data)
    try:
        header, position = read(ResponseHeader, response_header_version(asked.api_key, version), data, 0)
        message, _ = read(response_class(asked.api_key), version, data, position)
    except MalformedMessage:
        return None
    return Decoded(header, message, version)


def _version_of_response(asked: Asked, data: bytes) -> int:
    """A broker that does not have the version of an ApiVersions request answers in version 0 (KIP-511)."""
    is_refusal = int.from_bytes(data[4:6], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION
    return 0 if asked.api_key == ApiKey.API_VERSIONS and is_refusal else asked.version
