"""A broker that answers what a test tells it to, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import cast

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import encode
from odradek.protocol.framing import FrameSplitter, frame
from odradek.protocol.headers import RequestHeader, read_request_header
from odradek.protocol.messages.api_versions import ApiVersionsResponse
from odradek.protocol.messages.metadata import MetadataResponse

ApiVersion = ApiVersionsResponse.ApiVersion
SERVED = {ApiKey.METADATA: 4, ApiKey.API_VERSIONS: 3}
"""The highest version of each API."""
Answer = Callable[[RequestHeader], bytes | None]


def correlated(header: RequestHeader, body: bytes) -> bytes:
    return frame(header.correlation_id.to_bytes(4, "big"), body)


def api_versions(header: RequestHeader, served: Mapping[ApiKey, int] = SERVED) -> bytes:
    listed = [ApiVersion(api_key=key, max_version=highest) for key, highest in served.items()]
    return correlated(header, encode(ApiVersionsResponse(api_keys=listed), header.request_api_version))


class ScriptedBroker(asyncio.Protocol):
    """Answers ApiVersions itself and other requests with `answer` of the request's header (None: no response)."""

    def __init__(self, answer: Answer, headers: list[RequestHeader], served: Mapping[ApiKey, int]) -> None:
        self.answer = answer
        self.served = served
        self.headers = headers
        self.frames = FrameSplitter()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        for request in self.frames.feed(data):
            header, _ = read_request_header(request)
            self.headers.append(header)
            answer = self.answer(header)
            if answer is None and header.request_api_key == ApiKey.API_VERSIONS:
                answer = api_versions(header, self.served)
            if answer is not None:
                self.transport.write(answer)


@asynccontextmanager
async def scripted(
    answer: Answer = lambda _: None, *, served: Mapping[ApiKey, int] = SERVED
) -> AsyncIterator[tuple[int, list[RequestHeader]]]:
    """Yields the port and the headers of the received requests."""
    headers: list[RequestHeader] = []
    loop = asyncio.get_running_loop()
    connections: list[ScriptedBroker] = []

    def connection() -> ScriptedBroker:
        connections.append(ScriptedBroker(answer, headers, served))
        return connections[-1]

    server = await loop.create_server(connection, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], headers
    finally:
        server.close()
        for one in connections:
            one.transport.abort()
            await one.ended


def metadata(header: RequestHeader) -> bytes | None:
    if header.request_api_key != ApiKey.METADATA:
        return None
    response = MetadataResponse(cluster_id=f"answer to {header.correlation_id}")
    return correlated(header, encode(response, header.request_api_version))
