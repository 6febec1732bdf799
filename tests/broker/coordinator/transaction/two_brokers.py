"""Two brokers with real logs and a transaction coordinator each. The test runs every task, timer and message by hand.

`__transaction_state` has one partition with a replica on both brokers; one of them leads it and so is the coordinator.
Each broker leads one other partition, without a second replica. A killed broker loses its memory and keeps its logs. A
broker that was not told of a change (a zombie) goes on as before.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from odradek.broker.coordinator.internal_topics import group_log_settings
from odradek.broker.coordinator.runtime.runtime import CoordinatorRuntime
from odradek.broker.coordinator.runtime.shard import NewShard
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.local_markers import LocalMarkerWriter
from odradek.broker.coordinator.transaction.marker_writing import MarkerWriter
from odradek.broker.coordinator.transaction.remote_markers import RemoteMarkerWriter
from odradek.broker.coordinator.transaction.shard import TransactionShard
from odradek.broker.coordinator.transaction.transaction import ProducerIdAndEpoch
from odradek.broker.handlers.access import Access
from odradek.broker.handlers.transactions import TransactionHandlers
from odradek.broker.metadata.metadata_cache import NO_LEADER, PartitionState
from odradek.broker.replica.partition.partition import Partition
from odradek.broker.requests.request_context import PendingResponse
from odradek.clients.network_errors import Disconnected
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.transactions import WriteTxnMarkersRequest
from odradek.protocol.records import iter_batches
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.storage.log.log import Log
from odradek.storage.log.truncation import Truncate
from odradek.storage.log_config import LogConfig
from odradek.storage.producers.transaction_marker import read_marker
from tests.broker.coordinator.runtime.harness import ManualTasks
from tests.broker.replica.harness import ReplicaHarness, ThreadCall
from tests.storage.small_logs import bytes_of, truncate
from tests.table_settings import DEFAULTS

STATE = TopicPartition("__transaction_state", 0)
ORDERS = TopicPartition("orders", 0)
RETURNS = TopicPartition("returns", 0)
LED_BY = {ORDERS: 1, RETURNS: 2}
BOTH = (0, 1)
"""The replicas of STATE. To each broker, it is itself 0 and the other one 1."""
MINUTE_MS = 60_000
RETRY_MS = 1001


class WrittenMarker(NamedTuple):
    """A marker in a partition's log."""

    producer: ProducerIdAndEpoch
    committed: bool
    coordinator_epoch: int


class Until(ThreadCall):
    """A call that is made when the condition holds."""

    def __init__(self, condition: Callable[[], bool], function: Callable[..., Any], *arguments: Any) -> None:
        super().__init__(function, arguments)
        self.condition = condition


class Tasks(ManualTasks):
    """Each `turn` runs one step of the first task that can go on. The tasks take turns."""

    def turn(self) -> None:
        slot = next(slot for slot, waiting in enumerate(self._running) if _can_go_on(waiting[1]))
        coroutine, call = self._running.pop(slot)
        try:
            self._running.append((coroutine, self._step(coroutine, call)))
        except StopIteration:
            pass

    @property
    def can_go_on(self) -> bool:
        return any(_can_go_on(call) for _, call in self._running)


def _can_go_on(call: ThreadCall | None) -> bool:
    return not isinstance(call, Until) or call.condition()


