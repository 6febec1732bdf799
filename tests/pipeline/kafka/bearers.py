"""SASL OAUTHBEARER for tests: a server of tokens, and a gateway that checks them before a broker.

Odradek's broker has no OAUTHBEARER. The gateway logs clients in by the tokens that the server has issued, then logs in
to the broker by PLAIN as the holder of the token, and passes everything on. Its clients are real: Spark's Java client,
kafka-python and Odradek's own.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.framing import frame
from odradek.protocol.headers import (
    RequestHeader,
    ResponseHeader,
    read_request_header,
    request_header_version,
    response_header_version,
)
from odradek.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from odradek.protocol.schema import Message

TOKEN = re.compile(rb"n,,\x01auth=Bearer ([\w.-]+)\x01\x01")


class TokenServer:
    """Issues tokens to clients. `secrets`: by client id. `life_s`: how long a token is valid."""

    def __init__(self, secrets: Mapping[str, str], life_s: float = 3600) -> None:
        self.issued: dict[str, str] = {}
        """The clients' ids by their tokens."""
        self.scopes: list[str] = []
        numbers, outer = itertools.count(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                kind, _, pair = self.headers["Authorization"].partition(" ")
                client, _, secret = base64.b64decode(pair).decode().partition(":")
                if (kind, form["grant_type"], secret) != ("Basic", ["client_credentials"], secrets.get(client)):
                    self.send_error(401)
                    return
                outer.scopes += form.get("scope", [])
                answer = {"access_token": outer.new(client, next(numbers), life_s), "expires_in": life_s}
                content = json.dumps({**answer, "token_type": "Bearer"}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"

    def new(self, client: str, number: int, life_s: float) -> str:
        """Issues a token."""
        now = int(time.time())
        claims = {"sub": client, "iat": now, "exp": int(now + life_s), "scope": "kafka", "jti": number}
        parts = [json.dumps({"alg": "none"}).encode(), json.dumps(claims).encode(), b"signature"]
        token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
        self.issued[token] = client
        return token

    def __enter__(self) -> TokenServer:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def gateway(port: int, broker: tuple[str, int], tokens: TokenServer, passwords: Mapping[str, str]) -> Iterator[None]:
    """Runs the gateway on `port`. `passwords`: the broker's, by the clients' ids."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _connected(*broker) as (to, back), contextlib.AsyncExitStack() as until:
            until.push_async_callback(_close, writer)
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, _Refused):
                await _log_in(reader, writer, to, back, tokens, passwords)
                ways = [asyncio.create_task(_pass(reader, back)), asyncio.create_task(_pass(to, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    async def serve() -> None:
        async with await asyncio.start_server(client, "127.0.0.1", port):
            started.set()
            await stop.wait()

    async def run() -> None:
        await serve()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert started.wait(10)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


class _Refused(Exception):
    pass


async def _log_in(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    to: asyncio.StreamReader,
    back: asyncio.StreamWriter,
    tokens: TokenServer,
    passwords: Mapping[str, str],
) -> None:
    refused = False
    while True:
        content = await _read(reader)
        header, position = read_request_header(content)
        if header.request_api_key == ApiKey.API_VERSIONS:
            back.write(frame(content))
            writer.write(frame(await _read(to)))
        elif header.request_api_key == ApiKey.SASL_HANDSHAKE:
            asked = decode(SaslHandshakeRequest, header.request_api_version, content, position)
            assert asked.mechanism == "OAUTHBEARER"
            writer.write(_response(header, SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])))
        else:
            step = decode(SaslAuthenticateRequest, header.request_api_version, content, position)
            found = TOKEN.fullmatch(bytes(step.auth_bytes))
            holder = tokens.issued.get(found[1].decode()) if found else None
            if refused:
                answer = SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such token"
                )
                writer.write(_response(header, answer))
                raise _Refused
            if holder is None:
                refused = True
                writer.write(_response(header, SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')))
                continue
            await _log_in_to_broker(to, back, holder, passwords[holder])
            writer.write(_response(header, SaslAuthenticateResponse()))
            return


async def _log_in_to_broker(to: asyncio.StreamReader, back: asyncio.StreamWriter, user: str, password: str) -> None:
    for api_key, message in (
        (ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN")),
        (ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())),
    ):
        header = RequestHeader(request_api_key=api_key, request_api_version=1, correlation_id=7, client_id="gateway")
        back.write(frame(encode(header, request_header_version(api_key, 1)), encode(message, 1)))
        answer = await _read(to)
        assert answer[4:6] == b"\0\0", answer


def _response(header: RequestHeader, message: Message) -> bytes:
    version = header.request_api_version
    head = encode(
        ResponseHeader(correlation_id=header.correlation_id), response_header_version(header.request_api_key, version)
    )
    return frame(head, encode(message, version))


async def _read(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while content := await reader.read(1 << 16):
        writer.write(content)
        await writer.drain()


@contextlib.asynccontextmanager
async def _connected(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
