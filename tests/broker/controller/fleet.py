"""Controllers of several brokers on one shared store, in virtual time. The brokers are recordings: each carries out the
controller's requests in memory, fences them as a broker does, and fails on demand.

    with Fleet([1, 2, 3]) as fleet:
        fleet.run(a_coroutine_function)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextvars import copy_context
from functools import lru_cache
from typing import Any, TypeVar

from odradek.broker.background.background import Background
from odradek.broker.background.turns import Turns
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.request_waits import RequestWaits
from odradek.broker.controller.topic_planner import PlannedTopic
from odradek.broker.features.features import SUPPORTED, registered
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo, PartitionState
from odradek.broker.metadata.new_topic import NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.shared.session import SharedSession
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.start_up import open_store
from odradek.broker.settings.config import BrokerConfig
from odradek.clients.network_errors import NodeUnreachable
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.replica_control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
)
from odradek.protocol.schema import Versions
from odradek.protocol.topic_partition import TopicPartition
from odradek.purgatory import CompletionQueue, DelayedOperationPurgatory
from odradek.timer import SystemTimer
from tests.broker.controller.recorded_broker import RecordedBroker
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import Node, simulated_loop

T = TypeVar("T")
SESSION_TIMEOUT_MS = 6000
LONGEST_SCENE_S = 300
parsed_topic = lru_cache(maxsize=8)(znodes.parse_topic)
"""The states of all partitions are looked at one after the other."""


class FleetNode:
    """One process: a session, a registration, a controller, and the recording of its broker."""

    def __init__(self, fleet: Fleet, broker_id: int) -> None:
        self.fleet = fleet
        self.broker_id = broker_id
        self.process = Node(f"broker {broker_id}")
        self.disk = fleet.disks.setdefault(broker_id, {})
        self.broker = RecordedBroker(broker_id, self.disk)
        self.broker.delay_s = 0.001
        self.active_controller = -2
        self.finalized = FinalizedFeatures(SUPPORTED)
        """As the controller of this process has written them."""
        self.is_running = True

    async def start(self) -> None:
        """Runs within the node's process."""
        fleet, clock = self.fleet, SimulatedClock(self.fleet.loop)
        self.background = Background()
        self.session: SharedSession = fleet.shared.session(str(self.broker_id))
        self.store: Any = self.session if fleet.around_store is None else fleet.around_store(self, self.session)
        source = random.Random(self.broker_id)
        await open_store(self.store, "nlQg0zzARJuGzyqjahpCMg", source)
        self.registration = BrokerRegistration(
            self.store,
            clock=clock,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            spawn=self.background.spawn,
            on_registered=self._registered,
        )
        self.timer = SystemTimer(clock)
        completions = CompletionQueue(lambda drain: asyncio.get_running_loop().call_soon(drain))
        self.topic_purgatory = DelayedOperationPurgatory("topic", self.timer, clock, completions)
        self.election_purgatory = DelayedOperationPurgatory("ElectLeader", self.timer, clock, completions)
        self.controller = Controller(
            self.store,
            broker_id=self.broker_id,
            listener="PLAINTEXT",
            config=BrokerConfig.from_mapping({"broker.id": str(self.broker_id), **fleet.settings}),
            clock=clock,
            source=source,
            spawn=self.background.spawn,
            turns=Turns(),
            waits=RequestWaits(self.topic_purgatory, self.election_purgatory, self.broker.leader),
            channel_to=lambda broker: Way(self, broker),
            on_active_controller=self._note_controller,
            first_features=fleet.first_features,
            on_features_written=self.finalized.put,
        )
        self.background.every(500, self.timer.advance_clock, "timer")
        await self.register()
        await self.controller.terms.start(self.broker)

    async def register(self, port: int = 9092) -> None:
        """Registers the broker, or its new address."""
        self.port = port
        endpoint = BrokerEndpoint("PLAINTEXT", f"host-{self.broker_id}", port)
        features = self.fleet.features.get(self.broker_id, registered())
        await self.registration.register(BrokerInfo(self.broker_id, {"PLAINTEXT": endpoint}, features=features))

    def _registered(self, broker: BrokerInfo) -> None:
        self.broker.broker_epoch = broker.epoch

    def _note_controller(self, controller_id: int) -> None:
        self.active_controller = controller_id


class Way:
    """The way from one broker to another, at the address with which it was registered. It ends with either of them."""

    def __init__(self, start: FleetNode, end: BrokerInfo) -> None:
        self._start = start
        self._end = start.fleet.nodes[end.broker_id]
        self._port = end.endpoints["PLAINTEXT"].port

    async def send(self, request: Any) -> Any:
        is_there = self._end.is_running and self._end.port == self._port
        if not is_there or self._end.broker_id in self._start.fleet.unreachable:
            await asyncio.sleep(0.01)
            raise NodeUnreachable(f"broker {self._end.broker_id} is not reachable")
        if self._start.fleet.before_send is not None:
            await self._start.fleet.before_send(self._start, self._end, request)
        return await self._end.broker.send(request)


