"""An admin client's connections: to any broker, to the controller, to each broker by its id.

(A) Queries go to any broker: the first address that responds, and the next one when the connection is lost. The
    addresses are those given at first, then those that the cluster reports. If a login is refused, no other address
    is tried: the others refuse it, too, and each refusal takes a moment.
(B) Changes of the cluster go to the controller. If the broker asked is no longer the controller, or cannot be
    connected to, the controller is looked up again, at another broker, until the timeout: an election takes a
    moment, and a broker that is cut off may name an old controller.
(C) A change whose response is lost is not repeated: it may have been carried out. The caller gets Disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from odradek.clients.network_client import Connect, NetworkClient
from odradek.clients.network_errors import Disconnected, LoginRefused, NetworkError, NodeUnreachable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.schema import Message

T = TypeVar("T")
Address = tuple[str, int]

RETRY_MS = 100
"""The delay between retries. A client is not notified when a coordinator or controller becomes available."""
ANSWER_MS = 1000
"""How much longer than the broker's own timeout the response to a change may take."""


class Connections:
    """`addresses` are tried in their order. Each request may take `timeout_ms`."""

    def __init__(self, addresses: Sequence[Address], client_id: str, timeout_ms: int, connect: Connect) -> None:
        self._connect_to = connect
        self._addresses = list(addresses)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._first = 0
        """The position of the address to try first."""
        self._any: NetworkClient | None = None
        self._nodes: dict[int, NetworkClient] = {}

    async def close(self) -> None:
        """Closes all connections."""
        for client in (self._any, *self._nodes.values()):
            if client is not None:
                await client.close()
        self._any = None
        self._nodes.clear()

    async def ask_any(self, request: Message) -> Any:
        """Returns the response of any broker (A). Raises NetworkError."""
        for _ in self._addresses:
            client = await self._any_broker()
            try:
                return await client.send(request, timeout_ms=self._timeout_ms)
            except Disconnected as error:
                failure = error
        raise failure

    async def ask_broker(self, broker_id: int, request: Message) -> Any:
        """Returns the response of one broker. Raises NetworkError."""
        return await (await self._broker(broker_id, "broker")).send(request, timeout_ms=self._timeout_ms)

    async def ask_controller(self, request: Message) -> Any:
        """Returns the controller's response (B). Raises NetworkError."""

        async def ask() -> Any:
            controller_id = (await self.cluster()).controller_id
            try:
                client = await self._broker(controller_id, "controller")
            except NodeUnreachable as error:
                return error
            return await client.send(request, timeout_ms=self._timeout_ms + ANSWER_MS)

        def is_settled(outcome: Any) -> bool:
            is_controller = not isinstance(outcome, NodeUnreachable) and not _is_not_controller(outcome)
            if not is_controller:
                self._ask_another()
            return is_controller

        outcome = await self.until(ask, is_settled)
        if isinstance(outcome, NodeUnreachable):
            raise outcome
        return outcome

    async def cluster(self) -> MetadataResponse:
        """Returns the brokers and the controller."""
        response: MetadataResponse = await self.ask_any(MetadataRequest(topics=[]))
        known = [(broker.host, broker.port) for broker in response.brokers]
        self._addresses += [address for address in known if address not in self._addresses]
        return response

    async def until(self, ask: Callable[[], Awaitable[T]], is_settled: Callable[[T], bool]) -> T:
        """Calls `ask` until `is_settled` accepts its result or the timeout expires. Returns the last result."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._timeout_ms / 1000
        while True:
            answer = await ask()
            if is_settled(answer) or loop.time() >= give_up:
                return answer
            await asyncio.sleep(RETRY_MS / 1000)

    async def _any_broker(self) -> NetworkClient:
        if self._any is not None and self._any.is_connected:
            return self._any
        failure: NetworkError | None = None
        count = len(self._addresses)
        for position in range(self._first, self._first + count):
            self._first = position % count
            try:
                self._any = await self._connect(*self._addresses[self._first])
                return self._any
            except LoginRefused:
                raise
            except NetworkError as error:
                failure = failure or error
        self._first = 0
        assert failure is not None, "there is at least one address"
        raise failure

    def _ask_another(self) -> None:
        """The next query goes to another broker, if there is one."""
        if len(self._addresses) > 1 and self._any is not None:
            self._any.abort("another broker is asked")
            self._any = None
            self._first = (self._first + 1) % len(self._addresses)

    async def _broker(self, broker_id: int, what: str) -> NetworkClient:
        client = self._nodes.get(broker_id)
        if client is not None and client.is_connected:
            return client
        cluster = await self.cluster()
        if len(cluster.brokers) == 1 and self._any is not None:
            return self._any
        found = next((node for node in cluster.brokers if node.node_id == broker_id), None)
        if found is None:
            raise NodeUnreachable(f"{self._name()} does not know {what} {broker_id} at the moment")
        client = self._nodes[broker_id] = await self._connect(found.host, found.port)
        return client

    def _name(self) -> str:
        return "the broker" if self._any is None else self._any.name

    async def _connect(self, host: str, port: int) -> NetworkClient:
        return await self._connect_to(host, port, client_id=self._client_id, timeout_ms=self._timeout_ms)


def _is_not_controller(response: Any) -> bool:
    return ErrorCode.NOT_CONTROLLER in _codes(response)


def _codes(response: Any) -> Iterable[int]:
    """Yields the error codes of a controller's response and of its items."""
    yield getattr(response, "error_code", ErrorCode.NONE)
    for name in ("topics", "responses", "results"):
        for item in getattr(response, name, ()):
            yield getattr(item, "error_code", ErrorCode.NONE)
