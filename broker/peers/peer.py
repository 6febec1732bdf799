"""One logical connection to another broker: opened on first use, opened again after it was lost.

    peer = peers.peer(3, "fetcher-0")
    response = await peer.send(FetchRequest(...))

(A) `send` opens a connection if there is none. Concurrent callers share one attempt and its outcome, and an attempt
    goes on when a caller is cancelled.
(B) There is a delay between the end of an attempt and the next one: 50 ms, doubled with each failure in sequence up to
    a second. A caller waits for the delay and for one attempt. If that fails, `send` raises its NetworkError.
(C) Every `send` compares the broker's registration (address and epoch) with that of the connection. If they differ, the
    connection ends, its requests in flight fail with Disconnected, and the next attempt starts without a delay.
    `refresh` does the same for requests that are in flight while nothing else is sent.
(D) A new connection is used only if the broker serves `required`: the requests of our inter-broker protocol. Otherwise
    the attempt fails with UnsupportedVersion.
(E) An outage is logged when it begins, when its reason changes and when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.broker.peers.inter_broker_protocol import BROKER_SOFTWARE, not_served, version_to_send
from odradek.clients.network_client import DEFAULT_TIMEOUT_MS, Connect, NetworkClient, api_key_of
from odradek.clients.network_errors import Disconnected, NetworkError, NodeUnreachable, UnsupportedVersion
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.schema import Message

FIRST_DELAY_MS = 50
LONGEST_DELAY_MS = 1000

log = structlog.get_logger("broker.peers")


class _Registration(NamedTuple):
    """What a connection depends on. `epoch` is -1 where only the controller knows it."""

    host: str
    port: int
    epoch: int


class Peer:
    """See the head of this file. `registered` looks the broker up; None: it is not registered now."""

    def __init__(
        self,
        broker_id: int,
        registered: Callable[[int], BrokerInfo | None],
        *,
        listener: str,
        client_id: str,
        connect: Connect,
        spawn: Spawn,
        connect_timeout_ms: int,
        required: Mapping[ApiKey, int],
    ) -> None:
        self.broker_id = broker_id
        self._registered = registered
        self._listener = listener
        self._client_id = client_id
        self._connect = connect
        self._spawn = spawn
        self._connect_timeout_ms = connect_timeout_ms
        self._required = required
        self._registration: _Registration | None = None
        self._client: NetworkClient | None = None
        self._attempt: asyncio.Task[NetworkClient | NetworkError] | None = None
        self._delay_ms = FIRST_DELAY_MS
        self._next_attempt_s = 0.0
        self._outage = ""
        self._closed = False

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to the broker as it is registered now."""
        return self._client is not None and self._client.is_connected and self._registration == self._look_up()

    async def send(self, request: Message, *, version: int | None = None, timeout_ms: int | None = None) -> Any:
        """Sends a request and returns its response. Raises NetworkError, UnsupportedVersion if the broker does not
        serve the version.

        Without `version`: that of our inter-broker protocol, for other APIs the highest that both sides know.
        `timeout_ms` counts from when the request is sent on a connection (default: 30 s).
        """
        client = await self._connected_client()
        api_key = ApiKey(api_key_of(request))
        if version is None:
            version = version_to_send(api_key, client.versions)
        if version is None:
            version = client.version_for(api_key)
        else:
            for missing in not_served({api_key: version}, client.versions):
                raise UnsupportedVersion(f"broker {self.broker_id} ({client.name}) does not serve {missing}")
        return await client.send(
            request, version=version, timeout_ms=DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        )

    def refresh(self) -> None:
        """Ends the connection if the broker is no longer registered as when it was opened (C)."""
        registration = self._look_up()
        if registration != self._registration:
            self._registration = registration
            self._delay_ms = FIRST_DELAY_MS
            self._next_attempt_s = 0.0
            self._drop(f"broker {self.broker_id} has {'another' if registration else 'no'} registration now")

    async def close(self) -> None:
        """Ends the connection for good. Requests in flight, and later ones, fail with Disconnected."""
        self._closed = True
        client = self._client
        self._drop(self._closed_reason())
        if client is not None:
            await client.close()

    # Internal

    def _look_up(self) -> _Registration | None:
        info = self._registered(self.broker_id)
        endpoint = None if info is None else info.endpoint(self._listener)
        return None if info is None or endpoint is None else _Registration(endpoint.host, endpoint.port, info.epoch)

    def _drop(self, reason: str) -> None:
        client, self._client = self._client, None
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.cancel()
        if client is not None:
            client.abort(reason)

    def _closed_reason(self) -> str:
        return f"the connection to broker {self.broker_id} was closed"

    async def _connected_client(self) -> NetworkClient:
        while True:
            if self._closed:
                raise Disconnected(self._closed_reason())
            self.refresh()
            if self._client is not None and self._client.is_connected:
                return self._client
            if self._attempt is None:
                self._attempt = self._spawn(self._attempt_in_turn(), f"connect to broker {self.broker_id}")
            attempt = self._attempt
            await asyncio.wait([attempt])
            if not attempt.cancelled():
                outcome = attempt.result()
                if isinstance(outcome, NetworkError):
                    raise outcome
            elif attempt is self._attempt:
                raise Disconnected(self._closed_reason())

    async def _attempt_in_turn(self) -> NetworkClient | NetworkError:
        """Waits for the delay (B) and opens a connection. Returns a failure, so that all callers get it."""
        loop = asyncio.get_running_loop()
        if self._next_attempt_s > loop.time():
            await asyncio.sleep(self._next_attempt_s - loop.time())
        try:
            self._client = await self._open()
        except NetworkError as error:
            self._next_attempt_s = loop.time() + self._delay_ms / 1000
            self._delay_ms = min(2 * self._delay_ms, LONGEST_DELAY_MS)
            self._log_outage(error)
            return error
        else:
            self._delay_ms = FIRST_DELAY_MS
            self._next_attempt_s = loop.time() + self._delay_ms / 1000
            self._log_end_of_outage()
            return self._client
        finally:
            if self._attempt is asyncio.current_task():
                self._attempt = None

    async def _open(self) -> NetworkClient:
        registration = self._registration = self._look_up()
        if registration is None:
            raise NodeUnreachable(f"broker {self.broker_id} is not registered with listener {self._listener}")
        client = await self._connect(
            registration.host,
            registration.port,
            client_id=self._client_id,
            software_name=BROKER_SOFTWARE,
            timeout_ms=self._connect_timeout_ms,
        )
        missing = list(not_served(self._required, client.versions))
        if missing:
            await client.close()
            raise UnsupportedVersion(f"broker {self.broker_id} ({client.name}) does not serve {', '.join(missing)}")
        return client

    def _log_outage(self, error: NetworkError) -> None:
        if str(error) == self._outage:
            return
        self._outage = str(error)
        if isinstance(error, UnsupportedVersion):
            log.error("broker of another protocol version", broker_id=self.broker_id, error=self._outage)
        else:
            log.warning("broker not reached", broker_id=self.broker_id, client_id=self._client_id, error=self._outage)

    def _log_end_of_outage(self) -> None:
        if self._outage:
            self._outage = ""
            log.info("broker reached again", broker_id=self.broker_id, client_id=self._client_id)
