"""One connection to a ZooKeeper server: the handshake, then requests and replies in order, events, and pings.

    (A) The first frame asks for a session or continues one. When the server has granted it, the login follows, if there
        is one; then `granted` is called. What is sent before fails. A login that the server does not accept, or a
        server that does not prove that it knows the password, ends the connection: `failed_login` says why.
    (B) At most `max_in_flight` requests are unanswered; the others wait here, in order. Replies arrive in the order of
        the requests. A reply to another request, or one that cannot be read, ends the connection.
    (C) Nothing was sent for a third of the session time-out: a ping is. Nothing was heard for two thirds of it: the
        connection is given up, so that this side knows before the server that its session is in danger. All of this
        happens on the event loop: pings prove that the loop runs.
    (D) When the connection ends, every request without a reply gets ConnectionLost, and `lost` is called, once.

Source: ZooKeeper's `ClientCnxn` (SendThread).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import structlog

from odradek.broker.metadata_store.interface import ConnectionLost, MetadataStoreError, WatchEvent
from odradek.broker.metadata_store.zookeeper import codec
from odradek.broker.metadata_store.zookeeper.codec import BadReply, Chroot, Granted, Request
from odradek.broker.security.digest_md5 import BadChallenge, DigestMd5Client
from odradek.protocol.framing import BadFrame, FrameSplitter

CHECKS = 6
"""How many times in a session time-out the connection looks at the time (C)."""
PING_AFTER = 2
"""Checks without a request, after which a ping is sent."""
GIVEN_UP_AFTER = 4
"""Checks without a reply, after which the connection is given up."""
SECOND_LOOK_S = 0.001
"""After this the socket has been read, even if the loop stood still before."""
LONGEST_XID = 0x7FFFFFFF

log = structlog.get_logger("controller.store")

OnResponse = Callable[[Any], None]
"""Receives the result, or a MetadataStoreError."""


class Session(Protocol):
    """What a connection calls."""

    def granted(self, granted: Granted) -> None: ...
    def event(self, event: WatchEvent) -> None: ...
    def lost(self, connection: ZooKeeperConnection, reason: str) -> None: ...


class _Sent(NamedTuple):
    request: Request
    xid: int
    answered: OnResponse
    at: float


class ZooKeeperConnection(asyncio.BufferedProtocol):
    """`hello` is the first frame; `login` is what follows it, None for nothing. `on_latency` receives the seconds that
    each request took.
    """

    def __init__(
        self,
        server: str,
        session: Session,
        hello: bytes,
        login: DigestMd5Client | None,
        chroot: Chroot,
        max_in_flight: int,
        on_latency: Callable[[float], object],
    ) -> None:
        self.server = server
        self.last_zxid = 0
        """The last transaction that the server has told of."""
        self._session = session
        self._hello = hello
        self._login = login
        self.failed_login = ""
        """Why the server or this side did not accept the login (A)."""
        self._chroot = chroot
        self._max_in_flight = max_in_flight
        self._on_latency = on_latency
        self._frames = FrameSplitter(codec.LONGEST_REPLY)
        self._transport: asyncio.Transport | None = None
        self._granted: Granted | None = None
        self._is_ready = False
        """Whether requests may be sent (A)."""
        self._is_lost = False
        self.reason = "the server has closed the connection"
        self._waiting: deque[tuple[Request, OnResponse]] = deque()
        self._sent: deque[_Sent] = deque()
        self._next_xid = 1
        self._check_s = 0.0
        self._next_check: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._heard_at = 0.0
        self.over = asyncio.Event()
        """Set when there is no socket, or none any more."""

    def send(self, request: Request, answered: OnResponse) -> None:
        """Sends a request in its turn (B)."""
        if self._is_lost or not self._is_ready:
            answered(connection_lost())
            return
        self._waiting.append((request, answered))
        self._send_waiting()

    def send_set_watches(self, request: Request) -> None:
        """Sets watches again, before all requests that are sent later."""
        self._write(request, codec.SET_WATCHES_XID)

    def abort(self, reason: str) -> None:
        """Ends the connection at once (D)."""
        self.reason = reason
        if self._transport is None:
            self.over.set()
        else:
            self._transport.abort()
        self._end()

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.BufferedProtocol."""
        self._transport = cast(asyncio.Transport, transport)
        if self._is_lost:
            self._transport.abort()
            return
        self._heard_at = self._sent_at = _now()
        self._transport.write(self._hello)

    def get_buffer(self, sizehint: int) -> memoryview:
        """See asyncio.BufferedProtocol."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """See asyncio.BufferedProtocol."""
        self._heard_at = _now()
        try:
            for frame in self._frames.filled(nbytes):
                if not self._is_lost:
                    self._received(frame)
        except (BadFrame, BadReply) as error:
            log.error("reply of ZooKeeper not understood", server=self.server, reason=str(error))
            self.abort(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio.BaseProtocol."""
        if error is not None:
            self.reason = str(error) or type(error).__name__
        self.over.set()
        self._end()

    # Requests and replies

    def _received(self, frame: bytes) -> None:
        if self._granted is None:
            self._greeted(codec.read_granted(frame))
            return
        if not self._is_ready:
            self._challenged(frame, self._granted)
            return
        header, position = codec.read_header(frame)
        self.last_zxid = max(self.last_zxid, header.zxid)
        if header.xid == codec.EVENT_XID:
            event = codec.read_event(frame, position, self._chroot)
            if event is not None:
                self._session.event(event)
        elif header.xid not in (codec.PING_XID, codec.SET_WATCHES_XID):
            self._respond(header, frame, position)

    def _greeted(self, granted: Granted) -> None:
        self._granted = granted
        if self._login is None or granted.timeout_ms <= 0:
            self._begin(granted)
        else:
            self._write(codec.login(b""), self._new_xid())

    def _challenged(self, frame: bytes, granted: Granted) -> None:
        """Goes on with the login (A)."""
        assert self._login is not None
        header, position = codec.read_header(frame)
        if header.xid != self._next_xid - 1:
            raise BadReply(f"a reply to request {header.xid} during the login")
        token = codec.read_body(codec.login(b""), header, frame, position)
        try:
            if isinstance(token, MetadataStoreError):
                raise BadChallenge(token.reason)
            response = self._login.respond(token)
        except BadChallenge as error:
            self.failed_login = f"the login of {self._login.username} failed: {error}"
            self.abort(self.failed_login)
            return
        if response is None:
            self._begin(granted)
        else:
            self._write(codec.login(response), self._new_xid())

    def _begin(self, granted: Granted) -> None:
        self._is_ready = True
        if granted.timeout_ms > 0:
            self._check_s = granted.timeout_ms / 1000 / CHECKS
            self._next_check = asyncio.get_running_loop().call_later(self._check_s, self._check)
        self._session.granted(granted)

    def _respond(self, header: codec.Header, frame: bytes, position: int) -> None:
        if not self._sent or self._sent[0].xid != header.xid:
            expected = self._sent[0].xid if self._sent else "none"
            raise BadReply(f"a reply to request {header.xid}, where {expected} was to be answered")
        if header.error in (codec.SESSION_EXPIRED, codec.SESSION_MOVED):
            self.abort("the server does not have the session")
            return
        if header.error == codec.LOGIN_REQUIRED:
            self.abort("the server requires a SASL login")
            return
        sent = self._sent[0]
        result = codec.read_body(sent.request, header, frame, position)
        self._sent.popleft()
        self._on_latency(_now() - sent.at)
        self._send_waiting()
        sent.answered(result)

    def _send_waiting(self) -> None:
        while self._waiting and len(self._sent) < self._max_in_flight:
            request, answered = self._waiting.popleft()
            xid = self._new_xid()
            self._sent.append(_Sent(request, xid, answered, _now()))
            self._write(request, xid)

    def _new_xid(self) -> int:
        xid = self._next_xid
        self._next_xid = xid + 1 if xid < LONGEST_XID else 1
        return xid

    def _write(self, request: Request, xid: int) -> None:
        assert self._transport is not None
        self._sent_at = _now()
        self._transport.write(request.frame(xid))

    # Time

    def _check(self) -> None:
        """Sends a ping, or gives the connection up (C)."""
        self._next_check = None
        if self._is_lost:
            return
        now, loop = _now(), asyncio.get_running_loop()
        if now - self._heard_at >= GIVEN_UP_AFTER * self._check_s:
            loop.call_later(SECOND_LOOK_S, self._give_up, self._heard_at)
            return
        if now - self._sent_at >= PING_AFTER * self._check_s * 0.99:
            self._write(codec.ping(), codec.PING_XID)
        self._next_check = loop.call_later(self._check_s, self._check)

    def _give_up(self, heard_at: float) -> None:
        """Unless the loop stood still, and what came meanwhile has only now been read."""
        if self._heard_at != heard_at:
            self._check()
        elif not self._is_lost:
            self.abort(f"nothing heard for {(_now() - heard_at) * 1000:.0f} ms")

    def _end(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        if self._next_check is not None:
            self._next_check.cancel()
        unanswered = [*(sent.answered for sent in self._sent), *(answered for _, answered in self._waiting)]
        self._sent.clear()
        self._waiting.clear()
        for answered in unanswered:
            answered(connection_lost())
        self._session.lost(self, self.reason)


def connection_lost() -> ConnectionLost:
    """The result of a request whose reply did not come."""
    return ConnectionLost("", "the connection to ZooKeeper is lost")


def _now() -> float:
    return asyncio.get_running_loop().time()
