"""A server on real sockets, with a small dispatcher in place of the APIs.

A frame is `>hhi` (command, 0, correlation id) and a payload. `Echo` implements the commands.
"""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from odradek.broker.background.background import Background
from odradek.broker.logging.client_warnings import ClientWarnings
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.listener_tls import ListenerTls
from odradek.broker.network.socket_server import SocketServer
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo, Holds, Part, PendingResponse
from odradek.broker.settings.listeners import Listener
from odradek.storage.file_slice import FileSlice
from odradek.storage.files import File
from odradek.timer import SystemClock

ECHO, PARK, SILENT, CLOSE, BIG, HOLD_ALL, HOLD_SAME, THROTTLE, LENGTH, PIECES, FILE = range(11)


class Echo:
    """Responds with the correlation id and payload. Parks, closes or grows the response by command."""

    def __init__(self) -> None:
        self.parked: list[PendingResponse] = []
        self.abandoned = 0
        self.handled: list[int] = []
        self.file: File | None = None
        """FILE responds with slices of it: the payload is any number of (position, length) as `>ii`."""

    def dispatch(self, frame: bytes, connection: ConnectionInfo, now_ms: int) -> list[Part] | PendingResponse | None:
        todo, _, correlation_id = struct.unpack_from(">hhi", frame)
        self.handled.append(correlation_id)
        payload = frame[8:]
        if todo == SILENT:
            return None
        if todo == CLOSE:
            raise CloseConnection("requested by the test", correlation_id=correlation_id)
        if todo == BIG:
            payload = bytes(int.from_bytes(payload, "big"))
        if todo == LENGTH:
            payload = str(len(payload)).encode()
        if todo == PIECES:
            count = int.from_bytes(payload, "big")
            return [struct.pack(">ii", count + 4, correlation_id), *([b"."] * count)]
        if todo == FILE:
            slices = [self.slice(*where) for where in struct.iter_unpack(">ii", payload)]
            return [struct.pack(">ii", sum(map(len, slices)) + 8, correlation_id), *slices, b"done"]
        if todo == THROTTLE:
            connection.throttle_ms = int.from_bytes(payload, "big")
        if todo in (PARK, HOLD_ALL, HOLD_SAME):
            holds = {PARK: Holds.NOTHING, HOLD_ALL: Holds.EVERYTHING, HOLD_SAME: Holds.SAME_API}[todo]
            pending = PendingResponse(holds=holds)
            pending.when_abandoned(self.count_abandoned)
            self.parked.append(pending)
            pending.park(todo, len(frame), lambda done: answer(correlation_id, done.result()))
            return pending
        return answer(correlation_id, payload)

    def slice(self, position: int, length: int) -> FileSlice:
        assert self.file is not None
        found = self.file.slice(position, length)
        assert found is not None
        return found

    def count_abandoned(self) -> None:
        self.abandoned += 1


def answer(correlation_id: int, payload: bytes) -> list[Part]:
    return [struct.pack(">ii", len(payload) + 4, correlation_id), payload]


def request(todo: int, correlation_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">ihhi", len(payload) + 8, todo, 0, correlation_id) + payload


async def close(writer: asyncio.StreamWriter) -> None:
    """Closes the connection, also if the server has closed it before."""
    writer.close()
    try:
        await writer.wait_closed()
    except (ConnectionError, ssl.SSLError):
        pass


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> tuple[int, bytes]:
        length, correlation_id = struct.unpack(">ii", await self.reader.readexactly(8))
        return correlation_id, await self.reader.readexactly(length - 4)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True

    async def close(self) -> None:
        await close(self.writer)


class BothSides(NamedTuple):
    """TLS of a listener, and of its clients."""

    listener: ListenerTls
    client: ssl.SSLContext


class Bench:
    """A server on a free port, its dispatcher and its clients, which use TLS if `tls` is set."""

    def __init__(self, echo: Echo, server: SocketServer, endpoint: Endpoint, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.echo = echo
        self.server = server
        self.endpoint = endpoint
        self.clients: list[Client] = []

    async def connect(self, address: str = "127.0.0.1") -> Client:
        """Connects a client at this address of the machine."""
        where = "127.0.0.1", self.endpoint.port
        client = Client(*await asyncio.open_connection(*where, ssl=self.tls, local_addr=(address, 0)))
        self.clients.append(client)
        return client

    def unread(self) -> list[int]:
        """Returns how many bytes each connection has yet to hand to the system."""
        return [connection.transport.get_write_buffer_size() for connection in self.server.connections]

    async def settle(self) -> None:
        """Runs some turns of the loop so that unwanted events could happen."""
        for _ in range(20):
            await asyncio.sleep(0.001)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the condition holds."""
        async with asyncio.timeout(20):
            while not condition():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.002)

    async def sweep_until(self, condition: Callable[[], bool]) -> None:
        """Lets the server check its connections again and again until the condition holds."""

        def holds() -> bool:
            self.server.sweep()
            return condition()

        await self.until(holds)


def echo_server(
    limits: ConnectionLimits, background: Background, tls: ListenerTls | None = None
) -> tuple[Echo, SocketServer]:
    """Returns a dispatcher and its server, which is not bound yet. `tls`: of a listener named SSL."""
    clock = SystemClock()
    echo = Echo()
    return echo, SocketServer(
        clock=clock,
        dispatch=echo.dispatch,
        drain_completions=lambda: None,
        run_in_thread=background.run_in_thread,
        limits=limits,
        client_warnings=ClientWarnings(clock),
        tls={} if tls is None else {"SSL": tls},
    )


@asynccontextmanager
async def running(limits: ConnectionLimits, tls: BothSides | None = None) -> AsyncIterator[Bench]:
    """Yields a running server. At the end stops it with its clients and checks that nothing is left of them."""
    background = Background()
    echo, server = echo_server(limits, background, None if tls is None else tls.listener)
    protocol = "PLAINTEXT" if tls is None else "SSL"
    [endpoint] = await server.bind([Listener(protocol, protocol, "127.0.0.1", 0, "127.0.0.1", 0)])
    await server.start()
    bench = Bench(echo, server, endpoint, None if tls is None else tls.client)
    try:
        yield bench
    finally:
        for pending in echo.parked:
            pending.abandon()
        for client in bench.clients:
            await client.close()
        await server.stop(100)
        await background.stop()
    assert not server.connections
