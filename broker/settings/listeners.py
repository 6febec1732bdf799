"""Parses `listeners`, `advertised.listeners` and `listener.security.protocol.map`, by Kafka's rules.

    A   A listener is NAME://host:port. The name is converted to upper case. An empty host means every interface, as do
        0.0.0.0 and [::] for their address family. Port 0 means any free port.
    B   Each name must be in the map, whose default maps the four protocols to themselves.
    C   Names must differ. Ports must differ too, except for port 0 and for one IPv4 and one IPv6 address on the same
        port.
    D   Advertised listeners are a non-empty subset of the listeners; if the setting is missing, they have the same
        addresses. They may share a port. Clients cannot connect to 0.0.0.0, so it cannot be advertised.
    E   The inter-broker listener (inter.broker.listener.name, or else the one named like
        security.inter.broker.protocol) must be advertised.
    F   Listeners named in controller.listener.names belong to a KRaft controller and are not opened.

Errors are ConfigError. Source: Kafka's `SocketServerConfigs.listenerListToEndPoints`, `CoreUtils`, `KafkaConfig`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from odradek.broker.settings import BrokerSettings, ConfigError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS = ("SSL", "SASL_SSL")
SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")


class Listener(NamedTuple):
    """One address to listen on, and the address advertised to its clients.

    `host` ""              every interface
    `port` 0               any free port
    `advertised_host` None this listener is not advertised
    `advertised_host` ""   the machine's own name
    `advertised_port` 0    the port that was bound
    """

    name: str
    security_protocol: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in TLS_PROTOCOLS

    @property
    def has_sasl(self) -> bool:
        """Whether its clients authenticate by SASL."""
        return self.security_protocol in SASL_PROTOCOLS


class _Address(NamedTuple):
    name: str
    host: str
    port: int


def read_listeners(values: BrokerSettings, given: Collection[str]) -> list[Listener]:
    """Returns the listeners to open, in the order of `listeners`. `given`: names that were set."""
    protocols = _protocols(values, given)
    addresses = _addresses("listeners", values.listeners_listed, protocols)
    _check_ports(addresses)
    controllers = _names(values.controller_listener_names)
    advertised = _advertised(values, addresses, protocols, controllers)
    _check_inter_broker_listener(values, given, advertised, protocols)
    return [
        Listener(
            address.name,
            protocols[address.name],
            address.host,
            address.port,
            advertised[address.name].host if address.name in advertised else None,
            advertised[address.name].port if address.name in advertised else 0,
        )
        for address in addresses
        if address.name not in controllers
    ]


def with_port(listeners: str, port: int) -> str:
    """Returns `listeners` with the port of the first one replaced."""
    first, comma, rest = listeners.partition(",")
    return f"{first.rpartition(':')[0]}:{port}{comma}{rest}"


def _names(listed: list[str] | None) -> list[str]:
    return [name.upper() for name in listed or () if name]


def _protocols(values: BrokerSettings, given: Collection[str]) -> dict[str, str]:
    """Returns protocols by listener name (B). As in KRaft, controllers' listeners default to PLAINTEXT."""
    setting = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in values.listener_security_protocol_map.split(","))):
        name, colon, protocol = entry.rpartition(":")
        protocol = protocol.strip().upper()
        if not colon or protocol not in PROTOCOLS:
            raise ConfigError(setting, f"{setting}: {entry} is not NAME:PROTOCOL with one of {', '.join(PROTOCOLS)}")
        protocols[name.strip().upper()] = protocol
    if setting not in given:
        for name in _names(values.controller_listener_names):
            protocols.setdefault(name, "PLAINTEXT")
    return protocols


def _addresses(setting: str, listed: list[str], protocols: Mapping[str, str]) -> list[_Address]:
    addresses: list[_Address] = []
    for entry in filter(None, listed):
        match = re.fullmatch(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)", entry)
        if match is None:
            raise ConfigError(setting, f"{setting}: {entry} is not NAME://host:port")
        name, host, port = match[1].upper(), match[2], int(match[3])
        if not 0 <= port <= 65535:
            raise ConfigError(setting, f"{setting}: {entry} has no port between 0 and 65535")
        if name not in protocols:
            raise ConfigError(setting, f"{setting}: listener {name} is not in listener.security.protocol.map")
        if any(name == other.name for other in addresses):
            raise ConfigError(setting, f"{setting}: there are two listeners named {name}")
        addresses.append(_Address(name, host, port))
    return addresses


def _check_ports(addresses: list[_Address]) -> None:
    for port in {address.port for address in addresses if address.port != 0}:
        sharing = [address for address in addresses if address.port == port]
        if len(sharing) == 1 or sorted(_family(address.host) for address in sharing) == [4, 6]:
            continue
        names = " and ".join(address.name for address in sharing)
        raise ConfigError(
            "listeners", f"listeners: {names} share port {port}, which only one IPv4 and one IPv6 address may do"
        )


def _family(host: str) -> int:
    """4 or 6 for an address, 0 for a name or an empty host."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).version
    except ValueError:
        return 0


def _advertised(
    values: BrokerSettings, addresses: list[_Address], protocols: Mapping[str, str], controllers: list[str]
) -> dict[str, _Address]:
    setting = "advertised.listeners"
    listed = values.advertised_listeners
    named = addresses if listed is None else _addresses(setting, listed, protocols)
    advertised = {address.name: address for address in named if address.name not in controllers}
    if not advertised:
        raise ConfigError(setting, f"{setting}: at least one listener must be available to clients")
    unknown = advertised.keys() - {address.name for address in addresses}
    if unknown:
        raise ConfigError(setting, f"{setting}: {', '.join(sorted(unknown))} is not among listeners")
    for address in advertised.values():
        if address.host == "0.0.0.0":  # nosec B104 # this is refused
            raise ConfigError(
                setting,
                f"{setting}: clients of {address.name} cannot connect to 0.0.0.0; use an address that they can reach",
            )
    return advertised


def _check_inter_broker_listener(
    values: BrokerSettings, given: Collection[str], advertised: Mapping[str, _Address], protocols: Mapping[str, str]
) -> None:
    setting, protocol_setting = "inter.broker.listener.name", "security.inter.broker.protocol"
    name = values.inter_broker_listener_name
    if name is not None and protocol_setting in given:
        raise ConfigError(setting, f"only one of {setting} and {protocol_setting} can be set")
    if name is not None and name.upper() not in protocols:
        raise ConfigError(setting, f"{setting}: listener {name.upper()} is not in listener.security.protocol.map")
    wanted = values.inter_broker_listener
    if wanted not in advertised:
        raise ConfigError(
            setting, f"{setting}: {wanted} is not among the advertised listeners {', '.join(sorted(advertised))}"
        )
    _check_other_listener(values, wanted, advertised)


def _check_other_listener(values: BrokerSettings, wanted: str, advertised: Collection[str]) -> None:
    setting = BrokerSettings.odradek_other_inter_broker_listener_name.name
    for name in values.broker_listeners - {wanted} - set(advertised):
        raise ConfigError(
            setting, f"{setting}: {name} is not among the advertised listeners {', '.join(sorted(advertised))}"
        )
