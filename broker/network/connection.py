"""One client's connection: bytes become frames, frames become answers, answers go out in the order of their requests.

Reading. All connections share one scratch buffer, which the event loop fills and `buffer_updated` empties before
anyone else can use it: nothing that lives on after it points there. A frame is copied out whole; the start of one that
is cut is kept in `_kept` and put before the next read. A frame above 64 KB is read into chunks of its own
(large_frame.py).

Fairness. What one read brought may be ten thousand requests. A connection that has been handled for `TURN_MS` lets the
others have their turn before it goes on.

Answering. A request is handled when its last byte is there, also while earlier ones are parked. What is ready in order
is collected in the outbox and written once per callback. `_answers` holds what cannot go out yet, in order: (a) an
encoded answer behind a parked one, (b) a parked request, (c) the end of the connection, which comes when everything
before it has been answered.

Not reading. Each of the seven reasons below stops reading and handling; what was read by then waits in `_kept`. The end
of a stream cannot be seen while nothing is read: the socket server looks for it.

The end. A client that closes its side, a broken connection, a frame that is no request, silence for too long, the
broker's stop: parked requests are abandoned (their purgatories let go of them) and nothing is left behind.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from odradek.broker.network.connection_limits import MIN_FRAME_BYTES
from odradek.broker.network.file_sending import RunInThread
from odradek.broker.network.large_frame import LargeFrame
from odradek.broker.network.outbox import WRITE_HIGH_BYTES, Outbox
from odradek.broker.network.queued_bytes import QueuedBytes
from odradek.broker.network.rounds import Flushable, Rounds
from odradek.broker.requests.parked_answer import ParkedAnswer, Part, size_of
from odradek.broker.requests.request_bound import LARGE_FRAME_BYTES
from odradek.broker.requests.request_context import CloseConnection, ConnectionInfo

if TYPE_CHECKING:
    from odradek.broker.requests.endpoint import Endpoint

_LENGTH = struct.Struct(">i").unpack_from
_API_KEY = struct.Struct(">h").unpack_from

TURN_MS = 10
NOT_LOOKED_AT = -1

# Why a connection is not read. Bits.
WRITING = 1  # The client does not take its answers as fast as they come.
IN_FLIGHT = 2  # Too much is parked.
HELD = 4  # The next request must wait for a parked one.
THROTTLED = 8  # KIP-219
ENDING = 16  # The connection ends when the answers before its end are out.
YIELDING = 32  # It has had its turn.
QUEUED = 64  # All connections together have sent too much (queued_bytes.py).


class Server(Protocol):
    """What a connection uses of the socket server that has it."""

    rounds: Rounds
    run_in_thread: RunInThread
    blocked: dict[Connection, None]
    not_read_by: dict[Connection, int]
    queued: QueuedBytes[Connection]

    def opened(self, connection: Connection) -> None: ...

    def closing(self, connection: Connection) -> None: ...

    def lost(self, connection: Connection) -> None: ...

    def warn(self, event: str, info: ConnectionInfo, **details: Any) -> None: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> object: ...


class Connection(Flushable):
    """An asyncio.BufferedProtocol in all but name: a compiled class has no base that is not compiled. socket_server.py
    wraps it for the loop that asks for the name.
    """

    __slots__ = (
        "_answers",
        "_begins_anew",
        "_blocked",
        "_dirty",
        "_ended",
        "_held_bytes",
        "_in_flight_bytes",
        "_kept",
        "_large",
        "_outbox",
        "_parked_bytes",
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

    def __init__(self, server: Server, listener: Endpoint) -> None:
        self._server = server
        self._rounds = server.rounds
        self.info = ConnectionInfo(listener)
        self.last_active_ms = 0
        self.close_by_ms = 0
        """When a closing connection is cut off, whatever it has left to write. 0: it is not closing."""
        self._unwritten_bytes = 0
        self._kept = b""
        self._large: LargeFrame | None = None
        self._answers: list[ParkedAnswer | list[Part] | CloseConnection] = []
        self._in_flight_bytes = 0
        self._parked_bytes = 0
        """Of large requests that are not answered."""
        self._held_bytes = 0
        """What the server knows to be queued here."""
        self._begins_anew = False
        """Whether a request has been handled since the server was told."""
        self._throttled_until_ms = 0
        self._blocked = 0
        self._dirty = False
        self._resuming = False
        self._ended = False

    # --- the event loop's side ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        server = self._server
        descriptors = self._rounds.limits.sending_descriptors
        self._outbox = Outbox(self.transport, server.run_in_thread, self._files_ended, descriptors)
        server.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return self._large.room()
        scratch = self._rounds.scratch
        kept = self._kept
        if not kept:
            return scratch
        scratch[: len(kept)] = kept
        return scratch[len(kept) :]

    def buffer_updated(self, nbytes: int) -> None:
        rounds = self._rounds
        self.last_active_ms = rounds.enter()
        rounds.counters.bytes_in += nbytes
        try:
            if self._large is not None:
                frame = self._large.filled(nbytes)
                if frame is not None:
                    self._large_frame_is_whole(frame)
            else:
                end = len(self._kept) + nbytes
                self._kept = b""
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
        """Handles every whole frame of data[:end] and keeps the rest."""
        longest = self._rounds.limits.max_other_request_bytes
        position = 0
        while not self._blocked and end - position >= 4:
            length: int = _LENGTH(data, position)[0]
            start = position + 4
            stop = start + length
            if not MIN_FRAME_BYTES <= length <= longest and not self._may_be_so_long(length, data[start:end]):
                break
            if stop > end:
                if length > LARGE_FRAME_BYTES and end - start >= 2:
                    if self._answers and self._must_wait(_API_KEY(data, start)[0]):
                        self._block(HELD)
                        break
                    self._large = LargeFrame(data[start:end].tobytes(), length)
                    return
                break
            if self._answers and self._must_wait(_API_KEY(data, start)[0]):
                self._block(HELD)
                break
            position = stop
            self._handle(data[start:stop].tobytes())
            if position < end and not self._blocked and self._rounds.clock.now_ms() - self.last_active_ms >= TURN_MS:
                self._block(YIELDING)
                self._server.call_soon(self._unblock, YIELDING)
        if position < end and not self._blocked & ENDING and not self._ended:
            self._kept = data[position:end].tobytes()

    def _may_be_so_long(self, length: int, beginning: memoryview) -> bool:
        """Whether a frame that is too long for most APIs may be read. If it never may, the connection ends."""
        try:
            return self._rounds.limits.may_be_so_long(length, beginning)
        except CloseConnection as closing:
            self._end_in_turn(closing)
            return False

    def _large_frame_is_whole(self, frame: bytes) -> None:
        self._large = None
        self._handle(frame)

    def _holds_too_much(self) -> bool:
        """Reports what is queued here to the server. True where all connections together hold too much."""
        held = self._parked_bytes + (len(self._kept) if self._large is None else self._large.size)
        if self._held_bytes and (self._begins_anew or not held):
            self._server.queued.release(self)
        self._held_bytes = held
        self._begins_anew = False
        return held > 0 and not self._server.queued.hold(self, held)

    @property
    def is_awaited(self) -> bool:
        """Whether the rest of a frame is missing and would be read."""
        return not self._blocked and (self._large is not None or bool(self._kept))

    def read_on(self) -> None:
        """There may be memory for what comes next."""
        self._unblock(QUEUED)

    # --- handling -----------------------------------------------------------------------------------------------

    def _handle(self, frame: bytes) -> None:
        answers = self._answers
        self._begins_anew = True
        try:
            answer = self._rounds.dispatch(frame, self.info, self.last_active_ms)
        except CloseConnection as closing:
            self._end_in_turn(closing)
            return
        if answer is None:
            pass
        elif isinstance(answer, ParkedAnswer):
            answers.append(answer)
            self._in_flight_bytes += answer.size
            if answer.size > LARGE_FRAME_BYTES:
                self._parked_bytes += answer.size
            answer.when_ready(self._answer_is_ready)
            self._bound_what_is_in_flight()
        elif answers:
            answers.append(answer)
            self._in_flight_bytes += size_of(answer)
            self._bound_what_is_in_flight()
        else:
            self._send(answer)
            if self._outbox.size >= WRITE_HIGH_BYTES:
                self.flush()
        if self.info.throttle_ms:
            self._throttle()

    def _must_wait(self, api_key: int) -> bool:
        """Whether a parked request holds back the next one, which is of this API."""
        return any(type(answer) is ParkedAnswer and answer.holds(api_key) for answer in self._answers)

    def _has_enough_in_flight(self) -> bool:
        most = self._rounds.limits
        return len(self._answers) >= most.max_in_flight_requests or self._in_flight_bytes >= most.max_in_flight_bytes

    def _bound_what_is_in_flight(self) -> None:
        if self._has_enough_in_flight():
            self._block(IN_FLIGHT)

    def _throttle(self) -> None:
        """Of several throttles the one that ends last counts."""
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

    # --- answering ----------------------------------------------------------------------------------------------

    def _answer_is_ready(self, request_bytes: int, answer_bytes: int) -> None:
        """A parked request of so many bytes has its answer."""
        if self._ended:
            return
        self._in_flight_bytes += answer_bytes - request_bytes
        if request_bytes > LARGE_FRAME_BYTES:
            self._parked_bytes -= request_bytes
            self._holds_too_much()
        if self.info.throttle_ms:
            self._throttle()
        if self._blocked & WRITING and self._in_flight_bytes > self._rounds.limits.max_unread_bytes:
            self._server.warn("a client does not read its answers", self.info, unread_bytes=self._in_flight_bytes)
            self.cut_off()
            return
        self._advance()

    def _advance(self) -> None:
        """Sends what has its turn."""
        answers = self._answers
        gone = 0
        closing: CloseConnection | None = None
        while gone < len(answers) and closing is None and not self._blocked & WRITING:
            answer = answers[gone]
            if type(answer) is ParkedAnswer:
                if not answer.ready:
                    break
                self._in_flight_bytes -= answer.size
                closing = answer.closing
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
            if closing.reason:
                self._server.warn(closing.reason, self.info, **closing.details)
            self.end()

    def _send(self, parts: list[Part]) -> None:
        self._outbox.add(parts)
        if not self._dirty:
            self._dirty = True
            self._rounds.to_be_flushed(self)

    def flush(self) -> None:
        """Writes what is ready."""
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
                self._server.warn("an answer could not be sent from its file", self.info, error=str(error))
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
        self.last_active_ms = self._rounds.enter()
        try:
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
        """Ends the connection when what came before has been answered."""
        self._block(ENDING)
        self._answers.append(closing)
        self._advance()

    def end(self) -> None:
        """Abandons what is parked, sends what is answered and closes; cut off a second later if that takes longer."""
        if self._ended:
            return
        self._abandon_answers()
        self.flush()
        self._ended = True
        self._server.closing(self)
        if not self._outbox.is_sending_files:
            self.transport.close()

    def end_when_answered(self) -> None:
        """Takes no more requests; ends when those that are parked have been answered."""
        self._block(ENDING)
        if not self._answers:
            self.end()
        elif type(self._answers[-1]) is not CloseConnection:
            self._answers.append(CloseConnection(""))

    def expire(self) -> None:
        """Ends an idle connection; one that never took its answers will not take them now either."""
        if self._blocked & WRITING:
            self._server.warn("a client does not read its answers", self.info)
            self.cut_off()
        else:
            self.end()

    def cut_off(self) -> None:
        """Ends the connection now."""
        self._ended = True
        self._abandon_answers()
        self.transport.abort()

    def _abandon_answers(self) -> None:
        answers, self._answers = self._answers, []
        self._in_flight_bytes = 0
        for answer in answers:
            if type(answer) is ParkedAnswer:
                answer.abandon()

    def active_ms(self, now_ms: int) -> int:
        """When it last did anything. Whoever waits for us, or takes what we write, is not idle."""
        if self._blocked & WRITING:
            unwritten_bytes = self._outbox.unwritten_bytes()
            if unwritten_bytes != self._unwritten_bytes:
                self._unwritten_bytes = unwritten_bytes
                self.last_active_ms = now_ms
        elif self._answers:
            self.last_active_ms = now_ms
        return self.last_active_ms
