"""Producers: plain, idempotent and transactional. `ProducerState` decides, the tasks here send and wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.producer_state import Batch, Ended, ProducerState
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome, Send, Transaction
from tests.wire.requests import produce_batches

LOOK_S = 0.1
"""How often waiting batches are looked at when nothing else happens."""
BACKOFF_US = 100_000
TIMEOUT_MS = 1500
DELIVERY_S = 20.0


class Producer:
    """Start it with `run` as a task of the client's node. `max_in_flight`: batches per partition, and requests per
    broker. `most_batches`: in a request."""

    produce_version: int | None = None
    """The version of Produce, if it is not the usual one."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        *,
        name: str,
        acks: int = -1,
        is_idempotent: bool = True,
        max_in_flight: int = 5,
        most_batches: int = 1,
        delivery_s: float = DELIVERY_S,
        transactional_id: str | None = None,
        key_of: Callable[[str], bytes | None] = lambda text: None,
        compression: int = 0,
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.history = history
        self.state = ProducerState(
            is_idempotent=is_idempotent,
            max_in_flight=max_in_flight,
            is_transactional=transactional_id is not None,
            key_of=key_of,
            compression=compression,
        )
        self.requests = 0
        """How many Produce requests had a batch acknowledged."""
        self._acks = acks
        self._max_in_flight = max_in_flight
        self._most_batches = most_batches
        self._delivery_us = int(delivery_s * 1e6)
        self._transactional_id = transactional_id
        self._requests_by_broker: dict[int, int] = {}
        self._ends: dict[Batch, asyncio.Future[Outcome]] = {}
        self._wake = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], None] = {}

    # --- for the application ------------------------------------------------------------------------------------

    async def send(
        self, partition: TopicPartition, texts: Sequence[str], transaction: Transaction | None = None
    ) -> Outcome:
        """Sends one batch and returns its outcome."""
        loop = asyncio.get_running_loop()
        send = Send(
            process=self.name,
            partition=partition,
            records=tuple(texts),
            acks=self._acks,
            is_idempotent=self.state.is_idempotent,
            transaction=transaction,
        )
        batch = Batch(self.history.begin(send), round(loop.time() * 1e6) + self._delivery_us)
        ended = self._ends[batch] = loop.create_future()
        self.state.add(batch)
        self._wake.set()
        outcome: Outcome = await ended
        return outcome

    # --- sending ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sends what there is, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            now_us = round(loop.time() * 1e6)
            self._end(self.state.expire(now_us))
            if self.state.is_idempotent and not self.state.is_ready and not self.state.in_flight:
                await self.renew()
            await self._send_ready(now_us)
            self._wake.clear()
            timer = loop.call_later(LOOK_S, self._wake.set) if self.state.unfinished else None
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    async def renew(self) -> None:
        """Gets a producer id, or the next epoch of the own one. Returns also if that fails for now."""
        if self.state.producer_id >= 0:
            self._end(self.state.identify(self.state.producer_id, self.state.epoch + 1))
            return
        try:
            answer = await self.cluster.ask_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFFFFFF)
            )
        except (NotSent, Unanswered):
            await self.cluster.back_off()
            return
        if answer.error_code == ErrorCode.NONE:
            self._end(self.state.identify(answer.producer_id, answer.producer_epoch))
        else:
            await self.cluster.back_off()

    async def _send_ready(self, now_us: int) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        is_stale = False
        for partition in self.state.sendable(now_us):
            leader = self.cluster.leader_of(partition)
            if leader is None:
                is_stale = True
            else:
                by_leader.setdefault(leader.broker_id, []).append(partition)
        for broker_id, partitions in by_leader.items():
            requests = self._max_in_flight - self._requests_by_broker.get(broker_id, 0)
            for first in range(0, min(len(partitions), requests * self._most_batches), self._most_batches):
                self._begin_request(broker_id, partitions[first : first + self._most_batches])
        if is_stale:
            await self.cluster.refresh()
            await self.cluster.back_off()

    def _begin_request(self, broker_id: int, partitions: list[TopicPartition]) -> None:
        batches: dict[TopicPartition, Batch] = {}
        contents: dict[TopicPartition, bytes | None] = {}
        for partition in partitions:
            batches[partition], contents[partition] = self.state.take(partition)
        self._requests_by_broker[broker_id] = self._requests_by_broker.get(broker_id, 0) + 1
        task = asyncio.get_running_loop().create_task(self._deliver(broker_id, batches, contents))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _deliver(
        self, broker_id: int, batches: dict[TopicPartition, Batch], contents: dict[TopicPartition, bytes | None]
    ) -> None:
        request = produce_batches(
            contents, acks=self._acks, timeout_ms=TIMEOUT_MS, transactional_id=self._transactional_id
        )
        is_stale = False
        try:
            response = await self.cluster.ask_broker(broker_id, request, version=self.produce_version)
        except NotSent:
            is_stale = True
            for batch in batches.values():
                self.state.not_sent(self._later(batch))
        except Unanswered:
            is_stale = True
            for batch in batches.values():
                self.state.unanswered(self._later(batch))
        else:
            answers = {
                TopicPartition(topic.name, answer.index): answer
                for topic in response.responses
                for answer in topic.partition_responses
            }
            self.requests += any(answer.error_code == ErrorCode.NONE for answer in answers.values())
            for partition, answer in answers.items():
                is_stale |= self._answered(batches[partition], answer, broker_id)
        self._requests_by_broker[broker_id] -= 1
        if is_stale:
            await self.cluster.refresh()
        self._wake.set()

    def _answered(self, batch: Batch, answer: object, broker_id: int) -> bool:
        """Returns whether the metadata may be stale."""
        code = ErrorCode.of(answer.error_code)  # type: ignore[attr-defined]
        ended = self.state.answered(batch, code, answer.base_offset, broker_id)  # type: ignore[attr-defined]
        if ended is None:
            self._later(batch)
        else:
            self._end([ended])
        return code.invalid_metadata

    def _later(self, batch: Batch) -> Batch:
        batch.not_before_us = round(asyncio.get_running_loop().time() * 1e6) + BACKOFF_US
        return batch

    def _end(self, all_ended: Sequence[Ended]) -> None:
        for ended in all_ended:
            self.history.end(ended.batch.send, ended.outcome, ended.error)
            future = self._ends.pop(ended.batch)
            if not future.done():
                future.set_result(ended.outcome)
