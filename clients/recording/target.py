"""A cluster to which a recording is sent: for each connection of the recording one to the corresponding broker.

(A) A connection goes to the broker that has the place of the recorded one: brokers correspond in the order of their
    ids. If that is not known, it goes to the given address.
(B) A response is a document. One with ENDED says why there is none: the connection has ended, or no response came in
    time. Nothing more is sent on such a connection.
(C) If a response is "not yet" (not_yet.py, heartbeats.py), the request is sent again until the time is up. If later
    requests of the connection are under way, only those that change nothing are: they may be answered in another order.
(D) What a broker does not list is not sent to it (listed.py). It is asked once, at the first connection to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from odradek.clients.network_errors import RequestTimedOut
from odradek.clients.recording.addresses import Address
from odradek.clients.recording.conversation import Asked, answered_of
from odradek.clients.recording.decoding import Document, decoded_request, decoded_response
from odradek.clients.recording.fetched import Fetched, Offsets
from odradek.clients.recording.heartbeats import Beat, beat_of
from odradek.clients.recording.identities import Identities
from odradek.clients.recording.late_batches import LateBatches, Reader
from odradek.clients.recording.listed import Listed, listed_by
from odradek.clients.recording.not_yet import says_not_yet
from odradek.clients.recording.streams import Dial, Stream
from odradek.clients.recording.streams import asked as ask
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.framing import BadFrame
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse

METADATA_VERSION = 1
AGAIN_S = 0.1
MOST_FRAMES = 1000
"""How many responses of a connection are read ahead."""
LOOKUPS = frozenset({ApiKey.METADATA, ApiKey.FIND_COORDINATOR})
"""What says "not yet" and changes nothing (C)."""
ENDED = "ended"
UNDECODED: Document = {"undecoded": True}
IsEnough = Callable[[Beat, Document], bool]
"""is_enough(sent, response): whether a heartbeat was answered with what is waited for."""


class _Sent(NamedTuple):
    data: bytes
    is_lookup: bool
    beat: Beat | None
    """Of a heartbeat to a consumer group."""

    def may_be_repeated(self, response: Document, is_enough: IsEnough | None) -> bool:
        """Whether the response is "not yet" (C)."""
        if self.beat is None or is_enough is None:
            return says_not_yet(response)
        is_behind = self.beat.may_be_repeated(response) and not is_enough(self.beat, response)
        return is_behind or says_not_yet(response)


class _Connection(NamedTuple):
    stream: Stream
    frames: asyncio.Queue[bytes | None]
    """What the broker has sent, and None at the end."""
    reading: asyncio.Task[None]
    sent: dict[int, _Sent]
    """What may be sent again, by the number of the request: the last one, and lookups that are not answered yet."""
    read_ahead: list[bytes]
    """Responses to later requests, which have come before that to one that was repeated."""

    def note_sent(self, asked: Asked, data: bytes, beat: Beat | None) -> None:
        """What was the last request before may be repeated only if it is a lookup."""
        for number in [number for number, sent in self.sent.items() if not sent.is_lookup]:
            del self.sent[number]
        self.sent[asked.number] = _Sent(data, asked.api_key in LOOKUPS, beat)

    async def response(self, correlation_id: int, *, is_repeated: bool) -> bytes | None:
        """Returns a response, None at the end. Others before it, which the recording does not have, are skipped."""
        for index, data in enumerate(self.read_ahead):
            if _correlation_id(data) == correlation_id:
                return self.read_ahead.pop(index)
        while (found := await self.frames.get()) is not None and _correlation_id(found) != correlation_id:
            if is_repeated:
                self.read_ahead.append(found)
        return found


class Target:
    """`address` is that of a broker. Each response may take `timeout_s`."""

    def __init__(self, address: Address, dial: Dial, timeout_s: float) -> None:
        self.names = TopicNames()
        self.identities = Identities(self.names)
        self.fetched = Fetched(self.names)
        self._late_batches = LateBatches(self.fetched, dial, timeout_s)
        self._address = address
        self._dial = dial
        self._timeout_s = timeout_s
        self._brokers: list[Address] = []
        self._listed: dict[Address, Listed] = {}
        self._addresses: dict[int, Address] = {}
        """Where the connections go, also those that have ended."""
        self._connections: dict[int, _Connection] = {}
        self._closing: list[_Connection] = []
        self._ended: dict[int, str] = {}
        """Why nothing is sent on a connection any more."""

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
        self._addresses[connection] = address
        if address not in self._listed:
            self._listed[address] = await listed_by(await self._dial.connect(*address), self._timeout_s)
        stream = await self._dial.connect(*address)
        frames: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_FRAMES)
        reading = asyncio.create_task(_read(stream, frames), name=f"reader of {stream.name}")
        self._connections[connection] = _Connection(stream, frames, reading, {}, [])

    def why_not(self, connection: int, asked: Asked) -> str:
        """Returns why a request cannot be sent (D), an empty text if it can."""
        return self._listed[self._addresses[connection]].why_not(asked)

    async def send(self, connection: int, asked: Asked, data: bytes) -> None:
        """Sends a recorded request with the target's ids."""
        opened = self._connections.get(connection)
        if opened is None:
            return
        decoded = decoded_request(asked, data)
        beat = None
        if decoded is not None:
            document = self.identities.to_target(decoded.document, connection)
            data = decoded.with_document(document)
            if asked.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
                beat = beat_of(document)
        opened.note_sent(asked, data, beat)
        try:
            async with asyncio.timeout(self._timeout_s):
                await opened.stream.send(data)
        except TimeoutError:
            self._end(connection, f"{asked.api_name} {asked.version} was not taken in {self._timeout_s:g} s")
        except OSError as error:
            self._end(connection, f"the connection has ended: {error}")

    async def response(self, connection: int, asked: Asked, is_enough: IsEnough | None = None) -> Document:
        """Returns the response to a request (B) (C). `is_enough`: whether a heartbeat has got the response that is
        waited for.
        """
        opened = self._connections.get(connection)
        if opened is None:
            return {ENDED: self._ended.get(connection, "the connection has ended")}
        again = answered_of(opened.sent, asked.number)
        response: Document = {ENDED: f"no answer in {self._timeout_s:g} s"}
        is_repeated = False
        try:
            async with asyncio.timeout(self._timeout_s):
                while (data := await opened.response(asked.correlation_id, is_repeated=is_repeated)) is not None:
                    response = self._decoded(asked, data)
                    if again is None or not again.may_be_repeated(response, is_enough):
                        return response
                    is_repeated = True
                    await asyncio.sleep(AGAIN_S)
                    await opened.stream.send(again.data)
        except TimeoutError:
            if ENDED in response:
                self._end(connection, f"not asked: {asked.api_name} {asked.version} had {response[ENDED]}")
            return response
        except OSError:
            pass
        self._end(connection, "the connection has ended")
        return {ENDED: self._ended[connection]}

    async def fetch_late(self, connection: int, reader: Reader, wanted: Offsets) -> None:
        """Fetches what the responses to a connection lack of these batches."""
        await self._late_batches.fetch(self._addresses[connection], reader, wanted)

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
        await self._late_batches.stop()
        for connection in list(self._connections):
            self._drop(connection)
        await asyncio.gather(*(opened.reading for opened in self._closing), return_exceptions=True)
        await asyncio.gather(*(opened.stream.finish() for opened in self._closing))

    def _end(self, connection: int, why: str) -> None:
        self._drop(connection)
        self._ended[connection] = why

    def _drop(self, connection: int) -> None:
        opened = self._connections.pop(connection, None)
        self._ended.pop(connection, None)
        if opened is not None:
            opened.reading.cancel()
            opened.stream.writer.close()
            self._closing.append(opened)


def _correlation_id(data: bytes) -> int:
    return int.from_bytes(data[:4], "big", signed=True)


async def _read(stream: Stream, frames: asyncio.Queue[bytes | None]) -> None:
    try:
        while (data := await stream.frame()) is not None:
            await frames.put(data)
    except (BadFrame, OSError):
        pass
    await frames.put(None)
