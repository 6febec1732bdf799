"""Which header version goes with which request and response, and reading the header of a request.

Kafka's rule (RequestHeader.java and the generated ApiMessageType): flexible requests have header v2, others v1, and
ControlledShutdown v0 alone has v0; flexible responses have header v1, others v0, and ApiVersions always v0, so that a
client can read the refusal of a version (KIP-511).
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
    """Also for versions that do not exist, by the same rule. KeyError for an API that the codec does not know."""
    if api_key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0:
        return 0
    return 2 if api_version >= first_flexible_version(api_key) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """KeyError for an API that the codec does not know."""
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if api_version >= first_flexible_version(api_key) else 0


@cache
def first_flexible_version(api_key: int) -> int:
    """The first version with compact lengths and tag sections; above all versions where there is none."""
    flexible = request_class(api_key).__schema__.flexible
    return flexible.lowest if flexible != NEVER else NEWEST + 1


def read_request_header(data: bytes, position: int = 0) -> tuple[RequestHeader, int]:
    """The header and the position of the body. MalformedMessage; KeyError for an API that the codec does not know."""
    if len(data) - position < 4:
        raise MalformedMessage(f"{len(data) - position} bytes are too few for a request")
    api_key, api_version = _KEY_AND_VERSION(data, position)
    return read(RequestHeader, request_header_version(api_key, api_version), data, position)
