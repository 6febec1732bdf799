"""TLS between a socket and a connection: towards the event loop a protocol, towards the connection its transport.

(A) States: HANDSHAKE until both sides agree; OPEN; ENDING while what was written is still sent; REFUSED after a failed
    handshake or a damaged record, while the client reads the alert; GONE.
(B) Reading. What the socket has is decrypted in pieces into the buffer that the connection gives. A connection that is
    paused leaves at most one buffer of the event loop undecrypted.
(C) Writing. What the connection writes is kept as it is, and encrypted while the socket has room: in records of 16 KB
    joined from small parts, TURN_BYTES at most in a turn of the loop. The connection is paused and resumed by the sum
    of what is not encrypted and what the socket has not taken.
(D) The end. After all that was written comes close_notify. After an alert the socket is still read, and what comes is
    dropped: otherwise the system would reset the connection, and the client might not see the alert.
(E) A client that ends without close_notify ends as one without TLS: a request that is cut off has no effect.

Each of OpenSSL's buffers holds about a record: a connection must not keep the memory of its largest read or write.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, cast

from odradek.broker.network.hang_ups import hung_up
from odradek.broker.network.outbox import WRITE_HIGH_BYTES, WRITE_LOW_BYTES
from odradek.broker.security.tls import explained
from odradek.storage.files import Buffer

if TYPE_CHECKING:
    from odradek.broker.network.connection import Connection
    from odradek.broker.network.handshakes import Handshakes
    from odradek.broker.network.listener_tls import ListenerTls

RECORD_BYTES = 16 * 1024
BATCH_BYTES = 8 * RECORD_BYTES
"""Encrypted before it is written to the socket, in one call."""
TURN_BYTES = 1024 * 1024
HANDSHAKE_RECORD = 0x16
"""The first byte that a client with TLS sends."""


class State(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    ENDING = auto()
    REFUSED = auto()
    GONE = auto()


class TlsTransport(asyncio.BufferedProtocol):
    __slots__ = (
        "_connection",
        "_encrypts_later",
        "_first_byte",
        "_handshakes",
        "_high",
        "_incoming",
        "_is_at_end",
        "_is_full",
        "_is_paused",
        "_low",
        "_outgoing",
        "_plain",
        "_plain_bytes",
        "_problem",
        "_resumes_later",
        "_session",
        "_socket",
        "_socket_high",
        "_tls",
        "_undecrypted",
        "state",
    )

    _socket: asyncio.Transport

    def __init__(self, connection: Connection, tls: ListenerTls, handshakes: Handshakes) -> None:
        self.state = State.HANDSHAKE
        self._connection = connection
        self._tls = tls
        self._handshakes = handshakes
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session: ssl.SSLObject | None = None
        """Made for the first step of the handshake: it is what takes memory."""
        self._first_byte: int | None = None
        """None: the client has sent nothing."""
        self._is_paused = False
        """Whether the connection does not want to be given anything."""
        self._resumes_later = False
        self._undecrypted = b""
        self._is_at_end = False
        self._problem: ssl.SSLError | None = None
        self._plain: deque[memoryview] = deque()
        self._plain_bytes = 0
        self._encrypts_later = False
        self._is_full = False
        """Whether the connection was told to pause writing."""
        self._high, self._low = WRITE_HIGH_BYTES, WRITE_LOW_BYTES
        self._socket_high = WRITE_LOW_BYTES

    @property
    def connection(self) -> Connection:
        return self._connection

    # --- called by the event loop -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._limit_socket()
        connection = self._connection
        connection.info.shakes_hands = True
        connection.connection_made(cast(asyncio.BaseTransport, self))
        if self.state is State.HANDSHAKE and not self._handshakes.begin(self, connection.info.client_host):
            self._handshakes.server.refuse(
                connection, "too many TLS handshakes with one address", limit="odradek.max.handshakes.per.ip"
            )

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._handshakes.scratch

    def buffer_updated(self, nbytes: int) -> None:
        data = self._handshakes.scratch[:nbytes]
        if self.state is State.OPEN:
            self._decrypt(data)
        elif self.state is State.HANDSHAKE:
            if self._first_byte is None:
                self._first_byte = data[0]
            self._incoming.write(data)
            self._socket.pause_reading()
            self._handshakes.step_soon(self, self._connection.info.client_host)

    def eof_received(self) -> bool:
        if self.state is State.REFUSED:
            return False
        self._note_end_of_handshake()
        self._connection.eof_received()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_end_of_handshake()
        self._forget()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Needs nothing: `_encrypt` looks at the socket itself."""

    def resume_writing(self) -> None:
        if not self._encrypts_later:
            self._encrypt_on()

    # --- the handshake ------------------------------------------------------------------------------------------

    def shake_hands(self) -> None:
        """Takes the next step, with what the client has sent. One that has gone already costs no first step, which is
        the expensive one."""
        if self.state is not State.HANDSHAKE:
            return
        session = self._session
        if session is None:
            if self._has_hung_up():
                self._note_end_of_handshake()
                self.abort()
                return
            session = self._session = self._tls.new_session(self._incoming, self._outgoing)
        try:
            session.do_handshake()
            principal = self._tls.principal_of(session)
        except ssl.SSLWantReadError:
            self._write_records()
            if not self._socket.is_closing():
                self._socket.resume_reading()
        except ssl.SSLError as error:
            self._handshake_failed(explained(error))
        except ValueError as error:
            self._handshake_failed(str(error))
        else:
            self._handshakes.completed += 1
            self._tls.handshake_ended(is_successful=True)
            self._handshakes.end(self)
            self._connection.info.principal = principal
            self._connection.info.shakes_hands = False
            self.state = State.OPEN
            self._write_records()
            self._read_on()

    def _has_hung_up(self) -> bool:
        """Whether the client has closed its side. Nothing reads a connection that waits for its turn."""
        plain = self._socket.get_extra_info("socket")
        return plain is not None and bool(hung_up((plain.fileno(),)))

    def _note_end_of_handshake(self) -> None:
        """Logs that the client has given up, if it had begun: it may not trust the broker, and not say so."""
        if self.state is State.HANDSHAKE and self._first_byte is not None:
            self._handshakes.failed += 1
            info, reason = self._connection.info, "the client has closed the connection"
            self._handshakes.server.warn("TLS handshake failed", info, error=reason)

    def _handshake_failed(self, reason: str) -> None:
        self._handshakes.failed += 1
        self._tls.handshake_ended(is_successful=False)
        if self._first_byte != HANDSHAKE_RECORD:
            self._refuse("client does not speak TLS, which this listener needs", reason)
        else:
            self._refuse("TLS handshake failed", reason)

    def _refuse(self, event: str, reason: str) -> None:
        self.state = State.REFUSED
        self._handshakes.end(self)
        self._write_records()
        connection = self._connection
        self._handshakes.server.warn(event, connection.info, error=reason)
        connection.end()

    # --- reading ------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._is_paused = True
        if self.state is State.OPEN:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self.state is State.OPEN and not self._resumes_later:
            self._resumes_later = True
            self._handshakes.server.call_soon(self._read_on)

    def _read_on(self) -> None:
        """Gives the connection what it has not had before it was paused, and reads on."""
        self._resumes_later = False
        self._pass_on()
        rest, self._undecrypted = self._undecrypted, b""
        self._decrypt(memoryview(rest))
        if self.state is State.OPEN and not self._is_paused:
            self._socket.resume_reading()

    def _decrypt(self, data: memoryview) -> None:
        for start in range(0, len(data), RECORD_BYTES):
            if self.state is not State.OPEN:
                return
            if self._is_paused:
                self._undecrypted += data[start:].tobytes()
                return
            self._incoming.write(data[start : start + RECORD_BYTES])
            self._pass_on()

    def _pass_on(self) -> None:
        """Gives the connection what can be decrypted now."""
        connection = self._connection
        while self.state is State.OPEN and not self._is_paused:
            room = connection.get_buffer(-1)
            filled = self._read_into(room)
            self._write_records()
            if filled:
                connection.buffer_updated(filled)
            if filled < len(room):
                break
        if self._is_at_end and self.state is State.OPEN and not self._is_paused:
            self._come_to_the_end()

    def _read_into(self, room: memoryview) -> int:
        session = cast(Any, self._session)  # typeshed has no memoryview here
        filled = 0
        try:
            while filled < len(room):
                count: int = session.read(len(room) - filled, room[filled:])
                if not count:
                    self._is_at_end = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._is_at_end = True
        except ssl.SSLError as error:
            self._is_at_end = True
            self._problem = error
        return filled

    def _come_to_the_end(self) -> None:
        if self._problem is not None:
            self._refuse("TLS record is damaged", explained(self._problem))
        else:
            self._connection.eof_received()

    # --- writing ------------------------------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self.state is not State.OPEN:
            return
        for buffer in buffers:
            if len(buffer):
                self._plain.append(memoryview(buffer))
                self._plain_bytes += len(buffer)
        if not self._encrypts_later:
            self._encrypt()
        self._tell()

    def get_write_buffer_size(self) -> int:
        return self._plain_bytes + self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low
        self._limit_socket()
        self._tell()

    def _limit_socket(self) -> None:
        """The socket must report every time it may bring the sum down to `_low`."""
        self._socket_high = min(self._low, WRITE_LOW_BYTES)
        self._socket.set_write_buffer_limits(high=self._socket_high, low=self._socket_high // 2)

    def _encrypt(self) -> None:
        left = TURN_BYTES
        while self._plain and self._socket.get_write_buffer_size() <= self._socket_high:
            if left <= 0:
                self._encrypts_later = True
                self._handshakes.server.call_soon(self._encrypt_later)
                return
            left -= self._encrypt_batch()
        if self.state is State.ENDING and not self._plain:
            self._say_goodbye()

    def _encrypt_later(self) -> None:
        self._encrypts_later = False
        self._encrypt_on()

    def _encrypt_on(self) -> None:
        if self.state in (State.OPEN, State.ENDING):
            self._encrypt()
            self._tell()

    def _encrypt_batch(self) -> int:
        """Encrypts some of what was written and writes it to the socket. Returns how many bytes it was."""
        session = cast(ssl.SSLObject, self._session)
        records: list[bytes] = []
        taken = 0
        try:
            while self._plain and taken < BATCH_BYTES:
                record = self._next_record()
                taken += len(record)
                session.write(cast(bytes, record))
                records.append(self._outgoing.read())
        except ssl.SSLError as error:
            self._handshakes.server.warn("TLS ended", self._connection.info, error=explained(error))
            self.abort()
            return taken
        self._plain_bytes -= taken
        self._socket.writelines(records)
        return taken

    def _next_record(self) -> Buffer:
        plain = self._plain
        first = plain.popleft()
        if len(first) > RECORD_BYTES:
            plain.appendleft(first[RECORD_BYTES:])
            return first[:RECORD_BYTES]
        parts, size = [first], len(first)
        while plain and size + len(plain[0]) <= RECORD_BYTES:
            size += len(plain[0])
            parts.append(plain.popleft())
        return first if len(parts) == 1 else b"".join(parts)

    def _tell(self) -> None:
        """Pauses or resumes the connection."""
        size = self.get_write_buffer_size()
        if self._is_full and size <= self._low:
            self._is_full = False
            self._connection.resume_writing()
        elif not self._is_full and size > self._high:
            self._is_full = True
            self._connection.pause_writing()

    def _write_records(self) -> None:
        """Writes what OpenSSL itself has to say. A client may ask for any number of such records (a KeyUpdate): they
        count, too, for the pause of the connection.
        """
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())
            if self.state is State.OPEN:
                self._tell()

    # --- the end ------------------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self.state not in (State.HANDSHAKE, State.OPEN)

    def close(self) -> None:
        """Sends what was written, and the end, and closes. See D."""
        if self.state is State.REFUSED:
            self._await_end()
        elif self.state is State.HANDSHAKE:
            self._forget()
            self._socket.close()
        elif self.state is State.OPEN:
            self.state = State.ENDING
            self._socket.pause_reading()
            if not self._plain:
                self._say_goodbye()

    def _await_end(self) -> None:
        """Ends our side, and reads on until the client ends its own."""
        if self._socket.is_closing():
            return
        try:
            self._socket.write_eof()
        except OSError:  # the client has reset the connection
            self.abort()
        else:
            self._socket.resume_reading()

    def abort(self) -> None:
        self._forget()
        self._socket.abort()

    def _say_goodbye(self) -> None:
        try:
            cast(ssl.SSLObject, self._session).unwrap()
        except ssl.SSLError:
            pass  # It waits for the client's close_notify, and need not.
        self._write_records()
        self._forget()
        self._socket.close()

    def _forget(self) -> None:
        self.state = State.GONE
        self._handshakes.end(self)
        self._plain.clear()
        self._plain_bytes = 0
        self._undecrypted = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)
