"""A broker in its own thread whose event loop is measured during hostile requests.

`Answer.turns` are the turns of the loop (turns_of_a_loop.py). `memory_of` counts the bytes that Python allocates, with
tracemalloc.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.compiler import decode
from odradek.protocol.headers import response_header_version
from odradek.protocol.messages.registry import response_class
from odradek.protocol.schema import Message
from odradek.testing import BrokerThread
from tests.scenarios.turns_of_a_loop import EachTurn, Turns, collector_as_when_served
from tests.wire.blocking_client import RawClient
from tests.wire.frames import API_VERSIONS_V0, request_payload

TIMEOUT_S = 60
KEPT_BYTES = 8 << 20
"""How much of an answer is kept."""
PIECE_BYTES = 1 << 20


class Answer(NamedTuple):
    """`body` is the beginning of the answer after its header."""

    size: int
    body: bytes
    turns: Turns


class Memory(NamedTuple):
    """In bytes: the peak of allocated memory, and the sizes of the request and of its answer."""

    peak: int
    request: int
    answer: int

    @property
    def beyond_frame_and_answer(self) -> int:
        return self.peak - self.request - self.answer


class WatchedBroker:
    def __init__(self, thread: BrokerThread) -> None:
        self.thread = thread

    def ask(self, request: Message, version: int) -> Answer:
        """Sends the request on a new connection. Raises ConnectionError if the broker closes it instead."""
        payload = request_payload(request, version)
        turns = EachTurn()
        with RawClient(self.thread.bootstrap, timeout=TIMEOUT_S) as client:
            client.call(API_VERSIONS_V0)  # the first request of a connection is not measured
            self.thread.call(_started(turns))
            try:
                client.send(payload)
                size, body = _taken(client, KEPT_BYTES)
            finally:
                self.thread.call(_stopped(turns))
        return Answer(size, body[_header_bytes(request, version) :], turns)

    def response(self, request: Message, version: int) -> Any:
        """The decoded answer, of turns that nobody counts."""
        with RawClient(self.thread.bootstrap, timeout=TIMEOUT_S) as client:
            answer = client.call(request_payload(request, version))
        return decode(_response_class(request), version, answer, _header_bytes(request, version))

    def memory_of(self, request: Message, version: int) -> Memory:
        """Measures the memory for the request. The broker may close the connection instead of answering."""
        payload = request_payload(request, version)
        with RawClient(self.thread.bootstrap, timeout=TIMEOUT_S) as client:
            gc.collect()
            tracemalloc.start()
            try:
                before = tracemalloc.get_traced_memory()[0]
                client.send(payload)
                size, _ = _taken(client, 0)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
        return Memory(peak - before - PIECE_BYTES, len(payload), size)


def decoded(request: Message, version: int, answer: Answer) -> Any:
    assert answer.size <= KEPT_BYTES
    return decode(_response_class(request), version, answer.body)


@contextmanager
def watched_broker(settings: Mapping[str, object]) -> Iterator[WatchedBroker]:
    with BrokerThread(settings) as thread, collector_as_when_served():
        yield WatchedBroker(thread)


async def _started(turns: EachTurn) -> None:
    turns.start()


async def _stopped(turns: EachTurn) -> None:
    turns.stop()


def _api_key(request: Message) -> ApiKey:
    key = request.__schema__.api_key
    assert key is not None
    return ApiKey(key)


def _response_class(request: Message) -> type[Message]:
    return response_class(_api_key(request))


def _header_bytes(request: Message, version: int) -> int:
    return 4 + response_header_version(_api_key(request), version)


def _taken(client: RawClient, kept: int) -> tuple[int, bytes]:
    """An answer's size and its first bytes; the rest is discarded."""
    (size,) = struct.unpack(">i", client._exactly(4))
    piece, beginning = bytearray(PIECE_BYTES), bytearray()
    left = size
    while left:
        count = client.socket.recv_into(piece, min(left, PIECE_BYTES))
        if not count:
            raise ConnectionError(f"closed {left} bytes before the answer's end")
        if len(beginning) < kept:
            beginning += piece[:count]
        left -= count
    return size, bytes(beginning)