class Link:
    """One broker's connection to another one. A request and its response take a step each."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.broker_id = broker_id
        self._cluster = cluster

    async def send(self, request: Message) -> Any:
        cluster = self._cluster
        node = self._other()
        pending = await Until(lambda: not cluster.is_paused(self.broker_id), self._deliver, request)
        await Until(lambda: pending.settled or not self._reaches(node), self._other)
        if not self._reaches(node):
            raise Disconnected("the broker was started again")
        return pending.result()

    def _reaches(self, node: Node) -> bool:
        return not self._cluster.is_cut and self._cluster.nodes.get(self.broker_id) is node

    def _other(self) -> Node:
        node = self._cluster.nodes.get(self.broker_id)
        if node is None or self._cluster.is_cut:
            raise Disconnected(f"broker {self.broker_id} is not there")
        return node

    def _deliver(self, request: WriteTxnMarkersRequest) -> PendingResponse:
        context: Any = None
        response = self._other().handlers.write_txn_markers(request, context)
        if isinstance(response, PendingResponse):
            return response
        pending = PendingResponse()
        pending.complete(response)
        return pending


class Node(ReplicaHarness):
    """A running broker."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        super().__init__(cluster.root / str(broker_id))
        self.logs.is_clean = False
        self.broker_id = broker_id
        self.tasks = Tasks()
        self._cluster = cluster
        self._links = {other: Link(cluster, other) for other in LED_BY.values() if other != broker_id}
        self._remote = {
            other: RemoteMarkerWriter(link, self.tasks.spawn)  # type: ignore[arg-type]
            for other, link in self._links.items()
        }
        self.own_logs = LocalMarkerWriter(self.manager, self.soon.append)
        self.coordinator = TransactionCoordinator(
            clock=self.clock,
            longest_timeout_ms=lambda: 15 * MINUTE_MS,
            new_producer_id=lambda use: use(next(cluster.producer_ids)),
            leader_of=cluster.leader_of,
            writer_to=self._writer_to,
            own_logs=self.own_logs,
            later=self.timer.call_later,
            soon=self.soon.append,
            start_runtime=self._start_runtime,
        )
        nothing: Any = None
        self.handlers = TransactionHandlers(self.coordinator, nothing, nothing, Access(), 1 << 20)

    def _start_runtime(self, new_shard: NewShard) -> CoordinatorRuntime:
        runtime = CoordinatorRuntime(
            group_log_settings(DEFAULTS)._replace(topic=STATE.topic, loads_replicated=True),
            new_shard=new_shard,
            partition_count=lambda: 1,
            replica_manager=self.manager,
            clock=self.clock,
            background=self.tasks,
        )
        runtime.start()
        runtime.begin_loading()
        return runtime

    def _writer_to(self, broker_id: int) -> MarkerWriter | None:
        return self.own_logs if broker_id == self.broker_id else self._remote.get(broker_id)

    def begin(self) -> None:
        """Leads its own partition again, and follows STATE."""
        for key, broker_id in LED_BY.items():
            if broker_id == self.broker_id:
                self.lead(key, epoch=self._cluster.next_epoch())
        self.follow_state()

    def lead_state(self, isr: tuple[int, ...] = BOTH) -> None:
        self.lead(STATE, replicas=BOTH, isr=isr, epoch=self._cluster.next_epoch(), cleanup_policy="compact")

    def follow_state(self) -> None:
        epoch = self._cluster.next_epoch()
        state = PartitionState(0, 1, epoch, BOTH, BOTH, partition_epoch=epoch)
        self.manager.become_follower(STATE, uuid.UUID(int=1), state, LogConfig({"cleanup.policy": "compact"}))

    @property
    def state_partition(self) -> Partition:
        return self.manager.partitions.find(STATE)

    @property
    def shard(self) -> TransactionShard | None:
        """The shard, while this broker believes to be the coordinator and has loaded it."""
        return next(iter(self.coordinator.shards()), None)

    def step(self) -> bool:
        """Runs one callback, or one step of the tasks. Returns False if there is nothing to run."""
        if self.soon:
            self.soon.pop(0)()
            return True
        if self.tasks.can_go_on:
            self.tasks.turn()
            return True
        return False

    def markers_in(self, key: TopicPartition) -> list[WrittenMarker]:
        return [each for each in self._history(key) if each is not None]

    def outcomes_in(self, key: TopicPartition) -> list[bool]:
        """Returns, for each record, whether it was committed. Records of an open transaction are missing."""
        records, outcomes = 0, []
        for each in self._history(key):
            if each is None:
                records += 1
            else:
                outcomes += [each.committed] * records
                records = 0
        return outcomes

    def _history(self, key: TopicPartition) -> Iterator[WrittenMarker | None]:
        """Yields None for a record."""
        data = _all(self.manager.partitions.find(key).log)
        for start, header in iter_batches(data):
            marker = read_marker(data, start, header) if header.is_control else None
            if marker is None:
                yield None
                continue
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            yield WrittenMarker(producer, not marker.aborted, marker.coordinator_epoch)

    def is_open(self, key: TopicPartition) -> bool:
        """Whether the partition has records of an open transaction."""
        log = self.manager.partitions.find(key).log
        return log.last_stable_offset < log.state.log_end_offset


