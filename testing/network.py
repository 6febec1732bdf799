"""The network between the nodes of a cluster within this process: real sockets, and what can go wrong between them.

    (A) A cut between two nodes drops their packets: connections between them stay open, but neither side receives
        anything, not even their end; a new connection is not established. When it heals, everything arrives that was
        sent meanwhile, as with TCP. Who waits must have a time-out.
    (B) A node whose replication is frozen receives nothing on the connections of its fetchers.

Connections of clients, which are no nodes, are left alone. The nodes must listen on the addresses at which the others
connect to them.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from odradek.clients.network_client import NetworkClient

if TYPE_CHECKING:
    from odradek.testing.gates import Gate, OwnLoop

Address = tuple[str, int]

FETCHER = "-fetcher-"
"""Part of the client id of a fetcher's connection."""


class _End:
    """One end of a connection. `other_id` is the node at the other one; None: a client, or not known yet.
    `is_accepted`: the other end has been open.
    """

    __slots__ = ("here", "is_accepted", "other", "other_id", "there")

    def __init__(self, here: Address, there: Address, other_id: int | None) -> None:
        self.here = here
        self.there = there
        self.other_id = other_id
        self.is_accepted = False
        self.other: Gate | None = None
        """The gate at the other end, while the connection has both."""


class Network:
    """`purpose` is the client id of the connection that is being opened, if a broker opens it."""

    def __init__(self) -> None:
        self.purpose: ContextVar[str] = ContextVar("purpose", default="")
        self._listeners: dict[Address, int] = {}
        self._cuts: dict[frozenset[int], None] = {}
        self._frozen: dict[int, None] = {}
        self._paused: dict[int, None] = {}
        self._ends: dict[Gate, _End] = {}
        """All ends of open connections that are at a node."""
        self._gates: dict[tuple[Address, Address], Gate] = {}
        """The same by address: (own, other)."""
        self._waiting: dict[asyncio.Future[None], frozenset[int]] = {}

    # For those who break it

    def cut(self, a: int, b: int) -> None:
        """Cuts the way between two nodes (A)."""
        self._cuts[frozenset((a, b))] = None
        self._refresh()

    def heal(self, a: int, b: int) -> None:
        """Ends a cut."""
        self._cuts.pop(frozenset((a, b)), None)
        self._refresh()
        for waiting, ends in list(self._waiting.items()):
            if ends not in self._cuts and not waiting.done():
                waiting.set_result(None)

    def cuts_of(self, node_id: int) -> list[int]:
        """Returns the nodes from which a node is cut off."""
        return sorted(other for ends in self._cuts if node_id in ends for other in ends - {node_id})

    def freeze(self, node_id: int) -> None:
        """Freezes a node's replication (B)."""
        self._frozen[node_id] = None
        self._refresh()

    def thaw(self, node_id: int) -> None:
        """Ends `freeze`."""
        self._frozen.pop(node_id, None)
        self._refresh()

    def is_frozen(self, node_id: int) -> bool:
        """Whether a node's replication is frozen."""
        return node_id in self._frozen

    def _refresh(self) -> None:
        for gate in list(self._ends):
            gate.refresh()

    # For nodes

    async def connect(self, host: str, port: int, *, client_id: str = "", **options: Any) -> NetworkClient:
        """The `connect` of a broker: opens a connection whose purpose is known."""
        token = self.purpose.set(client_id)
        try:
            return await NetworkClient.connect(host, port, client_id=client_id, **options)
        finally:
            self.purpose.reset(token)

    def paused(self, node_id: int) -> None:
        """A node accepts no connections until `resumed`."""
        self._paused[node_id] = None

    def resumed(self, node_id: int) -> None:
        """Ends `paused`."""
        self._paused.pop(node_id, None)

    def listens(self, node_id: int, address: Address) -> None:
        """A node listens on this address."""
        self._listeners[address] = node_id

    async def way_to(self, loop: OwnLoop, address: Address) -> None:
        """Waits while the node is cut off from the one that listens there."""
        other = self._listeners.get(address)
        while other is not None and (ends := frozenset((loop.node_id, other))) in self._cuts:
            waiting = loop.create_future()
            self._waiting[waiting] = ends
            try:
                await waiting
            finally:
                del self._waiting[waiting]

    def opened(self, gate: Gate) -> None:
        """A node has a new connection. Either of its two ends may be the first one here."""
        here, there = socket_address(gate.get_extra_info("sockname")), socket_address(gate.get_extra_info("peername"))
        self._gates[here, there] = gate
        self._ends[gate] = _End(here, there, self._listeners.get(there) if gate.is_outgoing else None)
        other = self._gates.get((there, here))
        if other is not None:
            for one, its_other in ((gate, other), (other, gate)):
                end = self._ends[one]
                end.other, end.other_id, end.is_accepted = its_other, its_other.loop.node_id, True
            other.refresh()

    def closed(self, gate: Gate) -> None:
        """A node has a connection no more."""
        end = self._ends.pop(gate, None)
        if end is not None and self._gates.get((end.here, end.there)) is gate:
            del self._gates[end.here, end.there]
        if end is not None and end.other in self._ends:
            self._ends[end.other].other = None

    def is_expecting(self, gate: Gate) -> bool:
        """Whether a node is at the other end, or will be without being resumed, and this one has yet to hear that the
        connection ends.
        """
        end = self._ends[gate]
        if end.other_id is None or (end.other_id in self._paused and not end.is_accepted):
            return False
        return not gate.has_heard_the_end

    def other_end(self, gate: Gate) -> Gate | None:
        """Returns the gate at the other end; None if that is not open yet, or no more."""
        return self._ends[gate].other

    def is_blocked(self, gate: Gate) -> bool:
        """Whether nothing arrives that was sent to this end of a connection."""
        node_id, end = gate.loop.node_id, self._ends.get(gate)
        if end is not None and end.other_id is not None and frozenset((node_id, end.other_id)) in self._cuts:
            return True
        return node_id in self._frozen and FETCHER in gate.purpose


def socket_address(name: Any) -> Address:
    """Returns host and port of a socket's name, which has more than that for IPv6."""
    return (str(name[0]), int(name[1])) if name else ("", 0)
