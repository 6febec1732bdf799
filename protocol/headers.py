"""The header version of each request and response, and reading a request's header.

Kafka's rule (RequestHeader.java and the generated ApiMessageType): flexible requests have header v2, others v1, and
only ControlledShutdown v0 has v0; flexible responses have header v1, others v0, and ApiVersions always v0, so that a
client can read the response to an unsupported version (KIP-511).
"""

from __future__ import annotations

from functools import cache
from struct import Struct

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import read
from odradek.protocol.errors import MalformedMessage
from odradek.protocol.messages.headers import RequestHeader, ResponseHeader
from odradek.protocol.messages.registry import request_class
from odradek.protocol.schema import NEVER, NEWEST

__all__ = [
    "RequestHeader",
    "ResponseHeader",
    "first_flexible_version",
    "read_request_header",
    "request_header_version",
    "response_header_version",
]

_KEY_AND_VERSION = Struct(">hh").unpack_from


def request_header_version(api_key: int, api_version: int) -> int:
    """Applies the rule to nonexistent versions, too. KeyError for an API that the codec does not know."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api_version >= first_flexible_version(api_key) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """Applies the rule to nonexistent versions, too. KeyError for an API that the codec does not know."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version >= first_flexible_version(api_key) else 0


@cache
def first_flexible_version(api_key: int) -> int:
    """Returns the first version with compact lengths and tag sections; above all versions if there is none."""
    flexible = request_class(api_key).__schema__.flexible
    return flexible.lowest if flexible != NEVER else NEWEST + 1


def read_request_header(data: bytes, position: int = 0) -> tuple[RequestHeader, int]:
    """Returns the header and the position of the body.

    Raises MalformedMessage; KeyError for an API that the codec does not know.
    """
    if len(data) - position < 4:
        raise MalformedMessage(f"{len(data) - position} bytes are too few for a request")
    api_key, api_version = _KEY_AND_VERSION(data, position)
    return read(RequestHeader, request_header_version(api_key, api_version), data, position)