class Cluster:
    """`nodes` has the running brokers by id. `is_cut`: no message arrives. Broker 1 is the first coordinator."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.producer_ids = itertools.count(1000)
        self.is_cut = False
        self._paused: set[int] = set()
        self._turns = itertools.count()
        self._epochs = itertools.count(1)
        self.nodes: dict[int, Node] = {}
        for broker_id in (1, 2):
            (root / str(broker_id)).mkdir(parents=True)
            self.start(broker_id)
        self.nodes[1].lead_state()

    def next_epoch(self) -> int:
        return next(self._epochs)

    def leader_of(self, key: TopicPartition) -> int | None:
        broker_id = LED_BY.get(key)
        return NO_LEADER if broker_id is not None and broker_id not in self.nodes else broker_id

    def start(self, broker_id: int) -> Node:
        node = self.nodes[broker_id] = Node(self, broker_id)
        node.begin()
        return node

    def kill(self, broker_id: int) -> None:
        node = self.nodes.pop(broker_id)
        node.tasks.close()
        node.logs.close()

    def elect(self, broker_id: int, *, leaves_a_zombie: bool = False) -> Node:
        """Makes a broker the coordinator. The other one is a follower from now on, unless it is not told."""
        others = [node for node in self.nodes.values() if node.broker_id != broker_id]
        if not leaves_a_zombie:
            for node in others:
                node.follow_state()
        self.nodes[broker_id].lead_state(BOTH if others and not leaves_a_zombie else (0,))
        return self.nodes[broker_id]

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: the broker does nothing, and receives its messages later."""
        self._paused.add(broker_id)

    def is_paused(self, broker_id: int) -> bool:
        return broker_id in self._paused

    def go_on(self, broker_id: int) -> None:
        self._paused.discard(broker_id)

    def replicate(self) -> bool:
        """The follower of STATE, if there is one, fetches. Returns whether anything has changed."""
        if len(self.nodes) < 2 or self.is_cut or self._paused:
            return False
        first, second = sorted(self.nodes.values(), key=lambda node: -node.state_partition.leader_epoch)
        leader, follower = (first, second) if first.state_partition.is_leader else (second, first)
        if not leader.state_partition.is_leader or follower.state_partition.is_leader:
            return False
        return _fetch(leader, follower)

    def step(self) -> bool:
        """Takes one step of the whole cluster. Returns False when nothing is left but timers."""
        running = [node.step for node in self.nodes.values() if node.broker_id not in self._paused]
        steps = [*running, self.replicate]
        first = next(self._turns) % len(steps)
        return any(step() for step in steps[first:] + steps[:first])

    def run(self, steps: int = 100_000) -> int:
        """Takes at most so many steps. Returns how many there were before nothing was left but timers."""
        for taken in range(steps):
            if not self.step():
                return taken
        return steps

    def settle(self) -> None:
        """Runs everything, with all retries."""
        for _ in range(4):
            self.run()
            for node in self.nodes.values():
                if node.broker_id not in self._paused:
                    node.clock.advance(RETRY_MS)
                    node.timer.advance_clock()
        self.run()

    def close(self) -> None:
        for broker_id in list(self.nodes):
            self.kill(broker_id)