class Fleet:
    """Several nodes. `settings` are those of all brokers; `around_store` may wrap the session of a node that starts."""

    def __init__(self, ids: Iterable[int], settings: dict[str, str] | None = None) -> None:
        self.ids = list(ids)
        self.settings = settings or {}
        self.first_features: Mapping[str, int] = {}
        self.features: dict[int, dict[str, Versions]] = {}
        """What brokers register that do not support what this release does."""
        self.loop = simulated_loop()
        self.context = copy_context()
        self.disks: dict[int, dict[TopicPartition, None]] = {}
        self.nodes: dict[int, FleetNode] = {}
        self.unreachable: set[int] = set()
        self.around_store: Callable[[FleetNode, SharedSession], Any] | None = None
        self.before_send: Callable[[FleetNode, FleetNode, Any], Awaitable[None]] | None = None
        self.shared: SharedStore
        self.observer: SharedSession

    def run(self, scene: Callable[[Fleet], Coroutine[Any, Any, T]]) -> T:
        """Starts the nodes one after the other, runs the scene, and ends everything."""

        async def whole() -> T:
            self.shared = SharedStore(session_timeout_ms=SESSION_TIMEOUT_MS)
            self.observer = self.shared.session("observer")
            await self.observer.open()
            for broker_id in self.ids:
                await self.start(broker_id)
            async with asyncio.timeout(LONGEST_SCENE_S):
                return await scene(self)

        try:
            result = self.loop.run_until_complete(whole())
            assert self.loop.failures == []
            return result
        finally:
            self.loop.close()

    async def start(self, broker_id: int) -> FleetNode:
        """Starts a node, or starts it again."""
        if broker_id in self.nodes:
            self.shared.heal(str(broker_id))
        node = self.nodes[broker_id] = FleetNode(self, broker_id)
        await self.loop.run_as(node.process, self.loop.create_task, node.start())
        return node

    def kill(self, broker_id: int, *, at_once: bool = True) -> None:
        """Kills a process. Its session ends `at_once`, or by its time-out."""
        node = self.nodes[broker_id]
        node.is_running = False
        self.shared.cut(str(broker_id))
        if at_once:
            self.shared.expire(str(broker_id))
        self.loop.kill(node.process)

    async def as_node(self, broker_id: int, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine within the node's process."""
        node = self.nodes[broker_id]
        return await self.loop.run_as(node.process, self.loop.create_task, coroutine)

    async def quiet(self, seconds: float = 1.0) -> None:
        """Lets time pass."""
        await asyncio.sleep(seconds)

    def active(self) -> FleetNode:
        """The node that is the controller. One that was elected before, and is cut off, may not know of it."""
        active = (node for node in self.running() if node.controller.terms.is_active)
        return max(active, key=lambda node: node.controller.terms.epoch)

    def running(self) -> list[FleetNode]:
        """The nodes that run."""
        return [node for node in self.nodes.values() if node.is_running]

    async def create(self, name: str, assignment: dict[int, list[int]], **configs: str) -> None:
        """Creates a topic with these replicas."""
        (result,) = await self.active().controller.topics.create(
            [NewTopic(name, assignments=assignment, configs=configs)], timeout_ms=5000
        )
        assert isinstance(result, PlannedTopic), result

    async def state(self, key: TopicPartition) -> PartitionState:
        """The partition's state in the store."""
        entry = await self.observer.get(znodes.state_path(*key))
        topic = parsed_topic(key.topic, (await self.observer.get(znodes.topic_path(key.topic))).data)
        state = znodes.parse_state(key.topic, key.partition, topic.replicas[key.partition], entry.data, entry.version)
        adding, removing = topic.adding.get(key.partition, ()), topic.removing.get(key.partition, ())
        return state._replace(adding=adding, removing=removing)

    async def set_isr(self, key: TopicPartition, isr: list[int]) -> AlterPartitionResponse:
        """The partition's leader proposes in-sync replicas, as its role tells it."""
        response: AlterPartitionResponse = await self.active().controller.answer(await self.proposal(key, isr))
        return response

    async def proposal(self, key: TopicPartition, isr: list[int]) -> AlterPartitionRequest:
        """What the partition's leader sends now to propose these in-sync replicas."""
        state = await self.state(key)
        leader = self.nodes[state.leader]
        proposal = AlterPartitionRequest.PartitionData(
            partition_index=key.partition,
            leader_epoch=state.leader_epoch,
            new_isr=isr,
            partition_epoch=state.partition_epoch,
        )
        return AlterPartitionRequest(
            broker_id=leader.broker_id,
            broker_epoch=leader.broker.broker_epoch,
            topics=[AlterPartitionRequest.TopicData(topic_name=key.topic, partitions=[proposal])],
        )

    async def check_agreement(self) -> None:
        """Everything that running brokers know is what the store has."""
        expected: dict[TopicPartition, PartitionState] = {}
        for name in await self.observer.children(znodes.TOPICS):
            topic = znodes.parse_topic(name, (await self.observer.get(znodes.topic_path(name))).data)
            for partition in topic.replicas:
                expected[TopicPartition(name, partition)] = await self.state(TopicPartition(name, partition))
        running = {node.broker_id for node in self.running()}
        for node in self.running():
            assert set(node.broker.alive) == running
            assert node.broker.metadata.keys() == expected.keys()
            mine = {key for key, state in expected.items() if node.broker_id in state.replicas}
            assert node.broker.roles.keys() == mine, f"broker {node.broker_id}"
            assert node.disk.keys() == mine
            for key, state in expected.items():
                known = node.broker.metadata[key]
                assert (known.leader, known.leader_epoch, tuple(known.isr)) == (
                    state.leader,
                    state.leader_epoch,
                    state.isr,
                ), key
                assert tuple(known.replicas) == state.replicas
                if key in mine:
                    role = node.broker.roles[key]
                    assert (role.leader, role.leader_epoch) == (state.leader, state.leader_epoch), key
        for key, state in expected.items():
            assert state.leader in running, f"{key}: {state}"


async def shut_down(controller: Controller, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    """Asks for a controlled shutdown. Returns the partitions that the broker still leads."""
    response = await controller.answer(ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch))
    return [TopicPartition(left.topic_name, left.partition_index) for left in response.remaining_partitions]


def codes(results: Iterable[ProtocolError | PlannedTopic | None]) -> list[ErrorCode]:
    """The error codes of results; NONE for those that succeeded."""
    return [result.code if isinstance(result, ProtocolError) else ErrorCode.NONE for result in results]
