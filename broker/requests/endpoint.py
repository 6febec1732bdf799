"""Where a listener listens and where its clients are told to go."""

from __future__ import annotations

from typing import NamedTuple


class Endpoint(NamedTuple):
    """A bound listener. `port` is the bound one; `host` is what was configured ("" for every interface).

    `advertised_host` is None where clients are not told of the listener."""

    name: str
    security_protocol: str
    host: str
    port: int
    advertised_host: str | None
    advertised_port: int
