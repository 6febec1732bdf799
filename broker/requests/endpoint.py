"""The address of a listener, and the address advertised to clients; how addresses are written."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import NamedTuple


class Endpoint(NamedTuple):
    """A bound listener. `port` is the bound port; `host` is the configured host ("" for every interface).

    `advertised_host` is None if the listener is not advertised to clients."""

    name: str
    security_protocol: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int


def address_text(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def java_host(address: str) -> str:
    """Returns the address of a client as ACLs name it, as Java's `InetAddress.getHostAddress` writes it.

    An IPv6 address is written without `::` (0:0:0:0:0:0:0:1), and one that stands for an IPv4 address as that one.
    Any other text stays as it is.
    """
    if ":" not in address:
        return address
    address, percent, zone = address.partition("%")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + zone
