"""How many connections a broker takes, and how much each may have in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.network.open_files import NO_LIMIT, descriptors_for_connections, descriptors_for_sending
from odradek.broker.requests.request_context import CloseConnection
from odradek.protocol.api_keys import ApiKey
from odradek.storage.files import Buffer

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig

LISTEN_BACKLOG = 8192
"""The kernel caps it. With asyncio's 100, ten thousand clients take up to a minute to connect."""
API_KEY_BYTES = 2
SYSTEMS_CHOICE = -1
"""A socket buffer whose size the operating system adapts."""


MIN_FRAME_BYTES = 8
"""API key, version and correlation id."""
MOST_QUEUED_BYTES = 256 * 1024 * 1024


class ConnectionLimits(NamedTuple):
    max_request_bytes: int = 104857600
    """Of a Produce."""
    max_other_request_bytes: int = 16777216
    """Of any other API; not above `max_request_bytes`."""
    max_queued_bytes: int = MOST_QUEUED_BYTES
    """Of all connections: see queued_bytes.py."""
    idle_ms: int = 600_000
    max_connections: int = 2147483647
    max_connections_per_ip: int = 2147483647
    max_connections_per_ip_overrides: Mapping[str, int] = {}
    max_in_flight_requests: int = 512
    max_in_flight_bytes: int = 64 * 1024 * 1024
    """Parked requests and answers that wait behind them. Beyond either a connection is not read."""
    max_unread_bytes: int = 256 * 1024 * 1024
    """Answers of parked requests that became ready for a client that does not read. Beyond it the connection ends."""
    max_unread_bytes_of_all: int = 512 * 1024 * 1024
    """Answers written for clients that do not take them, of all connections. Beyond it those end that take nothing."""
    connection_descriptors: int = NO_LIMIT
    sending_descriptors: int = NO_LIMIT
    """The first descriptors that connections, and connections sending from files, leave alone: see open_files.py."""
    listen_backlog: int = LISTEN_BACKLOG
    receive_buffer_bytes: int = SYSTEMS_CHOICE
    send_buffer_bytes: int = SYSTEMS_CHOICE
    """Of client sockets."""

    def may_be_so_long(self, length: int, beginning: Buffer) -> bool:
        """Whether a frame of this length may be read: for a Produce up to `max_request_bytes`. False also while its API
        is not known. Raises CloseConnection."""
        if not MIN_FRAME_BYTES <= length <= self.max_request_bytes:
            raise CloseConnection("no request has this length", length=length)
        if length <= self.max_other_request_bytes:
            return True
        if len(beginning) < API_KEY_BYTES:
            return False
        api_key = int.from_bytes(beginning[:API_KEY_BYTES], "big", signed=True)
        if api_key != ApiKey.PRODUCE:
            longest = self.max_other_request_bytes
            raise CloseConnection("a request is too long for its API", api_key=api_key, length=length, longest=longest)
        return True

    @classmethod
    def from_config(cls, config: BrokerConfig, open_files: int = NO_LIMIT) -> ConnectionLimits:
        """From settings that have been checked. `open_files`: how many the process may have open."""
        overrides: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in config["max.connections.per.ip.overrides"].split(","))):
            address, _, count = entry.rpartition(":")
            overrides[address] = int(count)
        return cls(
            max_request_bytes=config["socket.request.max.bytes"],
            max_other_request_bytes=min(config["odradek.max.request.bytes"], config["socket.request.max.bytes"]),
            max_queued_bytes=_queued_bytes(config),
            idle_ms=config["connections.max.idle.ms"],
            max_connections=config["max.connections"],
            max_connections_per_ip=config["max.connections.per.ip"],
            max_connections_per_ip_overrides=overrides,
            max_in_flight_requests=config["odradek.max.in.flight.requests.per.connection"],
            max_in_flight_bytes=config["odradek.max.in.flight.bytes.per.connection"],
            max_unread_bytes=config["odradek.max.unread.bytes.per.connection"],
            max_unread_bytes_of_all=config["odradek.max.unread.bytes"],
            connection_descriptors=descriptors_for_connections(open_files),
            sending_descriptors=descriptors_for_sending(open_files),
            listen_backlog=_chosen(config, "socket.listen.backlog.size", LISTEN_BACKLOG),
            receive_buffer_bytes=_chosen(config, "socket.receive.buffer.bytes", SYSTEMS_CHOICE),
            send_buffer_bytes=_chosen(config, "socket.send.buffer.bytes", SYSTEMS_CHOICE),
        )


def _chosen(config: BrokerConfig, setting: str, otherwise: int) -> int:
    """A setting whose default in Kafka is too small for us: it counts where somebody has set it."""
    return int(config[setting]) if setting in config.given else otherwise


def _queued_bytes(config: BrokerConfig) -> int:
    """queued.max.request.bytes; where it is not above 0 Kafka knows no bound, and this is one of our own."""
    chosen: int = config["queued.max.request.bytes"]
    return chosen if chosen > 0 else max(MOST_QUEUED_BYTES, 2 * config["socket.request.max.bytes"])
