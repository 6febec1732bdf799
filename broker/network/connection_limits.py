"""How many connections a broker takes, and how much each may have in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from odradek.broker.config import BrokerConfig

LISTEN_BACKLOG = 8192
"""The kernel caps it. With asyncio's 100, ten thousand clients take up to a minute to connect."""
SYSTEMS_CHOICE = -1
"""A socket buffer whose size the operating system adapts."""


class ConnectionLimits(NamedTuple):
    max_request_bytes: int = 104857600
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
    listen_backlog: int = LISTEN_BACKLOG
    receive_buffer_bytes: int = SYSTEMS_CHOICE
    send_buffer_bytes: int = SYSTEMS_CHOICE
    """Of client sockets."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> ConnectionLimits:
        """From settings that have been checked."""
        overrides: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in config["max.connections.per.ip.overrides"].split(","))):
            address, _, count = entry.rpartition(":")
            overrides[address] = int(count)
        return cls(
            max_request_bytes=config["socket.request.max.bytes"],
            idle_ms=config["connections.max.idle.ms"],
            max_connections=config["max.connections"],
            max_connections_per_ip=config["max.connections.per.ip"],
            max_connections_per_ip_overrides=overrides,
            max_in_flight_requests=config["odradek.max.in.flight.requests.per.connection"],
            max_in_flight_bytes=config["odradek.max.in.flight.bytes.per.connection"],
            max_unread_bytes=config["odradek.max.unread.bytes.per.connection"],
            max_unread_bytes_of_all=config["odradek.max.unread.bytes"],
            listen_backlog=_chosen(config, "socket.listen.backlog.size", LISTEN_BACKLOG),
            receive_buffer_bytes=_chosen(config, "socket.receive.buffer.bytes", SYSTEMS_CHOICE),
            send_buffer_bytes=_chosen(config, "socket.send.buffer.bytes", SYSTEMS_CHOICE),
        )


def _chosen(config: BrokerConfig, setting: str, otherwise: int) -> int:
    """A setting whose default in Kafka is too small for us: it counts where somebody has set it."""
    return int(config[setting]) if setting in config.given else otherwise