def _fetch(leader: Node, follower: Node) -> bool:
    """The follower truncates what the leader does not have, fetches one batch, and acknowledges it."""
    log, theirs = leader.state_partition.log, follower.state_partition.log
    same = _common_length(log, theirs)
    if same < theirs.state.log_end_offset:
        truncate(theirs, Truncate(same))
        return True
    partition, before = leader.state_partition, log.state.high_watermark
    if same < log.state.log_end_offset:
        data = bytes_of(log.reader.read(same, 1))
        follower.state_partition.append_as_follower(data)
        return True
    if partition.update_follower(1, theirs.state.log_end_offset, 0):
        leader.manager.wakeups.watermark_moved(partition)
    moved = follower.state_partition.follow(log.state.high_watermark, 0)
    return moved or log.state.high_watermark != before


def _common_length(log: Log, theirs: Log) -> int:
    """Returns the offset up to which both logs have the same batches."""
    same = 0
    for (_, ours), (_, other) in zip(iter_batches(_all(log)), iter_batches(_all(theirs)), strict=False):
        if (ours.base_offset, ours.partition_leader_epoch) != (other.base_offset, other.partition_leader_epoch):
            break
        same = int(ours.last_offset) + 1
    return same


def _all(log: Log) -> bytes:
    return bytes_of(log.reader.read(0, 1 << 20)) if log.state.log_end_offset else b""


class Producer:
    """A transactional producer, which writes one record to each partition in a transaction."""

    def __init__(self, cluster: Cluster, name: str = "t") -> None:
        self.cluster = cluster
        self.name = name
        self.id = ProducerIdAndEpoch(-1, -1)
        self.sequences = dict.fromkeys(LED_BY, 0)

    def ask(self, node: Node, start: Callable[[Callable[[Any], object]], object]) -> list[Any]:
        """Sends a request. The list gets the response."""
        answers: list[Any] = []
        start(answers.append)
        return answers

    def init(self, node: Node) -> list[Any]:
        return self.ask(node, partial(node.coordinator.init_producer_id, self.name, MINUTE_MS, None))

    def add(self, node: Node) -> list[Any]:
        return self.ask(node, partial(node.coordinator.add_partitions, self.name, self.id, frozenset(LED_BY)))

    def end(self, node: Node, committed: bool) -> list[Any]:
        return self.ask(node, partial(node.coordinator.end, self.name, self.id, committed))

    def produce(self) -> None:
        """Writes one record to each partition."""
        for key, broker_id in LED_BY.items():
            node = self.cluster.nodes[broker_id]
            records = node.batch(
                producer_id=self.id.producer_id,
                producer_epoch=self.id.producer_epoch,
                base_sequence=self.sequences[key],
                is_transactional=True,
            )
            result = node.produce(records, key).result
            assert result.error is ErrorCode.NONE, (result.error, result.error_message)
            self.sequences[key] += 1

    def begin(self, coordinator: int = 1) -> None:
        """Begins a transaction; the first time, becomes the producer of its id."""
        node = self.cluster.nodes[coordinator]
        if self.id.producer_id < 0:
            answers = self.init(node)
            self.cluster.run()
            self.id = answers[0]
        assert isinstance(self.id, ProducerIdAndEpoch), self.id
        answers = self.add(node)
        self.cluster.run()
        assert answers == [None]
        self.produce()
        self.cluster.run()


def code_of(answers: list[Any]) -> ErrorCode | None:
    """Returns the error of the response, or None while there is none."""
    if not answers:
        return None
    (answer,) = answers
    return answer.code if isinstance(answer, ProtocolError) else ErrorCode.NONE


@contextmanager
def two_brokers(root: Path) -> Iterator[Cluster]:
    cluster = Cluster(root)
    try:
        cluster.run()
        yield cluster
    finally:
        cluster.close()
