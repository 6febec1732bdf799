"""The address of a client as ACLs name it: as Java writes it.

Source: Java's `InetAddress.getHostAddress`.
"""

from __future__ import annotations

from ipaddress import IPv6Address


def java_host(address: str) -> str:
    """Returns an IPv6 address without `::` (0:0:0:0:0:0:0:1), and one that stands for an IPv4 address as that one.
    Any other text stays as it is.
    """
    if ":" not in address:
        return address
    address, percent, zone = address.partition("%")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":")) + percent + zone
