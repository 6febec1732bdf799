"""The address of a listener, and the address advertised to clients; how addresses are written."""

from __future__ import annotations

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
