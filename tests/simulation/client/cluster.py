"""What a client knows of the cluster, and its connections: leaders, coordinators, brokers.

Metadata of an older leader epoch than the known one is ignored (KIP-320). A request without an answer raises `NotSent`
or `Unanswered`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.login import Login
from tests.simulation.client.wire import NotSent, Unanswered, Wire

Address = tuple[str, int]

CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 3.0
BACKOFF_S = (0.05, 0.15)
RECONNECT_S = 0.2
"""A broker that could not be reached is not tried again before."""
GROUP, TRANSACTION = 0, 1


class Leader(NamedTuple):
    """A partition's leader; -1: none."""

    broker_id: int
    epoch: int


class Cluster:
    """One client's view. `login` is None if nobody has to log in. `on_leaders`: called when a leader has changed."""

    def __init__(
        self, client_id: str, bootstrap: Sequence[Address], source: Random, login: Login | None = None
    ) -> None:
        self.client_id = client_id
        self.leaders: dict[TopicPartition, Leader] = {}
        self.brokers: dict[int, Address] = {}
        self.topic_ids: dict[str, UUID] = {}
        """Of the topics in the last answers."""
        self.controller_id = -1
        self.on_leaders: Callable[[], object] = lambda: None
        self._bootstrap = list(bootstrap)
        self._source = source
        self._login = login
        self._topics: dict[str, None] = {}
        self._wires: dict[tuple[Address, str], Wire] = {}
        self._connecting: dict[tuple[Address, str], asyncio.Lock] = {}
        self._not_before_s: dict[Address, float] = {}
        """When those that could not be reached may be tried again."""
        self._coordinators: dict[tuple[int, str], Address] = {}
        self._refreshing: asyncio.Lock = asyncio.Lock()
        self._refreshes = 0

    async def back_off(self) -> None:
        """Waits before another attempt."""
        await asyncio.sleep(self._source.uniform(*BACKOFF_S))

    # --- requests -----------------------------------------------------------------------------------------------

    async def ask(
        self,
        address: Address,
        request: Message,
        *,
        purpose: str = "",
        timeout_s: float = REQUEST_TIMEOUT_S,
        version: int | None = None,
    ) -> Any:
        """Sends to one broker, on the connection for this purpose. Raises NotSent and Unanswered."""
        wire = await self._wire(address, purpose)
        return await wire.ask(request, timeout_s, version)

    async def ask_broker(self, broker_id: int, request: Message, **options: Any) -> Any:
        """Sends to a broker of the metadata. Raises NotSent and Unanswered."""
        address = self.brokers.get(broker_id)
        if address is None:
            raise NotSent(f"no address of broker {broker_id} is known")
        return await self.ask(address, request, **options)

    async def ask_any(self, request: Message) -> Any:
        """Sends to one broker after the other until one can be reached. Raises NotSent and Unanswered."""
        addresses = list(dict.fromkeys([*self.brokers.values(), *self._bootstrap]))
        self._source.shuffle(addresses)
        for address in addresses:
            try:
                return await self.ask(address, request)
            except NotSent:
                continue
        raise NotSent("no broker can be reached")

    async def _wire(self, address: Address, purpose: str) -> Wire:
        key = (address, purpose)
        lock = self._connecting.get(key)
        if lock is None:
            lock = self._connecting[key] = asyncio.Lock()
        async with lock:
            wire = self._wires.get(key)
            if wire is None or not wire.is_usable:
                wire = self._wires[key] = await self._connect(address)
        return wire

    async def _connect(self, address: Address) -> Wire:
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before_s.get(address, 0.0):
            raise NotSent("could not be reached a moment ago")
        try:
            return await Wire.connect(*address, self.client_id, CONNECT_TIMEOUT_S, self._login)
        except NotSent:
            self._not_before_s[address] = loop.time() + RECONNECT_S
            raise

    # --- metadata -----------------------------------------------------------------------------------------------

    def leader_of(self, partition: TopicPartition) -> Leader | None:
        """The partition's leader, if one is known."""
        self._topics[partition.topic] = None
        leader = self.leaders.get(partition)
        return leader if leader is not None and leader.broker_id in self.brokers else None

    async def refresh(self, topics: Iterable[str] = ()) -> None:
        """Asks for metadata of these topics and those used before; callers at the same time share one request. If no
        broker answers, what is known stays."""
        self._topics.update(dict.fromkeys(topics))
        before = self._refreshes
        async with self._refreshing:
            if self._refreshes != before:
                return
            await self._refresh()
            self._refreshes += 1

    async def _refresh(self) -> None:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in self._topics]
        try:
            response = await self.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        except (NotSent, Unanswered):
            await self.back_off()
            return
        if response.brokers:
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE:
                self.topic_ids[topic.name] = topic.topic_id
            for partition in topic.partitions:
                self._note(TopicPartition(topic.name, partition.partition_index), partition)
        self.on_leaders()

    def _note(self, key: TopicPartition, found: Any) -> None:
        known = self.leaders.get(key)
        if known is None or found.leader_epoch >= known.epoch:
            self.leaders[key] = Leader(found.leader_id, found.leader_epoch)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The known partitions of a topic."""
        return sorted(partition for partition in self.leaders if partition.topic == topic)

    # --- coordinators -------------------------------------------------------------------------------------------

    async def ask_coordinator(self, kind: int, key: str, request: Message, **options: Any) -> Any:
        """Sends to the coordinator of a group or transactional id, see `ask`. Raises NotSent and Unanswered."""
        address = self._coordinators.get((kind, key))
        if address is None:
            address = await self._find(kind, key)
        try:
            return await self.ask(address, request, **options)
        except (NotSent, Unanswered):
            self.forget_coordinator(kind, key)
            raise

    def forget_coordinator(self, kind: int, key: str) -> None:
        """The coordinator may have moved: it will be asked for."""
        self._coordinators.pop((kind, key), None)

    async def _find(self, kind: int, key: str) -> Address:
        try:
            answer = await self.ask_any(FindCoordinatorRequest(key=key, key_type=kind))
        except Unanswered as error:
            raise NotSent(f"no coordinator: {error}") from error
        if answer.error_code != ErrorCode.NONE:
            raise NotSent(f"no coordinator: {ErrorCode.of(answer.error_code).name}")
        address = self._coordinators[kind, key] = (answer.host, answer.port)
        return address
