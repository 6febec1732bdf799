"""A client's connection: splits bytes into frames and sends the responses in the order of the requests.

Reading. All connections share one scratch buffer. The event loop fills it and `buffer_updated` empties it before
anything else can use it, so nothing that outlives the callback may point into it. Complete frames are copied out. The
start of an incomplete frame is kept in `_kept` and prepended to the next read. A frame above 64 KB is read into a
buffer of its own (large_frame.py).

Fairness. A single read may contain ten thousand requests. After `TURN_MS` of handling, a connection yields to the
others, and in a large frame after so many bytes. It yields before it handles anything if the others have used up the
turn of the event loop (rounds.py).

Responding. A request is handled when its last byte has arrived, even while earlier requests are parked. Responses that
are ready in order are collected in the outbox and written once per callback, after a large request at once. `_answers`
holds, in order, what cannot be sent yet: (a) an encoded response behind a parked request, (b) a parked request, (c) the
end of the connection, which takes effect when everything before it has been answered. It may have a last response, and
a delay before both.

Handling. `info.dispatch` handles a frame. A listener that authenticates its clients replaces it, and bounds the length
of frames meanwhile (`info.frame_bounds`).

Not reading. Each of the seven reasons below stops reading and handling; bytes already read wait in `_kept`. While
nothing is read, the end of the stream goes unnoticed: the socket server polls for it.

The end. A connection ends when the client closes its side, the connection breaks, a frame is not a valid request, the
client is idle for too long, or the broker stops. Parked requests are abandoned (and removed from their purgatories),
and no state is left behind.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from odradek.broker.network.connection_limits import MIN_FRAME_BYTES, refused_before_login
from odradek.broker.network.file_sending import NewSending, RunInThread
from odradek.broker.network.large_frame import LargeFrame
from odradek.broker.network.outbox import WRITE_HIGH_BYTES, Outbox
from odradek.broker.network.queued_bytes import QueuedBytes, Queues
from odradek.broker.network.rounds import Flushable, Rounds
from odradek.broker.requests.request_bound import LARGE_FRAME_BYTES
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo, Part, PendingResponse, size_of

if TYPE_CHECKING:
    from odradek.broker.requests.endpoint import Endpoint

_LENGTH = struct.Struct(">i").unpack_from
_API_KEY = struct.Struct(">h").unpack_from

TURN_MS = 10
TIMER_EARLY_MS = 1
"""A timer of the event loop may be early by this."""
NOT_LOOKED_AT = -1
LOGIN_PIECE_BYTES = 8192
"""At most so much is read at once from a client that logs in: what it holds is counted, and bounded, piece by piece."""

# Why a connection is not read. Bits.
WRITING = 1  # The client does not take its responses as fast as they are produced.
IN_FLIGHT = 2  # Too many requests, or too many bytes, are in flight.
HELD = 4  # The next request must wait for a parked one.
THROTTLED = 8  # KIP-219
ENDING = 16  # The connection ends when all earlier responses have been sent.
YIELDING = 32  # The connection has used up its turn.
QUEUED = 64  # Connections together have sent too much (queued_bytes.py).


class Server(Protocol):
    """The part of the socket server that a connection uses."""

    rounds: Rounds
    run_in_thread: RunInThread
    blocked: dict[Connection, None]
    not_read_by: dict[Connection, int]
    queues: Queues[Connection]

    def opened(self, connection: Connection) -> None: ...

    def closing(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...

    def warn(self, event: str, info: ConnectionInfo, **details: Any) -> None: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> object: ...


class Connection(Flushable):
    """Implements asyncio.BufferedProtocol without inheriting from it: a compiled class cannot have an interpreted base.
    socket_server.py wraps it for asyncio's own event loop, which checks the class.
    """

    __slots__ = (
        "_answers",
        "_begins_anew",
        "_blocked",
        "_dirty",
        "_ended",
        "_in_flight_bytes",
        "_kept",
        "_large",
        "_new_sending",
        "_outbox",
        "_parked_bytes",
        "_queue",
        "_resuming",
        "_rounds",
        "_server",
        "_throttled_until_ms",
        "_unwritten_bytes",
        "close_by_ms",
        "info",
        "last_active_ms",
        "transport",
    )

    transport: asyncio.Transport
    info: ConnectionInfo
    _outbox: Outbox

    def __init__(self, server: Server, listener: Endpoint, new_sending: NewSending) -> None:
        """`new_sending` makes what sends slices of files; it depends on the transport."""
        self._server = server
        self._new_sending = new_sending
        self._rounds = server.rounds
        self.info = ConnectionInfo(listener)
        self.info.dispatch = server.rounds.dispatch
        self.last_active_ms = 0
        self.close_by_ms = 0
        """When a closing connection is aborted, even with unsent data. 0: the connection is not closing."""
        self._unwritten_bytes = 0
        self._kept = b""
        self._large: LargeFrame | None = None
        self._answers: list[PendingResponse | list[Part] | CloseConnection] = []
        self._in_flight_bytes = 0
        self._parked_bytes = 0
        """The size of the large requests that are not answered yet."""
        self._queue: QueuedBytes[Connection] | None = None
        """Where bytes of this connection are counted; None: it holds none."""
        self._begins_anew = False
        """Whether a request has been handled since they were counted last."""
        self._throttled_until_ms = 0
        self._blocked = 0
        self._dirty = False
        self._resuming = False
        self._ended = False

    # --- called by the event loop -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        descriptors = self._rounds.limits.sending_descriptors
        run_in_thread = server.run_in_thread
        self._outbox = Outbox(self.transport, run_in_thread, self._files_ended, descriptors, self._new_sending)
        server.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large.room()
        scratch = self._rounds.scratch
        kept = self._kept
        if self.info.frame_bounds is not None:
            scratch = scratch[: len(kept) + LOGIN_PIECE_BYTES]
        if not kept:
            return scratch
        scratch[: len(kept)] = kept
        return scratch[len(kept) :]

    def buffer_updated(self, nbytes: int) -> None:
        rounds = self._rounds
        now_ms = self.last_active_ms = rounds.enter()
        rounds.counters.bytes_in += nbytes
        try:
            large = self._large
            if large is not None:
                large.filled(nbytes)
                if rounds.is_late(now_ms) or (not large.is_whole and large.must_yield()):
                    self._yield()
                elif large.is_whole:
                    self._handle_large(large)
            else:
                end = len(self._kept) + nbytes
                self._kept = b""
                if rounds.is_late(now_ms):
                    self._kept = rounds.scratch[:end].tobytes()
                    self._yield()
                else:
                    self._consume(rounds.scratch, end)
            if self._holds_too_much():
                self._block(QUEUED)
        finally:
            rounds.leave()

    def eof_received(self) -> bool:
        self.end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._abandon_answers()
        self._outbox.clear()
        self._kept = b""
        self._large = None
        self._server.lost(self)

    def pause_writing(self) -> None:
        self._server.not_read_by[self] = NOT_LOOKED_AT
        self._block(WRITING)

    def resume_writing(self) -> None:
        if self._outbox.transport_has_written():
            self._server.not_read_by.pop(self, None)
            self._unblock(WRITING)
            self._advance()

    # --- reading ------------------------------------------------------------------------------------------------

    def _consume(self, data: memoryview, end: int) -> None:
        """Handles every complete frame of data[:end] and keeps the rest."""
        longest = self._rounds.limits.max_other_request_bytes
        position = 0
        while not self._blocked and end - position >= 4:
            length: int = _LENGTH(data, position)[0]
            start = position + 4
            stop = start + length
            bounds = self.info.frame_bounds
            if bounds is not None:
                if not bounds.shortest <= length <= bounds.longest:
                    self._end_in_turn(refused_before_login(length, bounds.longest))
                    break
            elif not MIN_FRAME_BYTES <= length <= longest and not self._may_be_so_long(length, data[start:end]):
                break
            if stop > end:
                if length > LARGE_FRAME_BYTES and end - start >= 2:
                    if self._answers and self._must_wait(_API_KEY(data, start)[0]):
                        self._block(HELD)
                        break
                    self._large = LargeFrame(data[start:end].tobytes(), length)
                    return
                break
            if self._answers and length >= 2 and self._must_wait(_API_KEY(data, start)[0]):
                self._block(HELD)
                break
            position = stop
            self._handle(data[start:stop].tobytes())
            if length > LARGE_FRAME_BYTES and position < end:
                self._rounds.leave()  # its response does not wait for the next request
                self._rounds.enter()
            if position < end and not self._blocked and self._rounds.clock.now_ms() - self.last_active_ms >= TURN_MS:
                self._yield()
        if position < end and not self._blocked & ENDING and not self._ended:
            self._kept = data[position:end].tobytes()

    def _yield(self) -> None:
        """Lets the other connections have their turns."""
        if not self._blocked & YIELDING:
            self._block(YIELDING)
            self._rounds.wait(self.info.client_host, self._has_its_turn)

    def _has_its_turn(self) -> None:
        self._blocked &= ~YIELDING
        if not self._resuming:
            self._resume()

    def _may_be_so_long(self, length: int, beginning: memoryview) -> bool:
        """Whether a frame that is too long for most APIs may be read. Ends the connection if it never may."""
        try:
            return self._rounds.limits.may_be_so_long(length, beginning)
        except CloseConnection as closing:
            self._end_in_turn(closing)
            return False

    def _handle_large(self, large: LargeFrame) -> None:
        self._large = None
        self._handle(large.whole())

    def _holds_too_much(self) -> bool:
        """Reports the bytes queued here to the server. Returns True if this connection must not be read."""
        large = self._large
        held = self._parked_bytes + (len(self._kept) if large is None else large.size)
        queue = self._queue
        if queue is not None and (self._begins_anew or not held):
            queue.release(self)
            queue = None
        if queue is None and held:
            queue = self._server.queues.of(self.info)
        self._queue = queue
        self._begins_anew = False
        if queue is None:
            return False
        needs_no_more = held <= LARGE_FRAME_BYTES if large is None else large.is_whole
        return not queue.hold(self, held, is_small=needs_no_more)

    @property
    def client_host(self) -> str:
        """The address of the client."""
        return self.info.client_host

    @property
    def unanswered(self) -> int:
        """How many requests wait for their response, or for the ones before it to be sent."""
        return len(self._answers)

    @property
    def in_flight_bytes(self) -> int:
        """The bytes of those requests and responses."""
        return self._in_flight_bytes

    @property
    def blocked(self) -> int:
        """Why the connection is not read: the bits above; 0 if it is read."""
        return self._blocked

    @property
    def is_awaited(self) -> bool:
        """Whether the rest of a frame is missing and the connection is read."""
        return not self._blocked and (self._large is not None or bool(self._kept))

    def read_on(self) -> None:
        """Resumes reading: memory may be available."""
        self._unblock(QUEUED)

    # --- handling -----------------------------------------------------------------------------------------------

    def _handle(self, frame: bytes) -> None:
        answers = self._answers
        self._begins_anew = True
        try:
            answer: PendingResponse | list[Part] | None = self.info.dispatch(frame, self.info, self.last_active_ms)
        except CloseConnection as closing:
            self._end_in_turn(closing)
            return
        if answer is None:
            pass
        elif isinstance(answer, PendingResponse):
            answers.append(answer)
            self._in_flight_bytes += answer.size
            if answer.size > LARGE_FRAME_BYTES:
                self._parked_bytes += answer.size
            answer.when_ready(self._answer_is_ready)
            self._bound_in_flight()
        elif answers:
            answers.append(answer)
            self._in_flight_bytes += size_of(answer)
            self._bound_in_flight()
        else:
            self._send(answer)
            if self._outbox.size >= WRITE_HIGH_BYTES:
                self.flush()
        if self.info.throttle_ms:
            self._throttle()

    def _must_wait(self, api_key: int) -> bool:
        """Whether a parked request holds back the next request if that is of this API."""
        return any(type(answer) is PendingResponse and answer.holds_back(api_key) for answer in self._answers)

    def _has_enough_in_flight(self) -> bool:
        most = self._rounds.limits
        return len(self._answers) >= most.max_in_flight_requests or self._in_flight_bytes >= most.max_in_flight_bytes

    def _bound_in_flight(self) -> None:
        if self._has_enough_in_flight():
            self._block(IN_FLIGHT)

    def _throttle(self) -> None:
        """Throttles the connection. If throttles overlap, the one that ends last counts."""
        throttle_ms = self.info.throttle_ms
        self.info.throttle_ms = 0
        until_ms = self._rounds.clock.now_ms() + throttle_ms
        if until_ms > self._throttled_until_ms:
            self._throttled_until_ms = until_ms
            self._block(THROTTLED)
            self._server.call_later(throttle_ms / 1000, self._throttle_ends, until_ms)

    def _throttle_ends(self, until_ms: int) -> None:
        if until_ms == self._throttled_until_ms:
            self._throttled_until_ms = 0
            self._unblock(THROTTLED)

    # --- responding ---------------------------------------------------------------------------------------------

    def _answer_is_ready(self, request_bytes: int, answer_bytes: int) -> None:
        """Called when a parked request of `request_bytes` has its response."""
        if self._ended:
            return
        self._in_flight_bytes += answer_bytes - request_bytes
        if request_bytes > LARGE_FRAME_BYTES:
            self._parked_bytes -= request_bytes
            self._holds_too_much()
        if self.info.throttle_ms:
            self._throttle()
        if self._blocked & WRITING and self._in_flight_bytes > self._rounds.limits.max_unread_bytes:
            self._server.warn("client does not read responses", self.info, unread_bytes=self._in_flight_bytes)
            self.cut_off()
            return
        self._advance()

    def _advance(self) -> None:
        """Sends the responses that are next in order."""
        answers = self._answers
        gone = 0
        closing: CloseConnection | None = None
        while gone < len(answers) and closing is None and not self._blocked & WRITING:
            answer = answers[gone]
            if type(answer) is PendingResponse:
                if not answer.ready:
                    break
                self._in_flight_bytes -= answer.size
                closing = answer.closing
                if answer.parts is not None:
                    self._send(answer.parts)
            elif type(answer) is list:
                self._in_flight_bytes -= size_of(answer)
                self._send(answer)
            else:
                closing = cast(CloseConnection, answer)
            gone += 1
            if self._outbox.size >= WRITE_HIGH_BYTES:
                self.flush()
        if gone:
            del answers[:gone]
            self._unblock(HELD)
            if not self._has_enough_in_flight():
                self._unblock(IN_FLIGHT)
        if closing is not None:
            self._close(closing)

    def _close(self, closing: CloseConnection) -> None:
        """Logs the reason, and ends the connection with the last response, after the delay."""
        if closing.reason:
            self._server.warn(closing.reason, self.info, **closing.details)
        if closing.delay_ms:
            delay_s = (closing.delay_ms + TIMER_EARLY_MS) / 1000
            self._server.call_later(delay_s, self._answer_and_end, closing.answer)
        else:
            self._answer_and_end(closing.answer)

    def _answer_and_end(self, answer: list[Part]) -> None:
        if answer and not self._ended:
            self._send(answer)
        self.end()

    def _send(self, parts: list[Part]) -> None:
        self._outbox.add(parts)
        if not self._dirty:
            self._dirty = True
            self._rounds.to_be_flushed(self)

    def flush(self) -> None:
        """Writes the collected responses."""
        self._dirty = False
        outbox = self._outbox
        if not outbox.size or self._ended:
            return
        self._rounds.counters.bytes_out += outbox.size
        if not outbox.write():
            self.pause_writing()

    def _files_ended(self, error: BaseException | None) -> None:
        if error is not None:
            if not isinstance(error, ConnectionError):
                self._server.warn("response not sent from file", self.info, error=str(error))
            self.cut_off()
        elif self._ended:
            self.transport.close()
        else:
            self.resume_writing()

    # --- not reading --------------------------------------------------------------------------------------------

    def _block(self, reason: int) -> None:
        if not self._blocked and not self._ended:
            self.transport.pause_reading()
            self._server.blocked[self] = None
        self._blocked |= reason

    def _unblock(self, reason: int) -> None:
        if not self._blocked & reason:
            return
        self._blocked &= ~reason
        if not self._blocked and not self._resuming:
            self._resuming = True
            self._server.call_soon(self._resume)

    def _resume(self) -> None:
        self._resuming = False
        if self._blocked or self._ended:
            return
        now_ms = self.last_active_ms = self._rounds.enter()
        try:
            large = self._large
            if self._rounds.is_late(now_ms):
                self._yield()
            elif large is not None and large.is_whole:
                self._handle_large(large)
            else:
                kept, self._kept = self._kept, b""
                self._consume(memoryview(kept), len(kept))
            self._holds_too_much()
        finally:
            self._rounds.leave()
        if not self._blocked and not self._ended:
            self._server.blocked.pop(self, None)
            self.transport.resume_reading()

    # --- the end ------------------------------------------------------------------------------------------------

    def _end_in_turn(self, closing: CloseConnection) -> None:
        """Ends the connection when all earlier requests have been answered."""
        self._block(ENDING)
        self._answers.append(closing)
        self._advance()

    def end(self) -> None:
        """Abandons parked requests, sends the ready responses and closes. After a second the server aborts it."""
        if self._ended:
            return
        self._abandon_answers()
        self.flush()
        self._ended = True
        self._server.closing(self)
        if not self._outbox.is_sending_files:
            self.transport.close()

    def end_when_answered(self) -> None:
        """Accepts no more requests; ends when the parked ones have been answered."""
        self._block(ENDING)
        if not self._answers:
            self.end()
        elif type(self._answers[-1]) is not CloseConnection:
            self._answers.append(CloseConnection(""))

    def expire(self) -> None:
        """Ends an idle connection. Aborts it if the client does not read, as it would not read the rest either."""
        if self._blocked & WRITING:
            self._server.warn("client does not read responses", self.info)
            self.cut_off()
        else:
            self.end()

    def cut_off(self) -> None:
        """Aborts the connection."""
        self._ended = True
        self._abandon_answers()
        self.transport.abort()

    def _abandon_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._in_flight_bytes = 0
        for answer in answers:
            if type(answer) is PendingResponse:
                answer.abandon()

    def active_ms(self, now_ms: int) -> int:
        """When the connection was last active. A client that waits for a response or takes one is not idle."""
        if self._blocked & WRITING:
            unwritten_bytes = self._outbox.unwritten_bytes()
            if unwritten_bytes != self._unwritten_bytes:
                self._unwritten_bytes = unwritten_bytes
                self.last_active_ms = now_ms
        elif self._answers:
            self.last_active_ms = now_ms
        return self.last_active_ms
