"""The address of a listener, and the address advertised to clients."""

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
