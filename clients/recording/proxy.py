"""`odradek record`: a proxy for a Kafka cluster, which records what passes.

(A) Clients connect to the first listener, which leads to the first of the given addresses that responds. Each broker
    that a response names gets a listener of its own, on a free port of the same host.
(B) Each client's connection has one connection to its broker, in the order of the client's requests (relay.py).
(C) If the recording cannot be written (the disk is full), all connections end, and `run` raises CannotRecord. What was
    recorded until then stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import structlog

from odradek import __version__
from odradek.clients.network_errors import NetworkError, NodeUnreachable
from odradek.clients.recording.addresses import Address, text_of
from odradek.clients.recording.recording_file import MORE, PIECE_BYTES, Kind, RecordingWriter, pieces_of
from odradek.clients.recording.relay import SLOW_S, CannotRecord, Ended, Relay
from odradek.clients.recording.room import Room
from odradek.clients.recording.streams import Dial, Stream
from odradek.storage.files import Files
from odradek.timer import Clock

MOST_BROKERS = 1000

log = structlog.get_logger("broker.recording")


class ClockedRecorder:
    """Writes entries with their times, and counts connections and frames."""

    def __init__(self, writer: RecordingWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._start_ms = clock.now_ms()
        self.connections = 0
        self.frames = 0

    @property
    def summary(self) -> str:
        """What was recorded."""
        return f"{self.connections} connections, {self.frames} frames, {self._writer.size} bytes"

    def entry(self, kind: Kind, connection: int, data: bytes, flags: int = 0) -> None:
        try:
            self._writer.write(kind, connection, self._time_us(), data, flags)
        except OSError as error:
            raise CannotRecord(f"the recording cannot be written: {error}") from error
        self.frames += kind in (Kind.REQUEST, Kind.RESPONSE) and not flags & MORE

    def frame(self, kind: Kind, connection: int, data: bytes, flags: int = 0) -> None:
        for piece, more in pieces_of(data):
            self.entry(kind, connection, piece, flags | more)

    def opened(self, **facts: str) -> int:
        """Records a new connection and returns its number."""
        self.connections += 1
        self.entry(Kind.OPENED, self.connections, json.dumps(facts).encode())
        return self.connections

    def closed(self, connection: int, **facts: str) -> None:
        self.entry(Kind.CLOSED, connection, json.dumps(facts).encode())

    def _time_us(self) -> int:
        return (self._clock.now_ms() - self._start_ms) * 1000


class Proxy:
    """`upstream` are the addresses of brokers, `listen` that of the first listener."""

    def __init__(
        self,
        upstream: Sequence[Address],
        listen: Address,
        recorder: ClockedRecorder,
        dial: Dial,
        room: Room | None = None,
        slow_s: float = SLOW_S,
    ) -> None:
        self._upstream = list(upstream)
        self._listen = listen
        self.recorder = recorder
        self._dial = dial
        self._room = Room() if room is None else room
        self._slow_s = slow_s
        self._servers: dict[Address, asyncio.Server] = {}
        self._entrance: asyncio.Server | None = None
        """The first listener, if it may lead to several brokers."""
        self._own: set[Address] = set()
        """Addresses that have led back to the proxy."""
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.address: Address = listen
        """Where clients connect, once it has started."""

    async def start(self) -> None:
        """Opens the first listener. Raises OSError."""
        host, port = self._listen
        server = await self._serve(self._upstream, host, port)
        if len(self._upstream) == 1:
            self._servers[self._upstream[0]] = server
        else:
            self._entrance = server
        bound = [socket.getsockname()[:2] for socket in server.sockets]
        is_one_port = len({port for _, port in bound}) == 1
        self.address = (host, bound[0][1]) if is_one_port else min(bound)

    async def run(self) -> None:
        """Records until it is cancelled. Raises CannotRecord (C)."""
        await asyncio.shield(self._failure)

    def check(self) -> None:
        """Raises CannotRecord if something could not be recorded until now."""
        if self._failure.done():
            self._failure.result()

    async def close(self) -> None:
        """Ends all connections and listeners."""
        self._is_closed = True
        for server in self._listeners():
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure.done() and not self._failure.cancelled():
            self._failure.exception()

    async def _serve(self, to: Sequence[Address], host: str, port: int) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            def ended(task: asyncio.Task[None]) -> None:
                self._tasks.discard(task)
                writer.transport.abort()  # a task that is cancelled before it begins has closed nothing

            if self._is_closed:
                writer.transport.abort()
                return
            task = asyncio.get_running_loop().create_task(self._connection(to, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(ended)

        return await asyncio.start_server(accept, host, port, limit=PIECE_BYTES)

    async def _connection(
        self, to: Sequence[Address], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = writer.get_extra_info("peername")
        client = Stream(text_of(peer[:2]) if peer else "a client", reader, writer)
        try:
            broker = await self._reach(to)
            try:
                await self._relayed(client, broker)
            finally:
                broker.abort()
        except NetworkError as error:
            log.warning("broker not reached", client=client.name, error=str(error))
        except CannotRecord as error:
            self._fail(error)

    async def _reach(self, to: Sequence[Address]) -> Stream:
        """Connects to the first broker that responds. Raises NetworkError."""
        failure: NetworkError | None = None
        for address in to:
            try:
                return await self._connected(address)
            except NetworkError as error:
                failure = failure or error
        assert failure is not None, "there is at least one address"
        raise failure

    async def _connected(self, address: Address) -> Stream:
        if address not in self._own:
            broker = await self._dial.connect(*address)
            if not self._is_own(broker):
                return broker
            self._own.add(address)
            broker.abort()
        raise NodeUnreachable(f"{text_of(address)} is the proxy itself")

    def _is_own(self, broker: Stream) -> bool:
        """Whether the connection leads to one of the proxy's own listeners, and so would open the next one."""
        host, port = broker.writer.get_extra_info("peername")[:2]
        if host != broker.writer.get_extra_info("sockname")[0]:
            return False
        bound = {socket.getsockname()[:2] for server in self._listeners() for socket in server.sockets}
        return not bound.isdisjoint({(host, port), ("0.0.0.0", port), ("::", port)})  # nosec B104 # binds nothing

    def _listeners(self) -> list[asyncio.Server]:
        return [*self._servers.values(), *([] if self._entrance is None else [self._entrance])]

    async def _relayed(self, client: Stream, broker: Stream) -> None:
        number = self.recorder.opened(client=client.name, broker=broker.name)
        by = "proxy"
        try:
            by = await Relay(number, client, broker, self.recorder, self._ports, self._room, self._slow_s).run()
        finally:
            self.recorder.closed(number, by=by)
        await broker.finish()
        await client.finish()

    async def _ports(self, brokers: Iterable[Address], host: str) -> Mapping[Address, int]:
        """Returns the port of the listener for each broker at the proxy's address `host`. Opens those that are missing
        (A).
        """
        async with self._opening:
            for broker in sorted(set(brokers) - self._servers.keys()):
                if len(self._servers) >= MOST_BROKERS:
                    raise Ended(f"the responses name more than {MOST_BROKERS} brokers")
                self._servers[broker] = await self._serve([broker], self._listen[0], 0)
                log.info("broker found", broker=text_of(broker), port=_port_at(self._servers[broker], host))
            return {broker: _port_at(self._servers[broker], host) for broker in brokers}

    def _fail(self, error: CannotRecord) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)


@contextlib.asynccontextmanager
async def recording_proxy(
    upstream: Sequence[Address], listen: Address, path: str, dial: Dial, files: Files, clock: Clock
) -> AsyncIterator[Proxy]:
    """Yields a proxy that records into a new file. Raises OSError."""
    about = {
        "upstream": ",".join(map(text_of, upstream)),
        "startedMs": clock.wall_ms(),
        "release": __version__,
    }
    writer = RecordingWriter(files, path, about)
    try:
        proxy = Proxy(upstream, listen, ClockedRecorder(writer, clock), dial)
        try:
            await proxy.start()
        except BaseException:
            files.remove(path)
            raise
        try:
            yield proxy
        finally:
            await proxy.close()
    finally:
        writer.close()


def _port_at(server: asyncio.Server, host: str) -> int:
    """Returns the port at one of the addresses of this machine: a name such as localhost may have several, of IPv4 and
    of IPv6, and the listener another free port at each.
    """
    bound = [socket.getsockname()[:2] for socket in server.sockets]
    of_version = [name for name in bound if (":" in name[0]) == (":" in host)]
    exact = [name for name in of_version if name[0] == host]
    port: int = (exact or of_version or bound)[0][1]
    return port
