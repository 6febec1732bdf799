"""The APIs and versions that a broker lists. To a request of another one, brokers answer by ending the connection.

(A) ApiVersions is sent in every version: brokers answer it in those, too, that they do not have (KIP-511).
(B) If a broker does not answer ApiVersions, nothing is known, and everything is sent to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.clients.network_errors import NetworkError
from odradek.clients.recording.conversation import Asked
from odradek.clients.recording.streams import Stream
from odradek.clients.recording.streams import asked as ask
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

FIRST_VERSION = 0
"""Every broker has it."""


class Listed:
    """`versions` has the lowest and the highest one by the key of the API. None: the broker did not say (B)."""

    def __init__(self, versions: Mapping[int, tuple[int, int]] | None) -> None:
        self._versions = versions

    def why_not(self, asked: Asked) -> str:
        """Returns why a request cannot be sent, an empty text if it can."""
        if self._versions is None or asked.api_key == ApiKey.API_VERSIONS:
            return ""
        if asked.api_key not in self._versions:
            return "not sent: it does not list this API"
        lowest, highest = self._versions[asked.api_key]
        return "" if lowest <= asked.version <= highest else f"not sent: it lists versions {lowest} to {highest}"


async def listed_by(stream: Stream, timeout_s: float) -> Listed:
    """Asks a broker over a new connection, and closes it."""
    try:
        async with asyncio.timeout(timeout_s):
            response: ApiVersionsResponse = await ask(stream, ApiVersionsRequest(), FIRST_VERSION)
    except (NetworkError, TimeoutError):
        return Listed(None)
    finally:
        stream.abort()
    return Listed({api.api_key: (api.min_version, api.max_version) for api in response.api_keys})
