"""A cluster to which a recording is sent: for each connection of the recording one to the corresponding broker.

(A) A connection goes to the broker that has the place of the recorded one: brokers correspond in the order of their
    ids. If that is not known, it goes to the given address.
(B) An answer is a document. One with ENDED says why there is none: the connection has ended, or no response came in
    time. Nothing more is sent on such a connection.
(C) If an answer is "not yet" (not_yet.py), and no later request of the connection is under way, the request is sent
    again until the time is up.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from odradek.broker.peers.network_errors import RequestTimedOut
from odradek.broker.recording.addresses import Address
from odradek.broker.recording.conversation import Asked
from odradek.broker.recording.decoding import Document, decoded_request, decoded_response
from odradek.broker.recording.fetched import Fetched
from odradek.broker.recording.identities import Identities
from odradek.broker.recording.not_yet import says_not_yet
from odradek.broker.recording.streams import Dial, Stream
from odradek.broker.recording.streams import asked as ask
from odradek.broker.recording.topic_names import TopicNames
from odradek.protocol.framing import BadFrame
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA_VERSION = 1
AGAIN_S = 0.1
MOST_FRAMES = 1000
"""How many responses of a connection are read ahead."""
ENDED = "ended"
UNDECODED: Document = {"undecoded": True}


class _Connection(NamedTuple):
    stream: Stream
    frames: asyncio.Queue[bytes | None]
    """What the broker has sent, and None at the end."""
    reading: asyncio.Task[None]


class Target:
    """`address` is that of a broker. Each response may take `timeout_s`."""

    def __init__(self, address: Address, dial: Dial, timeout_s: float) -> None:
        self.names = TopicNames()
        self.identities = Identities(self.names)
        self.fetched = Fetched(self.names)
        self._address = address
        self._dial = dial
        self._timeout_s = timeout_s
        self._brokers: list[Address] = []
        self._connections: dict[int, _Connection] = {}
        self._closing: list[_Connection] = []
        self._ended: dict[int, str] = {}
        """Why nothing is sent on a connection any more."""
        self._last_sent: dict[int, bytes] = {}

    async def start(self) -> None:
        """Learns of the brokers. Raises NetworkError."""
        stream = await self._dial.connect(*self._address)
        try:
            async with asyncio.timeout(self._timeout_s):
                response: MetadataResponse = await ask(stream, MetadataRequest(topics=[]), METADATA_VERSION)
        except TimeoutError as error:
            raise RequestTimedOut(f"{stream.name} did not answer Metadata in {self._timeout_s:g} s") from error
        finally:
            stream.abort()
        brokers = sorted(response.brokers, key=lambda broker: broker.node_id)
        self._brokers = [(broker.host, broker.port) for broker in brokers]

    async def open(self, connection: int, place: tuple[int, int] | None) -> None:
        """Opens a connection. `place`: the number of its broker, and how many there are. Raises NetworkError."""
        is_known = place is not None and place[1] == len(self._brokers)
        address = self._brokers[place[0]] if is_known and place is not None else self._address
        stream = await self._dial.connect(*address)
        frames: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_FRAMES)
        reading = asyncio.create_task(_read(stream, frames), name=f"reader of {stream.name}")
        self._connections[connection] = _Connection(stream, frames, reading)

    async def send(self, connection: int, asked: Asked, data: bytes) -> None:
        """Sends a recorded request with the target's ids."""
        opened = self._connections.get(connection)
        if opened is None:
            return
        decoded = decoded_request(asked, data)
        if decoded is not None:
            data = decoded.with_document(self.identities.to_target(decoded.document, connection))
        self._last_sent[connection] = data
        try:
            async with asyncio.timeout(self._timeout_s):
                await opened.stream.send(data)
        except TimeoutError:
            self._end(connection, f"{asked.api_name} {asked.version} was not taken in {self._timeout_s:g} s")
        except OSError as error:
            self._end(connection, f"the connection has ended: {error}")

    async def answer(self, connection: int, asked: Asked, *, is_last: bool) -> Document:
        """Returns the answer to a request (B). `is_last`: it is the last one that was sent (C). Responses to earlier
        ones, which the recording does not have, are skipped.
        """
        opened = self._connections.get(connection)
        if opened is None:
            return {ENDED: self._ended.get(connection, "the connection has ended")}
        answer: Document = {ENDED: f"no answer in {self._timeout_s:g} s"}
        try:
            async with asyncio.timeout(self._timeout_s):
                while (data := await opened.frames.get()) is not None:
                    if int.from_bytes(data[:4], "big", signed=True) == asked.correlation_id:
                        answer = self._decoded(asked, data)
                        if not is_last or not says_not_yet(answer):
                            return answer
                        await asyncio.sleep(AGAIN_S)
                        await opened.stream.send(self._last_sent[connection])
        except TimeoutError:
            if ENDED in answer:
                self._end(connection, f"not asked: {asked.api_name} {asked.version} had {answer[ENDED]}")
            return answer
        except OSError:
            pass
        self._end(connection, "the connection has ended")
        return {ENDED: self._ended[connection]}

    def _decoded(self, asked: Asked, data: bytes) -> Document:
        decoded = decoded_response(asked, data)
        if decoded is None:
            return UNDECODED
        document = decoded.document
        self.names.learn(document)
        return document

    def close(self, connection: int) -> None:
        """Closes one connection."""
        self._drop(connection)

    async def stop(self) -> None:
        """Closes all connections."""
        for connection in list(self._connections):
            self._drop(connection)
        await asyncio.gather(*(opened.reading for opened in self._closing), return_exceptions=True)
        await asyncio.gather(*(opened.stream.finish() for opened in self._closing))

    def _end(self, connection: int, why: str) -> None:
        self._drop(connection)
        self._ended[connection] = why

    def _drop(self, connection: int) -> None:
        opened = self._connections.pop(connection, None)
        self._last_sent.pop(connection, None)
        self._ended.pop(connection, None)
        if opened is not None:
            opened.reading.cancel()
            opened.stream.writer.close()
            self._closing.append(opened)


async def _read(stream: Stream, frames: asyncio.Queue[bytes | None]) -> None:
    try:
        while (data := await stream.frame()) is not None:
            await frames.put(data)
    except (BadFrame, OSError):
        pass
    await frames.put(None)
