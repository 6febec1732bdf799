"""This broker's connections to the others: one `Peer` for each broker and purpose.

Requests on one connection are answered in order, so a purpose whose requests may wait at the other broker (a fetcher)
must not share its connection with another one. The purpose is part of the client id that the other broker sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.peers.inter_broker_protocol import INTER_BROKER_VERSIONS
from odradek.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from odradek.broker.peers.peer import Peer
    from odradek.clients.network_client import Connect


class Peers:
    """Brokers are reached on the inter-broker `listener` at the address with which they are registered now.

    `registered(broker_id)` looks a broker up, as `MetadataCache.brokers.get` does.
    """

    def __init__(
        self,
        registered: Callable[[int], BrokerInfo | None],
        *,
        broker_id: int,
        listener: str,
        spawn: Spawn,
        connect: Connect | None = None,
        connect_timeout_ms: int,
        required: Mapping[ApiKey, int] = INTER_BROKER_VERSIONS,
    ) -> None:
        """`broker_id` is this broker's. `connect_timeout_ms`: the most that each step of connecting may take.
        `required`: what another broker must serve, see inter_broker_protocol.py.
        """
        self._registered = registered
        self._broker_id = broker_id
        self._listener = listener
        self._spawn = spawn
        self._connect = connect
        self._connect_timeout_ms = connect_timeout_ms
        self._required = required
        self._peers: dict[tuple[int, str], Peer] = {}
        self._controlled: dict[int, BrokerInfo] = {}

    def peer(self, broker_id: int, purpose: str) -> Peer:
        """Returns the connection to a broker for a purpose: always the same one."""
        return self._peer(broker_id, purpose, self._registered)

    def channel_to(self, broker: BrokerInfo) -> Peer:
        """Returns the controller's connection to a broker. A controller knows registrations before others do, so this
        one goes to the registration that was last given here, whatever the look-up says. A connection to an earlier
        registration ends.
        """
        self._controlled[broker.broker_id] = broker
        peer = self._peer(broker.broker_id, "controller", self._controlled.get)
        peer.refresh()
        return peer

    def _peer(self, broker_id: int, purpose: str, registered: Callable[[int], BrokerInfo | None]) -> Peer:
        key = (broker_id, purpose)
        if key not in self._peers:
            # A lone broker has no connections, and so does not import the client.
            from odradek.broker.peers.peer import Peer
            from odradek.clients.network_client import NetworkClient

            self._peers[key] = Peer(
                broker_id,
                registered,
                listener=self._listener,
                client_id=f"broker-{self._broker_id}-{purpose}",
                connect=self._connect or NetworkClient.connect,
                spawn=self._spawn,
                connect_timeout_ms=self._connect_timeout_ms,
                required=self._required,
            )
        return self._peers[key]

    def refresh(self) -> None:
        """Ends the connections to brokers that are no longer registered as they were. Call it after such a change."""
        for peer in self._peers.values():
            peer.refresh()

    async def close(self) -> None:
        """Ends all connections for good."""
        for peer in self._peers.values():
            await peer.close()
