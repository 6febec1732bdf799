"""One end of a connection of the simulated network, as asyncio's transports.

A sender has WINDOW_BYTES under way or unread at the receiver; the rest waits in its transport, which calls
`pause_writing` and `resume_writing`. What a cut keeps is held; after RESET_AFTER_S the sender gives up. A connection
that one side has given up answers whatever still arrives with a reset, unless that is cut.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from contextvars import Context
from typing import TYPE_CHECKING, Any

from tests.simulation.loop import Node

if TYPE_CHECKING:
    from tests.simulation.network import Address, Link, Network

WINDOW_BYTES = 256 * 1024
HIGH_WATER_BYTES = 64 * 1024
RESET_AFTER_S = (4.0, 12.0)


class Transport(asyncio.Transport):
    """One end of a connection. What arrives is delivered in the context of its node."""

    def __init__(self, network: Network, node: Node, context: Context, address: Address) -> None:
        super().__init__()
        self.node = node
        self.host = node.name
        self.context = context
        self.address = address
        self.peer: Transport = self
        self.way_out: Link
        """The direction from this end to the other."""
        self.is_broken = False
        """Whether connection_lost has been, or is about to be called."""
        self.unread_bytes = 0
        """What this end has sent and the other has not read."""
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        self._is_buffered = False
        self._is_reading = True
        self._is_closing = False
        self._is_writing_paused = False
        self._high_water = HIGH_WATER_BYTES
        self._low_water = HIGH_WATER_BYTES // 4
        self._last_arrival_us = 0
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._held: deque[bytes | None] = deque()
        """What a cut keeps from this end; None: the end of the stream."""
        self._held_timer: Any = None
        self._received: deque[bytes | None] = deque()
        """What has arrived and the protocol has not taken."""

    def join(self, peer: Transport) -> None:
        """Makes the two transports the ends of one connection."""
        self.peer = peer
        peer.peer = self
        self.way_out = self._network.link(self.host, peer.host)
        peer.way_out = self._network.link(peer.host, self.host)

    def begin(self, protocol: Any) -> None:
        """Starts to deliver to the protocol."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        self._deliver()

    # --- asyncio's transport ------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The addresses. There is no socket."""
        return {"peername": self.peer.address, "sockname": self.address}.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        """See asyncio."""
        self._protocol = protocol
        self._is_buffered = hasattr(protocol, "get_buffer")

    def get_protocol(self) -> Any:
        """See asyncio."""
        return self._protocol

    def is_closing(self) -> bool:
        """See asyncio."""
        return self._is_closing or self.is_broken

    def is_reading(self) -> bool:
        """See asyncio."""
        return self._is_reading and not self.is_closing()

    def pause_reading(self) -> None:
        """See asyncio."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """See asyncio."""
        if not self._is_reading:
            self._is_reading = True
            if self._received:
                self._loop.call_soon(self._deliver, context=self.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See asyncio."""
        self._high_water = HIGH_WATER_BYTES if high is None else high
        self._low_water = self._high_water // 4 if low is None else low
        self._pause_if_full()

    def get_write_buffer_size(self) -> int:
        """See asyncio."""
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See asyncio."""
        return self._low_water, self._high_water

    def write(self, data: Any) -> None:
        """See asyncio."""
        if self.is_closing() or not data:
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._send()
        self._pause_if_full()

    def writelines(self, list_of_data: Any) -> None:
        """See asyncio."""
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        """See asyncio."""
        return False

    def close(self) -> None:
        """See asyncio: what was written is still sent."""
        if not self.is_closing():
            self._is_closing = True
            self._received.clear()
            self._end_if_all_is_sent()

    def abort(self) -> None:
        """See asyncio: what was not sent is dropped, and the other side is reset."""
        if not self.is_broken:
            self.peer.drop_held()
            self.peer.reset_soon("aborted")
            self._break(None)

    # --- sending ------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Sends what the window has room for."""
        while self._unsent and self.unread_bytes < WINDOW_BYTES:
            data = self._unsent.popleft()
            room = WINDOW_BYTES - self.unread_bytes
            if len(data) > room:
                self._unsent.appendleft(data[room:])
                data = data[:room]
            self._unsent_bytes -= len(data)
            self.unread_bytes += len(data)
            self._transmit(data)

    def _transmit(self, data: bytes) -> None:
        network = self._network
        host = network.hosts[self.peer.host]
        if not self.peer.node.is_alive and host.is_up and host.node is not self.peer.node:
            if not self.peer.way_out.is_cut:
                self.reset_soon("unknown to the peer")
            return
        source = network.source
        if len(data) > 1 and source.random() < network.split_chance:
            at = source.randrange(1, len(data))
            self._depart(data[:at])
            data = data[at:]
        self._depart(data)

    def _depart(self, data: bytes | None) -> None:
        loop, peer = self._loop, self.peer
        arrival_us = loop.now_us + self._network.delay_us(self.way_out, len(data or b""))
        if arrival_us < self._last_arrival_us:
            arrival_us = self._last_arrival_us
        self._last_arrival_us = arrival_us
        loop.call_at(arrival_us / 1e6, peer.arrive, data, context=peer.context)

    def _pause_if_full(self) -> None:
        if self._unsent_bytes > self._high_water and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()

    def _send_more(self) -> None:
        """The peer has read something."""
        if self.is_broken:
            return
        self._send()
        if self._unsent_bytes <= self._low_water and self._is_writing_paused:
            self._is_writing_paused = False
            self._protocol.resume_writing()
        self._end_if_all_is_sent()

    def _end_if_all_is_sent(self) -> None:
        if self._is_closing and not self._unsent and not self.is_broken:
            if self.peer.node.is_alive:
                self._depart(None)
            self._break(None)

    # --- receiving ----------------------------------------------------------------------------------------------

    def arrive(self, data: bytes | None) -> None:
        """A chunk has come to the end of its way, or the end of the stream."""
        if self._held or self.peer.way_out.is_cut:
            self._hold(data)
            return
        if self._is_closing or self.is_broken:
            if data is not None and not self.peer.is_broken:
                self.peer.reset_soon("closed by the peer")
            return
        self._network.messages += 1
        self._network.on_event("deliver", self.peer.host, self.host, b"" if data is None else data)
        self._received.append(data)
        if len(self._received) == 1:
            self._deliver()

    def _hold(self, data: bytes | None) -> None:
        self._held.append(data)
        if self._held_timer is None:
            after = self._network.source.uniform(*RESET_AFTER_S)
            self._held_timer = self._loop.call_later(after, self._give_up, context=self.peer.context)

    def _give_up(self) -> None:
        """What is held has not been acknowledged for too long: the sender ends the connection."""
        self._held_timer = None
        if self._held:
            self._held.clear()
            self.peer.break_off(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def release(self) -> None:
        """The cut has ended: what was held arrives, in order."""
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None
        self._loop.call_soon(self._arrive_late, context=self.context)

    def drop_held(self) -> None:
        """The sender has given up what a cut holds."""
        self._held.clear()

    def _arrive_late(self) -> None:
        held, self._held = self._held, deque()
        for data in held:
            self.arrive(data)

    def _deliver(self) -> None:
        received = self._received
        while received and self._protocol is not None and self.is_reading():
            data = received[0]
            if data is None:
                received.popleft()
                if not self._protocol.eof_received():
                    self.close()
            elif self._is_buffered:
                self._fill_buffer(data)
            else:
                received.popleft()
                self._protocol.data_received(data)
                self._has_read(len(data))

    def _fill_buffer(self, data: bytes) -> None:
        buffer = memoryview(self._protocol.get_buffer(-1))
        size = len(data)
        if size <= len(buffer):
            buffer[:size] = data
            self._received.popleft()
        else:
            size = len(buffer)
            buffer[:] = data[:size]
            self._received[0] = data[size:]
        self._protocol.buffer_updated(size)
        self._has_read(size)

    def _has_read(self, size: int) -> None:
        self.peer.unread_bytes -= size
        if self.peer._unsent:
            self._loop.call_soon(self.peer._send_more, context=self.peer.context)

    # --- the end ------------------------------------------------------------------------------------------------

    def reset_soon(self, why: str) -> None:
        """The other side, or something between, ends the connection: this end learns of it when the news arrives."""
        if not self.is_broken and self.node.is_alive:
            delay_us = self._network.delay_us(self.peer.way_out)
            self._loop.call_later(delay_us / 1e6, self._be_reset, why, context=self.context)

    def _be_reset(self, why: str) -> None:
        if not self.peer.way_out.is_cut or why == "cut off":
            self._network.on_event(f"reset, {why}", self.peer.host, self.host, b"")
            self.break_off(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))

    def break_off(self, error: OSError) -> None:
        """Ends this end with an error."""
        if not self.is_broken:
            self._break(error)

    def vanish(self, *, silently: bool) -> None:
        """The node of this end was killed."""
        self.is_broken = True
        self._forget()
        if not silently:
            self.peer.reset_soon("its process has ended")

    def _break(self, error: OSError | None) -> None:
        self.is_broken = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._received.clear()
        self._loop.call_soon(self._lose, error, context=self.context)
        self._forget()

    def _forget(self) -> None:
        if self.peer.is_broken:
            self._network.connections.pop(self, None)
            self._network.connections.pop(self.peer, None)

    def _lose(self, error: OSError | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)
