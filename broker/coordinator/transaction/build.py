"""The transaction coordinator of a broker: what it needs of the broker, and what it does from time to time.

Markers for this broker's own partitions go straight to its logs. For those of others there is no way yet: they wait,
and are tried again (`MarkerWriter` is the seam).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from odradek.broker.coordinator.runtime import RuntimeSettings
from odradek.broker.coordinator.transaction.coordinator import TransactionCoordinator
from odradek.broker.coordinator.transaction.local_markers import LocalMarkerWriter
from odradek.broker.coordinator.transaction.markers import MarkerWriter
from odradek.broker.coordinator.transaction.timeouts import abort_steps, expiry_steps
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.topic_partition import TopicPartition
from odradek.timer.task import TimerTask

if TYPE_CHECKING:
    from odradek.broker.server import Broker

log = structlog.get_logger("coordinator.transaction")


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

    soon = asyncio.get_running_loop().call_soon
    own_logs = LocalMarkerWriter(broker.replica_manager, soon)

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
        soon=soon,
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
