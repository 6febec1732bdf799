"""How many connections a broker accepts, and how much each of them may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.network.open_files import NO_LIMIT, descriptors_for_connections, descriptors_for_sending
from odradek.broker.requests.request_context import CloseConnection
from odradek.broker.settings import BrokerSettings, Setting
from odradek.protocol.api_keys import ApiKey
from odradek.storage.files import Buffer

if TYPE_CHECKING:
    from odradek.broker.settings.config import BrokerConfig

LISTEN_BACKLOG = 8192
"""The kernel caps it. With asyncio's default of 100, ten thousand clients take up to a minute to connect."""
API_KEY_BYTES = 2
SYSTEMS_CHOICE = -1
"""The operating system chooses the size of the socket buffer."""


TLS_BEGINNINGS = range(0x160300, 0x160304)
"""The first three bytes of a client that speaks TLS: a handshake record, and a version."""
SPEAKS_TLS = "client speaks TLS, which this listener does not"
MIN_FRAME_BYTES = 8
"""API key, version and correlation id."""
MOST_QUEUED_BYTES = 256 * 1024 * 1024


def begins_tls(length: int) -> bool:
    """Whether the length of a frame is what a client sends first that speaks TLS."""
    return length >> 8 in TLS_BEGINNINGS


def refused_before_login(length: int, longest: int) -> CloseConnection:
    """Returns what ends a connection whose frame is too short or too long before its client has logged in."""
    if length > longest and begins_tls(length):
        return CloseConnection(SPEAKS_TLS)
    return CloseConnection("invalid request length", length=length, longest=longest)


class ConnectionLimits(NamedTuple):
    max_request_bytes: int
    """Of a Produce."""
    max_other_request_bytes: int
    """Of any other API; not above `max_request_bytes`."""
    max_queued_bytes: int
    max_queued_bytes_before_login: int
    """For all connections together: see queued_bytes.py."""
    login_timeout_ms: int
    """From the accept to the end of the login: see logins.py."""
    idle_ms: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_handshakes_per_ip: int
    """TLS handshakes from one address that have begun and not ended."""
    max_in_flight_requests: int
    max_in_flight_bytes: int
    """Parked requests and the responses behind them. A connection above either limit is not read."""
    max_unread_bytes: int
    """Responses to parked requests, ready for a client that does not read. Above the limit the connection ends."""
    max_unread_bytes_of_all: int
    """Unread responses of all connections together. Above the limit, connections whose clients take nothing end."""
    connection_descriptors: int
    sending_descriptors: int
    """Connections, and connections that send files, use only descriptors below these: see open_files.py."""
    listen_backlog: int
    receive_buffer_bytes: int
    send_buffer_bytes: int
    """The buffer sizes of client sockets."""

    def may_be_so_long(self, length: int, beginning: Buffer) -> bool:
        """Whether a frame of this length may be read; only a Produce may have up to `max_request_bytes`. Returns False
        also while the API is still unknown. Raises CloseConnection."""
        if length > self.max_other_request_bytes and begins_tls(length):
            raise CloseConnection(SPEAKS_TLS)
        if not MIN_FRAME_BYTES <= length <= self.max_request_bytes:
            raise CloseConnection("invalid request length", length=length)
        if length <= self.max_other_request_bytes:
            return True
        if len(beginning) < API_KEY_BYTES:
            return False
        api_key = int.from_bytes(beginning[:API_KEY_BYTES], "big", signed=True)
        if api_key != ApiKey.PRODUCE:
            longest = self.max_other_request_bytes
            raise CloseConnection("request too long for its API", api_key=api_key, length=length, longest=longest)
        return True

    @classmethod
    def from_config(cls, config: BrokerConfig, open_files: int = NO_LIMIT) -> ConnectionLimits:
        """Reads the limits from validated settings. `open_files`: how many files the process may have open."""
        overrides: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in config.max_connections_per_ip_overrides.split(","))):
            address, _, count = entry.rpartition(":")
            overrides[address] = int(count)
        return cls(
            max_request_bytes=config.socket_request_max_bytes,
            max_other_request_bytes=min(config.odradek_max_request_bytes, config.socket_request_max_bytes),
            max_queued_bytes=_queued_bytes(config),
            max_queued_bytes_before_login=config.odradek_max_queued_bytes_before_login,
            login_timeout_ms=config.odradek_login_timeout_ms,
            idle_ms=config.connections_max_idle_ms,
            max_connections=config.max_connections,
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides=overrides,
            max_handshakes_per_ip=config.odradek_max_handshakes_per_ip,
            max_in_flight_requests=config.odradek_max_in_flight_requests_per_connection,
            max_in_flight_bytes=config.odradek_max_in_flight_bytes_per_connection,
            max_unread_bytes=config.odradek_max_unread_bytes_per_connection,
            max_unread_bytes_of_all=config.odradek_max_unread_bytes,
            connection_descriptors=descriptors_for_connections(open_files),
            sending_descriptors=descriptors_for_sending(open_files),
            listen_backlog=_chosen(config, BrokerSettings.socket_listen_backlog_size, LISTEN_BACKLOG),
            receive_buffer_bytes=_chosen(config, BrokerSettings.socket_receive_buffer_bytes, SYSTEMS_CHOICE),
            send_buffer_bytes=_chosen(config, BrokerSettings.socket_send_buffer_bytes, SYSTEMS_CHOICE),
        )


def _chosen(config: BrokerConfig, setting: Setting[int], otherwise: int) -> int:
    """Returns the setting only if it is given explicitly: Kafka's default is too small for Odradek."""
    return setting.of(config) if setting.name in config.given else otherwise


def _queued_bytes(config: BrokerConfig) -> int:
    """Returns queued.max.request.bytes. Kafka has no bound unless it is positive; Odradek then uses one of its own."""
    chosen = config.queued_max_request_bytes
    return chosen if chosen > 0 else max(MOST_QUEUED_BYTES, 2 * config.socket_request_max_bytes)
