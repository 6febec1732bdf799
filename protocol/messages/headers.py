"""The headers of all requests and responses; `protocol.headers` maps API versions to header versions."""

from __future__ import annotations

from odradek.protocol.schema import Message, int16, int32, message, since, string


@message(kind="header", versions=(0, 2), flexible=2)
class RequestHeader(Message):
    """The API, its version, a correlation id that the response repeats, and the client's id."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    client_id: str | None = string(versions=since(1), nullable=since(1), flexible=False)


@message(kind="header", versions=(0, 1), flexible=1)
class ResponseHeader(Message):
    """The correlation id of the request."""

    correlation_id: int = int32()
