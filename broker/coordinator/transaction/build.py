"""The transaction coordinator of a broker: what it needs of the broker, and what it does from time to time.

Markers for this broker's own partitions go straight to its logs. For those of others there is no way yet: they wait,
and are tried again (`MarkerWriter` is the seam).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import structlog

from broker.coordinator.runtime import RuntimeSettings
from broker.coordinator.transaction.coordinator import TransactionCoordinator
from broker.coordinator.transaction.markers import Marker, MarkerWriter, OnWritten
from broker.coordinator.transaction.timeouts import abort_steps, expiry_steps
from protocol.errors import ErrorCode, ProtocolError
from protocol.topic_partition import TopicPartition
from timer.task import TimerTask

if TYPE_CHECKING:
    from broker.replica.replica_manager import ReplicaManager
    from broker.server import Broker

MARKERS_PER_TURN = 20

log = structlog.get_logger("coordinator.transaction")


class LocalMarkerWriter:
    """Writes markers into this broker's own logs: the first at once, the rest in later turns of the loop, in each
    MARKERS_PER_TURN of all transactions in rotation. Nobody waits for one that has thousands of partitions.
    """

    def __init__(self, replica_manager: ReplicaManager, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._replica_manager = replica_manager
        self._call_soon = call_soon
        self._waiting: deque[tuple[Marker, Iterator[TopicPartition], OnWritten]] = deque()
        self._left = MARKERS_PER_TURN
        self._is_scheduled = False

    def write(self, marker: Marker, on_written: OnWritten) -> None:
        """See `MarkerWriter`. Each partition's marker waits for its own high watermark."""
        self._waiting.append((marker, iter(marker.partitions), on_written))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and self._left > 0:
            marker, partitions, on_written = entry = self._waiting.popleft()
            topic_partition = next(partitions, None)
            if topic_partition is not None:
                self._left -= 1
                self._waiting.append(entry)
                self._append(marker, topic_partition, on_written)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._left = MARKERS_PER_TURN
        if self._waiting:
            self._go_on()

    def _append(self, marker: Marker, topic_partition: TopicPartition, on_written: OnWritten) -> None:
        self._replica_manager.append_end_transaction_marker(
            topic_partition,
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.committed,
            partial(on_written, topic_partition),
        )


class Call(TimerTask):
    """A function, called once when its time has come."""

    __slots__ = ("_function",)

    def __init__(self, delay_ms: int, function: Callable[[], None]) -> None:
        super().__init__(delay_ms)
        self._function = function

    def run(self) -> None:
        self._function()


def start_transaction_coordinator(broker: Broker) -> TransactionCoordinator:
    """Made and set to work: it hears which partitions this broker leads from now on."""

    def later(delay_ms: int, function: Callable[[], None]) -> Call:
        call = Call(delay_ms, function)
        broker.timer.add(call)
        return call

    def new_producer_id(use: Callable[[int | ProtocolError], None]) -> None:
        async def take() -> None:
            try:
                found: int | ProtocolError = await broker.producer_ids.next()
            except ProtocolError as error:
                found = error
            except Exception:
                log.exception("no producer id")
                found = ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
            try:
                use(found)
            except Exception:
                log.exception("a producer id could not be used")
                use(ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR))

        broker.background.spawn(take(), "a producer id")

    def leader_of(topic_partition: TopicPartition) -> int | None:
        state = broker.metadata.partition(topic_partition.topic, topic_partition.partition)
        return None if state is None else state.leader

    own_logs = LocalMarkerWriter(broker.replica_manager, asyncio.get_running_loop().call_soon)

    def writer_to(broker_id: int) -> MarkerWriter | None:
        return own_logs if broker_id == broker.broker_id else None

    coordinator = TransactionCoordinator(
        clock=broker.clock,
        longest_timeout_ms=lambda: int(broker.config["transaction.max.timeout.ms"]),
        new_producer_id=new_producer_id,
        leader_of=leader_of,
        writer_to=writer_to,
        own_logs=own_logs,
        later=later,
    )
    settings = RuntimeSettings.for_transactions(broker.config)
    coordinator.runtime = broker.start_coordinator_runtime(settings, coordinator.new_shard)
    broker.replica_manager.verification.is_open_transaction = coordinator.is_open_transaction
    _start_periodic_work(broker, coordinator)
    return coordinator


def _start_periodic_work(broker: Broker, coordinator: TransactionCoordinator) -> None:
    config, every = broker.config, broker.background.every

    async def abort() -> None:
        for _ in abort_steps(coordinator, broker.clock.wall_ms()):
            await asyncio.sleep(0)

    async def expire() -> None:
        for _ in expiry_steps(coordinator, broker.clock.wall_ms(), config["transactional.id.expiration.ms"]):
            await asyncio.sleep(0)

    every(config["transaction.abort.timed.out.transaction.cleanup.interval.ms"], abort, "abort of late transactions")
    every(config["transaction.remove.expired.transaction.cleanup.interval.ms"], expire, "expiry of transactional ids")
