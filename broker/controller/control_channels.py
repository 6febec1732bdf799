"""The controller's way to the brokers: one queue of requests for each live broker, sent in order.

    (A) One request is in flight for each broker. After a NetworkError the same request is sent again, after a delay,
        as long as the broker lives and this controller is elected.
    (B) The own broker is reached by a direct call, with the same request objects, and its queue is like any other.
    (C) Responses are handed on in the order of the requests. A request that fails in any other way is logged and
        answered with None: the next ones must not wait for it for ever.
    (D) A broker that registers again gets a new queue: what was for its predecessor is dropped. One that only moves to
        another address keeps its queue.

Source: Kafka's `ControllerChannelManager`, `RequestSendThread`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.controller.control_requests import Addressed, ControlRequest
from odradek.broker.metadata.metadata_cache import BrokerInfo
from odradek.clients.network_errors import NetworkError

RETRY_DELAY_S = 0.1

log = structlog.get_logger("controller.channels")


class ControlTarget(Protocol):
    """A broker that carries out the controller's requests."""

    def send(self, request: Any, /) -> Awaitable[Any]:
        """Returns the response. Raises NetworkError."""


OnResponse = Callable[[int, ControlRequest, Any], None]


class ControlChannel:
    """The queue of one broker in one registration. `on_response` receives broker id, request and response."""

    def __init__(self, broker: BrokerInfo, target: ControlTarget, on_response: OnResponse, spawn: Spawn) -> None:
        self.broker = broker
        self._target = target
        self._on_response = on_response
        self._queue: deque[ControlRequest] = deque()
        self._filled = asyncio.Event()
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()
        self._sent = 0
        self._answered = 0
        self._is_closed = False
        self._is_in_flight = False
        self._task = spawn(self._run(), f"controller's channel to broker {broker.broker_id}")

    def put(self, request: ControlRequest) -> None:
        """Queues a request."""
        self._queue.append(request)
        self._sent += 1
        self._filled.set()

    def move(self, target: ControlTarget) -> None:
        """Sends from now on to another address of the broker."""
        self._target = target

    def answered(self) -> asyncio.Future[bool]:
        """Gives True when everything queued so far is answered, False when the channel is closed before."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if self._answered == self._sent:
            future.set_result(True)
        else:
            self._waiting.append((self._sent, future))
        return future

    def close(self, *, finish_request: bool) -> None:
        """Drops what is queued. `finish_request`: the one in flight is carried out, as it cannot be called back."""
        self._is_closed = True
        self._queue.clear()
        self._filled.set()
        for _, future in self._waiting:
            if not future.done():
                future.set_result(False)
        self._waiting.clear()
        if not (finish_request and self._is_in_flight):
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            if not self._queue:
                self._filled.clear()
                await self._filled.wait()
                continue
            request = self._queue.popleft()
            response = await self._response_to(request)
            if self._is_closed:
                return
            self._answered += 1
            self._on_response(self.broker.broker_id, request, response)
            while self._waiting and self._waiting[0][0] <= self._answered:
                future = self._waiting.popleft()[1]
                if not future.done():
                    future.set_result(True)

    async def _response_to(self, request: ControlRequest) -> Any:
        """Returns the response (A), or None (C)."""
        is_reported = False
        while True:
            self._is_in_flight = True
            try:
                return await self._target.send(request)
            except NetworkError as error:
                if not is_reported:
                    log.warning("broker not reached, trying again", broker=self.broker.broker_id, reason=str(error))
                    is_reported = True
            except Exception:
                log.exception("control request failed", broker=self.broker.broker_id, request=type(request).__name__)
                return None
            finally:
                self._is_in_flight = False
            await asyncio.sleep(RETRY_DELAY_S)


class ControlChannels:
    """The channels of one controller. `target_of` opens the way to a broker, `own` is this broker (B)."""

    def __init__(
        self,
        own_id: int,
        own: ControlTarget,
        target_of: Callable[[BrokerInfo], ControlTarget],
        on_response: OnResponse,
        spawn: Spawn,
    ) -> None:
        self._own_id = own_id
        self._own = own
        self._target_of = target_of
        self._on_response = on_response
        self._spawn = spawn
        self._channels: dict[int, ControlChannel] = {}

    def add(self, broker: BrokerInfo) -> None:
        """Opens a broker's channel."""
        self.remove(broker.broker_id)
        target = self._own if broker.broker_id == self._own_id else self._target_of(broker)
        self._channels[broker.broker_id] = ControlChannel(broker, target, self._on_response, self._spawn)

    def move(self, broker: BrokerInfo) -> None:
        """Goes to the broker's new address (D)."""
        channel = self._channels.get(broker.broker_id)
        if channel is not None and broker.broker_id != self._own_id:
            channel.move(self._target_of(broker))

    def remove(self, broker_id: int) -> None:
        """Closes a broker's channel (D)."""
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close(finish_request=broker_id == self._own_id)

    def put(self, addressed: Addressed) -> None:
        """Queues a request. A broker without channel is dead."""
        channel = self._channels.get(addressed.broker_id)
        if channel is not None:
            channel.put(addressed.request)

    def own_answered(self) -> asyncio.Future[bool]:
        """Gives True when this broker has carried out everything that was queued for it so far, False if it cannot."""
        channel = self._channels.get(self._own_id)
        if channel is not None:
            return channel.answered()
        nothing: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        nothing.set_result(False)
        return nothing

    def close(self) -> None:
        """Closes all channels."""
        for broker_id in list(self._channels):
            self.remove(broker_id)
