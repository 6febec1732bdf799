"""Loads shards from their logs, one partition at a time, in slices that yield to other tasks on the event loop.

The smallest log loads next, so that few requests wait for a large one. Records are replayed in log order up to the log
end offset, not only to the high watermark (as Kafka does). A damaged batch, or a record that the shard cannot decode,
is skipped and logged as an error; the rest loads. A disk that fails is different: what could not be read may be there,
so the shard does not begin without it. It is loaded again after FIRST_DELAY_MS, and if that fails, after twice as long
each time, up to LONGEST_DELAY_MS, unless the partition has moved.

Source: Kafka's `GroupMetadataManager.doLoadGroupsAndOffsets`, `TransactionStateManager.loadTransactionMetadata`,
`CoordinatorLoaderImpl`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from odradek.broker.background.tasks import Threads
from odradek.broker.coordinator.runtime.log_walk import CurrentLog, Damage, LogWalk, RunInThread, WalkedBatch
from odradek.broker.coordinator.runtime.record import CoordinatorRecord
from odradek.broker.coordinator.runtime.shard import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from odradek.protocol.errors import MalformedMessage, ProtocolError
from odradek.protocol.records import MAX_DECOMPRESSED_BYTES, Record, each_record, plain_records
from odradek.storage.producers.transaction_marker import read_marker

if TYPE_CHECKING:
    from odradek.broker.coordinator.runtime.led_partition import LedPartition
    from odradek.protocol.topic_partition import TopicPartition
    from odradek.timer import Clock

RECORDS_PER_SLICE = 200
"""Records replayed before the loader yields to the event loop: a few milliseconds."""
FIRST_DELAY_MS = 1000
LONGEST_DELAY_MS = 60_000
MOST_LINES = 20
"""Faults of one partition that are logged individually; the rest are only counted."""

log = structlog.get_logger("coordinator")


class Loader:
    """Calls `on_loaded` once a partition's whole log has been replayed, unless the partition was lost meanwhile; and
    `on_failed` some time after the log could not be read.

    Before `begin` only empty logs count as loaded: a starting broker serves its clients first.
    """

    def __init__(
        self,
        buffer_bytes: int,
        clock: Clock,
        background: Threads,
        on_loaded: Callable[[LedPartition], None],
        on_failed: Callable[[LedPartition], None],
    ) -> None:
        self._buffer_bytes = buffer_bytes
        self._clock = clock
        self._background = background
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._waiting: list[tuple[PartitionLoading, int]] = []
        self._is_running = False
        self._has_begun = False
        self._delays_ms: dict[TopicPartition, int] = {}
        """How long to wait after the next failure, of the partitions that are loaded again."""

    def begin(self) -> None:
        """Loads the queued partitions, and from now on every partition that is added."""
        self._has_begun = True
        self._run_if_needed()

    def add(self, led: LedPartition, current_log: CurrentLog) -> None:
        """Queues the partition for loading. An empty log is loaded at once."""
        loading = PartitionLoading(led, current_log, self._background.run_in_thread)
        if loading.is_empty:
            self._on_loaded(led)
            return
        self._waiting.append((loading, self._clock.now_ms()))
        self._run_if_needed()

    def _run_if_needed(self) -> None:
        if self._has_begun and self._waiting and not self._is_running:
            self._is_running = True
            self._background.spawn(self._run(), "loading of coordinators")

    async def _run(self) -> None:
        try:
            while self._waiting:
                smallest = min(range(len(self._waiting)), key=lambda slot: self._waiting[slot][0].size)
                await self._load(*self._waiting.pop(smallest))
        finally:
            self._is_running = False

    async def _load(self, loading: PartitionLoading, since_ms: int) -> None:
        led = loading.led
        delay_ms = self._delays_ms.pop(led.topic_partition, FIRST_DELAY_MS)
        if not led.is_current():
            return
        try:
            await loading.run(self._buffer_bytes)
        except OSError:
            if led.is_current():  # otherwise the log may have been truncated or removed under the walk
                is_first = delay_ms == FIRST_DELAY_MS
                partition = str(led.topic_partition)
                log.error("coordinator not loaded", partition=partition, again_in_ms=delay_ms, exc_info=is_first)
                self._background.spawn(self._fail_later(led, delay_ms), "coordinator to be loaded again")
            return
        except Exception:
            if led.is_current():
                log.exception("coordinator partially loaded", partition=str(led.topic_partition))
        if not led.is_current():
            return
        loading.log_outcome(self._clock.now_ms() - since_ms)
        self._on_loaded(led)

    async def _fail_later(self, led: LedPartition, delay_ms: int) -> None:
        await asyncio.sleep(delay_ms / 1000)
        if led.is_current():
            self._delays_ms[led.topic_partition] = min(2 * delay_ms, LONGEST_DELAY_MS)
            self._on_failed(led)


class PartitionLoading:
    """The loading of one partition, with its record and fault counts."""

    def __init__(self, led: LedPartition, current_log: CurrentLog, run_in_thread: RunInThread) -> None:
        self.led = led
        self._current_log = current_log
        self._run_in_thread = run_in_thread
        self._slice = RECORDS_PER_SLICE
        self.records = 0
        self.faults = 0

    @property
    def is_empty(self) -> bool:
        partition_log = self._current_log()
        return partition_log is None or partition_log.state.log_start_offset == partition_log.state.log_end_offset

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        partition_log = self._current_log()
        return 0 if partition_log is None else partition_log.segments.size_in_bytes

    async def run(self, buffer_bytes: int) -> None:
        """Replays the log. Returns early if the partition is lost."""
        walk = LogWalk(self._current_log, buffer_bytes, self._run_in_thread, self._damaged)
        while self.led.is_current() and await walk.read():
            for batch in walk.batches():
                await self._replay(batch)
                if not self.led.is_current():
                    return
            await asyncio.sleep(0)

    async def _replay(self, batch: WalkedBatch) -> None:
        header = batch.header
        try:
            if header.is_control:
                self._end_transaction(batch)
                return
            producer_id, producer_epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
            if header.is_transactional:
                producer_id, producer_epoch = header.producer_id, header.producer_epoch
            for record in each_record(await self._plain(batch), header):
                self._replay_record(record, producer_id, producer_epoch)
                self._slice -= 1
                if self._slice <= 0:
                    self._slice = RECORDS_PER_SLICE
                    await asyncio.sleep(0)
                    if not self.led.is_current():
                        return
        except Exception as error:
            self._fault("internal topic batch not decoded", header.base_offset, error)

    async def _plain(self, batch: WalkedBatch) -> bytes:
        """Returns the batch's uncompressed records. Decompression runs in a thread."""
        read = partial(plain_records, batch.data, batch.start, batch.header, self._largest_batch())
        plain: bytes = await self._run_in_thread(read) if batch.header.compression else read()
        return plain

    def _largest_batch(self) -> int:
        partition_log = self._current_log()
        return MAX_DECOMPRESSED_BYTES if partition_log is None else partition_log.max_decompressed_bytes

    def _replay_record(self, record: Record, producer_id: int, producer_epoch: int) -> None:
        try:
            if record.key is None:
                raise MalformedMessage("the record has no key")
            self.led.shard.replay(
                CoordinatorRecord(record.key, record.value),
                offset=record.offset,
                timestamp_ms=record.timestamp,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
            self.records += 1
        except Exception as error:
            self._fault("internal topic record not decoded", record.offset, error)

    def _end_transaction(self, batch: WalkedBatch) -> None:
        header = batch.header
        marker = read_marker(batch.data, batch.start, header)
        if marker is not None:
            self.led.shard.replay_end_transaction(header.producer_id, header.producer_epoch, not marker.aborted)

    def _damaged(self, damage: Damage) -> None:
        if self._counts():
            log.error(
                "internal topic bytes not readable",
                partition=str(self.led.topic_partition),
                segment=damage.segment,
                position=damage.position,
                bytes=damage.size,
                reason=damage.reason,
                consequence="these bytes are skipped, the rest loads",
            )

    def _fault(self, event: str, offset: int, error: Exception) -> None:
        if self._counts():
            log.error(
                event,
                partition=str(self.led.topic_partition),
                offset=offset,
                reason=str(error) if isinstance(error, (ProtocolError, ValueError)) else repr(error),
                consequence="it is skipped, the rest loads",
            )

    def _counts(self) -> bool:
        """Counts a fault. Returns whether to log it individually."""
        self.faults += 1
        return self.faults <= MOST_LINES

    def log_outcome(self, duration_ms: int) -> None:
        """Logs the result: as an error if there were faults."""
        write = log.error if self.faults else log.info
        write(
            "coordinator loaded",
            partition=str(self.led.topic_partition),
            leader_epoch=self.led.leader_epoch,
            records=self.records,
            passed_over=self.faults,
            duration_ms=duration_ms,
        )
