"""A broker with a control port: the faults that its dispatch and its disk have, and the server for them."""

from __future__ import annotations

import ipaddress
from random import Random
from typing import Any

from odradek.broker.settings.config import BrokerConfig, ConfigError
from odradek.broker.start_error import StartError
from odradek.testing.control.resources import Resources
from odradek.testing.control.server import ControlServer
from odradek.testing.faults import Faults

TOKEN_BITS = 128


class Control:
    """Make it before the broker, which takes `broker_options`; start it when the broker serves."""

    def __init__(self, config: BrokerConfig, port: int) -> None:
        """`port`: 0 takes a free one. Raises ConfigError if a listener can be reached from other machines: a
        client there could be made to fail.
        """
        for listener in config.listeners:
            if not is_loopback(listener.host):
                raise ConfigError(
                    "listeners",
                    f"--test-control is for tests on this machine: {listener.name} listens on "
                    f"{listener.host or 'all interfaces'}, not on 127.0.0.1, ::1 or localhost",
                )
        self._port = port
        self._faults = Faults(journal=True)
        self._server: ControlServer | None = None

    def broker_options(self) -> dict[str, Any]:
        """Returns the arguments of Broker that give it the faults."""
        return {"files": self._faults.files(), "wrap_dispatch": self._faults.wrap}

    async def start(self, source: Random) -> str:
        """Starts the server. `source` draws the token. Returns the line that tells address and token. Raises
        StartError.
        """
        token = f"{source.getrandbits(TOKEN_BITS):0{TOKEN_BITS // 4}x}"
        self._server = ControlServer(Resources(self._faults), self._port, token)
        try:
            await self._server.start()
        except OSError as error:
            raise StartError(f"--test-control {self._port}: {error.strerror or error}") from error
        return f"test-control http://{self._server.address} {token}"

    async def stop(self) -> None:
        """Stops the server, and lets all held requests go on."""
        self._faults.clear()
        if self._server is not None:
            await self._server.stop()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
