"""Batches that take longer than one turn of the event loop: validated in pieces, appended in one step.

(A) A thread verifies a batch's checksum, decompresses it part by part and recompresses it, and releases the GIL
    meanwhile. The records of each part are validated on the loop, a limited number per turn, and dropped.
(B) One batch at a time, across all requests: the parts and the codec's window of one batch bound their memory.
(C) Validation changes nothing. After it, the batch is appended within one turn, like any other: only then are checked
    whether this broker leads the partition, whether the batch belongs to an open transaction and whether its sequence
    is the next one. If the topic was recreated or its settings have changed, validation starts over.
(D) Batches of other requests may be appended to the partition in the meantime, except while a batch of more than 256 KB
    is written ahead (storage/log/write_ahead.py). Batches of one request keep their order, and their connection waits
    for them.
(E) A client that disconnects changes nothing: with acks=0 it may have sent and left. A broker that stops drops the
    batches that it has not appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from odradek.broker.background.stepwise import Steps
from odradek.broker.background.tasks import ThreadsAndTurns
from odradek.broker.replica.leader.appends import Appends, ClientAppends, PartitionAppendResult
from odradek.broker.replica.partition.hosted_partitions import HostedPartitions
from odradek.protocol.append_allowance import TURN_RECORDS, AppendAllowance, TooMuchForOneTurn
from odradek.protocol.errors import ProtocolError
from odradek.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.replica.partition.partition import Partition
    from odradek.protocol.leader_assignment import ValidatedBatch
    from odradek.protocol.record_validation import BatchValidation
    from odradek.storage.log.log import Log
    from odradek.storage.log_config import LogConfig


class LargeAppends:
    def __init__(self, appends: Appends, partitions: HostedPartitions, background: ThreadsAndTurns) -> None:
        self._appends = appends
        self._partitions = partitions
        self._background = background
        self._one_batch = asyncio.Lock()
        self._one_write = asyncio.Lock()

    async def finish(self, request: ClientAppends, ended: Callable[[], Any]) -> Any:
        """Appends one batch after the other, frees their bytes, and returns what `ended` returns."""
        entries = request.entries
        is_large = request.allowance.is_untouched
        while entries:
            if not is_large:
                await self._background.turns.take(self._append_small_ones(request))
                is_large = request.allowance.is_untouched
            else:
                await self._append_large_one(request)
                is_large = False
        return ended()

    def _append_small_ones(self, request: ClientAppends) -> Steps[None]:
        """Appends the batches that fit the next turn. If its allowance is untouched afterwards, the first remaining
        batch needs more than one turn.
        """
        yield
        request.allowance.begin_turn()
        for key in list(request.entries):
            records = request.entries[key]
            try:
                request.results[key] = request.refusal(key, records) or self._appends.append_one(
                    key, records, request.acks, request.api_version, allowance=request.allowance
                )
            except TooMuchForOneTurn:
                return
            del request.entries[key]

    async def _append_large_one(self, request: ClientAppends) -> None:
        """Appends the first batch. If another batch is being written to the partition, only waits for it."""
        key = next(iter(request.entries))
        if self._is_being_written(key):
            async with self._one_write:
                return
        records = request.entries.pop(key)
        async with self._one_batch:
            try:
                request.results[key] = await self._append_large(key, records, request)
            except ProtocolError as error:
                request.results[key] = self._appends.failed(key, error)

    async def _append_large(self, key: TopicPartition, records: bytes, request: ClientAppends) -> PartitionAppendResult:
        """Validates and appends one batch. Raises ProtocolError."""
        while True:
            partition = self._partitions.find(key)
            partition.check_append(request.acks)
            log, config = partition.log, partition.log.config
            batch = await self._checked(
                log.validation(records, partition.leader_epoch, request.api_version), request.allowance
            )
            async with self._one_write:
                try:
                    await self._background.turns.take(self._write_ahead(partition, batch))
                    if self._is_as_before(key, log, config):
                        return request.refusal(key, records) or self._appends.append_one(
                            key, batch, request.acks, request.api_version
                        )
                finally:
                    log.writer.give_up_ahead()

    async def _checked(self, validation: BatchValidation, allowance: AppendAllowance) -> ValidatedBatch:
        background = self._background
        validation.check_header()
        await background.run_in_thread(validation.read, allowance)
        await background.turns.take(_check_records(validation))
        while validation.has_more:
            await background.run_in_thread(validation.read_on)
            await background.turns.take(_check_records(validation))
        batch: ValidatedBatch = await background.run_in_thread(validation.settle)
        return batch

    def _write_ahead(self, partition: Partition, batch: ValidatedBatch) -> Steps[None]:
        for _ in partition.log.write_ahead(batch):
            yield
            if self._partitions.get(partition.topic_partition) is not partition or not partition.is_leader:
                return

    def _is_being_written(self, key: TopicPartition) -> bool:
        partition = self._partitions.get(key)
        return partition is not None and partition.log.writer.ahead is not None

    def _is_as_before(self, key: TopicPartition, log: Log, config: LogConfig) -> bool:
        partition = self._partitions.get(key)
        return partition is None or (partition.log is log and log.config is config)


def _check_records(validation: BatchValidation) -> Steps[None]:
    while not validation.check_records(TURN_RECORDS):
        yield
